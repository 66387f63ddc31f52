"""Run all benchmarks, or some of them, and print one table; with a path, also write it there as a page."""

import argparse
import compileall
import os
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    batches,
    beside_celery,
    crowd,
    drain,
    fleet,
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
    *(crowd, beside_celery, web, fleet),
)
QUESTIONS = {module.__name__.rpartition(".")[2]: module for module in MODULES}

PAGE = """# Benchmarks

`make bench` wrote this page on {date}: {machine}. Both sides of every ratio were measured in the same
run on the same Redis. The machine was shared and noisy, so compare ratios rather than absolute times. The docstring at
the top of each script in `bench/` explains its rows.

{table}

## What a job costs Redis in a fleet

These are fleets of processes with five threads each, next to the real Sidekiq's if Ruby is installed. The load average
of the machine was {load}. On a busy machine Redis finds several requests at a time, which saves it much work. So
compare the two sides of a row, but not one row with another.

{fleet}
"""


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
    rows: list[tuple[str, str]] = []
    of_fleets: list[tuple[str, str]] = []
    load_before = ""
    for question in [QUESTIONS[name] for name in chosen.only or QUESTIONS]:
        print(f"\n{(question.__doc__ or '').strip().splitlines()[0]}", flush=True)
        if question is fleet:
            load_before = _load()
        for name, value in question.run():
            (of_fleets if question is fleet else rows).append((name, value))
            print(f"  {name:55} {value}", flush=True)
    if chosen.page:
        load = f"{load_before} before and {_load()} after"
        chosen.page.write_text(page(rows, of_fleets, load))


def page(rows: list[tuple[str, str]], of_fleets: list[tuple[str, str]], load: str) -> str:
    """The text of `docs/benchmarks.md`."""
    return PAGE.format(
        date=datetime.now(UTC).date(), machine=ground.machine(), table=_table(rows), load=load, fleet=_table(of_fleets)
    )


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(["| Question | Answer |", "|---|---|", *[f"| {name} | {value} |" for name, value in rows]])


def _load() -> str:
    return f"{os.getloadavg()[0]:.0f}"


if __name__ == "__main__":
    main()
