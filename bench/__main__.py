"""Run all benchmarks, or some of them, and print their tables; with a path, also write them there as a page."""

import argparse
import compileall
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import (
    batches,
    beside_celery,
    crowd,
    drain,
    fleet,
    fleet_simulation,
    footprint,
    ground,
    large_payloads,
    latency,
    push,
    sleepers,
    telemetry,
    web,
)

MODULES = (
    *(drain, telemetry, push, large_payloads, batches, sleepers, latency, footprint),
    *(crowd, beside_celery, web, fleet, fleet_simulation),
)
QUESTIONS = {module.__name__.rpartition(".")[2]: module for module in MODULES}

INTRODUCTION = """# Benchmarks

`make bench` writes this page, except for its notes; `python -m bench docs/benchmarks.md --only drain` measures one
section.

Both sides of a comparison were measured in the same run on the same Redis, in turns. Compare the ratios: absolute times
differ from machine to machine, and on a shared machine from one minute to the next. The docstring at the top of each
script in `bench/` says exactly what its rows measure.
"""
COLUMNS = ("", "Result")

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """The results of one benchmark: its question, where and when it was answered, and a table."""

    question: str
    origin: str
    columns: Row
    rows: list[Row]

    def __str__(self) -> str:
        """The section in Markdown."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return (
            f"## {self.question}\n\n{self.origin}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
        )


def main() -> None:
    """Run the chosen benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, help="such as docs/benchmarks.md")
    parser.add_argument(
        "--only", action="append", choices=QUESTIONS, help="run only this benchmark; may be given several times"
    )
    chosen = parser.parse_args()
    # Compile everything, as in an installed package. With PYTHONDONTWRITEBYTECODE each process would compile it again.
    for folder in ("sidekiq_py", "compat", "bench"):
        compileall.compile_dir(ground.ROOT / folder, quiet=1)
    for name in chosen.only or QUESTIONS:
        section = _answered(QUESTIONS[name])
        if chosen.page:
            chosen.page.write_text(with_section(chosen.page.read_text() if chosen.page.exists() else "", section))


def _answered(module: Any) -> Section:
    """Run one benchmark, and print its rows as they come."""
    question, load_before = question_of(module), _load()
    print(f"\n{question}", flush=True)
    rows = []
    for name, *values in module.run():
        rows.append((name, *values))
        print(f"  {name:55} {' | '.join(values)}", flush=True)
    origin = (
        f"Measured on {datetime.now(UTC).date()}: {ground.machine()}. The load average was {load_before} before and "
        f"{_load()} after."
    )
    return Section(question, origin, getattr(module, "COLUMNS", COLUMNS), rows)


def with_section(page: str, section: Section) -> str:
    """The text of the page with this section new or replaced. What is no benchmark's section stays, at the end."""
    _, *parts = page.split("\n## ")
    found = {part.partition("\n")[0]: f"## {part.strip()}\n" for part in parts}
    found[section.question] = str(section)
    wanted = [question for question in map(question_of, MODULES) if question in found]
    others = [question for question in found if question not in wanted]
    return "\n".join([INTRODUCTION, *[found[question] for question in (*wanted, *others)]])


def question_of(module: Any) -> str:
    """The question that a benchmark answers: the first line of its docstring, and the heading of its section."""
    return (module.__doc__ or "").strip().splitlines()[0]


def _load() -> str:
    return f"{os.getloadavg()[0]:.0f}"


if __name__ == "__main__":
    main()
