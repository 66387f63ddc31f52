"""Ask every question and print one table; with a path, also write it there as a page."""

import compileall
import os
import sys
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

QUESTIONS = (
    *(drain, telemetry, push, large_payloads, batches, sleepers, latency, footprint),
    *(crowd, beside_celery, web, fleet),
)

PAGE = """# Benchmarks

Written by `make bench` on {date}: {machine}. Both sides of every ratio were measured in the same
run on the same Redis. The machine was shared and noisy, so compare ratios rather than absolute times. The head of each
script in `bench/` explains its rows.

{table}

## What a job costs Redis in a fleet

Fleets of processes of five threads, the real Sidekiq's beside ours where Ruby is installed. The load average of the
machine was {load}. A busy machine makes Redis find several requests at a time, which spares it much: compare the two
sides of a row, and no two rows.

{fleet}
"""


def main() -> None:
    """Run all."""
    # As an installed package is; where PYTHONDONTWRITEBYTECODE is set, each process would compile them anew.
    for folder in ("sidekiq_py", "compat", "bench"):
        compileall.compile_dir(ground.ROOT / folder, quiet=1)
    rows: list[tuple[str, str]] = []
    of_fleets: list[tuple[str, str]] = []
    load_before = ""
    for question in QUESTIONS:
        print(f"\n{(question.__doc__ or '').strip().splitlines()[0]}", flush=True)
        if question is fleet:
            load_before = _load()
        for name, value in question.run():
            (of_fleets if question is fleet else rows).append((name, value))
            print(f"  {name:55} {value}", flush=True)
    if len(sys.argv) > 1:
        load = f"{load_before} before and {_load()} after"
        Path(sys.argv[1]).write_text(page(rows, of_fleets, load))


def page(rows: list[tuple[str, str]], of_fleets: list[tuple[str, str]], load: str) -> str:
    """What stands in `docs/benchmarks.md`."""
    return PAGE.format(
        date=datetime.now(UTC).date(), machine=ground.machine(), table=_table(rows), load=load, fleet=_table(of_fleets)
    )


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(["| Question | Answer |", "|---|---|", *[f"| {name} | {value} |" for name, value in rows]])


def _load() -> str:
    return f"{os.getloadavg()[0]:.0f}"


if __name__ == "__main__":
    main()
