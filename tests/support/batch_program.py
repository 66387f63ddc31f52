"""
Batches for tests that kill: the program whose workers run them, and, as `python -m`, the process that opens them.

    python -m tests.support.batch_program <redis_url> <first> <count> <jobs of each>

opens batches numbered from *first* on, of shapes that their number decides: plain, with a job that dies, with a child,
with jobs that add more, tracked or not. It prints a line for each batch whose block was left.
"""

import sys
from typing import Any

import sidekiq_py as sidekiq

CALLBACKS = "callbacks"
"""The queue of the outermost batches' callbacks; no worker serves it, so that each is there to be counted."""

GROWN = 3


@sidekiq.job(name="tick", retry=25)
def tick(number: int) -> None:
    """Succeeds."""


@sidekiq.job(name="doomed", retry=0)
def doomed(number: int) -> None:
    """Dies by its first failure."""
    raise ValueError(f"number {number}")


@sidekiq.job(name="grow", retry=25)
def grow(number: int) -> None:
    """Adds jobs to its batch."""
    with sidekiq.current_job().batch.jobs():
        tick.perform_bulk([[number]] * GROWN)


@sidekiq.job(name="called", retry=25)
def called(bid: str, event: str, options: Any) -> None:
    """The callback of a child, of which its parent hears."""


def open_batch(number: int, jobs: int) -> str:
    """Open the batch of this number; its id."""
    batch = sidekiq.Batch(description=str(number), callback_queue=CALLBACKS, track=number % 2 == 0)
    for event in ("complete", "success", "death"):
        batch.on(event, called, number)
    with batch.jobs():
        tick.perform_bulk([[at] for at in range(jobs // 2)], batch_size=max(1, jobs // 8))
        for at in range(jobs - jobs // 2):
            tick.perform_async(at)
        if number % 10 == 3:
            doomed.perform_async(number)
        if number % 4 == 1:
            grow.perform_async(number)
        if number % 5 == 2:
            child = sidekiq.Batch(description=f"{number}/child", track=number % 4 < 2)
            for event in ("complete", "success"):
                child.on(event, called, number)
            with child.jobs():
                tick.perform_bulk([[at] for at in range(jobs // 4)])
                if number % 2:
                    grow.perform_async(number)
    return batch.bid


if __name__ == "__main__":
    url, first, count, jobs_each = sys.argv[1], *map(int, sys.argv[2:])
    sidekiq.configure(redis_url=url, sidekiq_version="7")
    for one in range(first, first + count):
        print(one, open_batch(one, jobs_each), flush=True)
