"""Ask every question and print one table; with a path, also write it there as a page."""

import compileall
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
    *(fleet, crowd, beside_celery, web),
)

PAGE = """# Benchmarks

Written by `make bench` on {date}: {machine}. Both sides of every ratio were measured in the same
run on the same Redis. The machine was shared and noisy, so compare ratios rather than absolute times. The head of each
script in `bench/` explains its rows.

| Question | Answer |
|---|---|
{rows}
"""


def main() -> None:
    """Run all."""
    # As an installed package is; where PYTHONDONTWRITEBYTECODE is set, each process would compile them anew.
    for folder in ("sidekiq_py", "compat", "bench"):
        compileall.compile_dir(ground.ROOT / folder, quiet=1)
    rows: list[tuple[str, str]] = []
    for question in QUESTIONS:
        print(f"\n{(question.__doc__ or '').strip().splitlines()[0]}", flush=True)
        for name, value in question.run():
            rows.append((name, value))
            print(f"  {name:55} {value}", flush=True)
    if len(sys.argv) > 1:
        table = "\n".join(f"| {name} | {value} |" for name, value in rows)
        page = PAGE.format(date=datetime.now(UTC).date(), machine=ground.machine(), rows=table)
        Path(sys.argv[1]).write_text(page)


if __name__ == "__main__":
    main()
