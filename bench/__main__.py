"""Run all benchmarks, or some of them, and print their tables; with a path, also write them there as a page."""

import argparse
import compileall
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

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

PAGE = """# Benchmarks

`make bench` wrote this page on {date}: {machine}. The load average was {load}.

Both sides of a comparison were measured in the same run on the same Redis, in turns. Compare the ratios: absolute times
differ from machine to machine, and on a shared machine from one minute to the next. The docstring at the top of each
script in `bench/` says exactly what its rows measure, and `python -m bench --only drain` repeats one section.

{sections}{notes}"""
# What people wrote at the end of the page stays there.
NOTES = "## Notes\n"
COLUMNS = ("", "Result")

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """The results of one benchmark: its question, and a table."""

    question: str
    columns: Row
    rows: list[Row]

    def __str__(self) -> str:
        """The section in Markdown."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return f"## {self.question}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    """Run the chosen benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, help="such as docs/benchmarks.md")
    parser.add_argument(
        "--only", action="append", choices=QUESTIONS, help="run only this benchmark; may be given several times"
    )
    chosen = parser.parse_args()
    if chosen.page and chosen.only:
        parser.error("a page needs all benchmarks; omit either --only or the page")
    # Compile everything, as in an installed package. With PYTHONDONTWRITEBYTECODE each process would compile it again.
    for folder in ("sidekiq_py", "compat", "bench"):
        compileall.compile_dir(ground.ROOT / folder, quiet=1)
    load_before = _load()
    sections = []
    for module in [QUESTIONS[name] for name in chosen.only or QUESTIONS]:
        question = (module.__doc__ or "").strip().splitlines()[0]
        print(f"\n{question}", flush=True)
        section = Section(question, getattr(module, "COLUMNS", COLUMNS), [])
        sections.append(section)
        for name, *values in module.run():
            section.rows.append((name, *values))
            print(f"  {name:55} {' | '.join(values)}", flush=True)
    if chosen.page:
        before = chosen.page.read_text() if chosen.page.exists() else ""
        chosen.page.write_text(page(sections, f"{load_before} before and {_load()} after", notes_of(before)))


def page(sections: Sequence[Section], load: str, notes: str = "") -> str:
    """The text of `docs/benchmarks.md`."""
    return PAGE.format(
        date=datetime.now(UTC).date(),
        machine=ground.machine(),
        load=load,
        sections="\n".join(map(str, sections)),
        notes=f"\n{notes}" if notes else "",
    )


def notes_of(text: str) -> str:
    """The notes at the end of a page; empty if it has none."""
    _, heading, notes = text.partition(NOTES)
    return heading + notes


def _load() -> str:
    return f"{os.getloadavg()[0]:.0f}"


if __name__ == "__main__":
    main()
