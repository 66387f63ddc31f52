"""
Batches for tests that kill: the program whose workers run them, and, as `python -m`, the process that opens them.

    python -m tests.support.batch_program <redis_url> <first> <count> <jobs of each> [ruby]

opens batches numbered from *first* on, of shapes that their number decides: plain, with a job that dies, with a child,
with jobs that add more, tracked or not; with `ruby` some of the jobs are those of `ruby_fixtures/batch_ledger.rb`. It
prints a line for each batch whose block was left.

BATCH_LEDGER names a file in which each member's start is noted. BATCH_FAULT, such as `leave sent 3`, kills the process
at the nth passage of a step and at a moment of it (see `FAULTS`).
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import sidekiq_py as sidekiq
from tests.support.kill_worker import Countdown, around_request

CALLBACKS = "callbacks"
"""The queue of the outermost batches' callbacks; no worker serves it, so that each is there to be counted."""

GROWN = 3

# What occurs in the bytes of a request, by its step: of the process that opens batches, and of a worker.
OPENING = {
    "open": b"\r\nopen\r\n",
    "reserve": b"\r\nreserve\r\n",
    "add": b"\r\nadd\r\n",
    "add_by_transaction": b"\r\nMULTI\r\n",
    "leave": b"\r\nleave\r\n",
}
RUNNING = {
    "succeed": b"\r\nsucceed_all\r\n",
    "end": b"\r\nends\r\n",
    "open": b"\r\nopen\r\n",
    "add": b"\r\nadd\r\n",
    "working": b"\r\nworking\r\n",
}
MOMENTS = ("before", "sent", "read")
IN_CALLBACK = "callback"
"""The run of a child's callback."""
AFTER_CALLBACK = "succeed_of_callback"
"""Its success, of which the parent hears."""

_ledger = os.open(os.environ["BATCH_LEDGER"], os.O_WRONLY | os.O_APPEND) if "BATCH_LEDGER" in os.environ else None


_in_callback: Callable[[], None] = lambda: None  # noqa: E731


def _arm(fault: str, needles: dict[str, bytes]) -> None:
    global _in_callback
    step, moment, nth = fault.split()
    countdown = Countdown(int(nth))
    if step == IN_CALLBACK:
        _in_callback = countdown
    elif step == AFTER_CALLBACK:
        # The next successes that are handed in hold the one of a callback, of which a parent hears.
        _in_callback = lambda: around_request(RUNNING["succeed"], moment, countdown)  # noqa: E731
    else:
        around_request(needles[step], moment, countdown)


def _note() -> None:
    if _ledger is not None:
        bid, number, *_ = sidekiq.current_job().payload["sidekiq_py_batch"]
        os.write(_ledger, f"{bid} {number} python\n".encode())


@sidekiq.job(name="tick", retry=25)
def tick(number: int) -> None:
    """Succeeds."""
    _note()


@sidekiq.job(name="doomed", retry=0)
def doomed(number: int) -> None:
    """Dies by its first failure."""
    _note()
    raise ValueError(f"number {number}")


@sidekiq.job(name="grow", retry=25)
def grow(number: int) -> None:
    """Adds jobs to its batch."""
    _note()
    with sidekiq.current_job().batch.jobs():
        tick.perform_bulk([[number]] * GROWN)


@sidekiq.job(name="called", retry=25)
def called(bid: str, event: str, options: Any) -> None:
    """The callback of a child, of which its parent hears."""
    _note()
    _in_callback()


ruby_tick = sidekiq.ruby_job("RubyTick", queue="ruby")
ruby_grow = sidekiq.ruby_job("RubyGrow", queue="ruby")
ruby_doomed = sidekiq.ruby_job("RubyDoomed", queue="ruby", retry=0)
ruby_called = sidekiq.ruby_job("RubyCalled", queue="ruby")


def open_batch(number: int, jobs: int, *, with_ruby: bool = False) -> str:
    """Open the batch of this number; its id."""
    batch = sidekiq.Batch(description=str(number), callback_queue=CALLBACKS, track=number % 2 == 0)
    for event in ("complete", "success", "death"):
        batch.on(event, called, number)
    with batch.jobs():
        # Slices of a hundred and more go by transactions where the batch keeps no rows.
        tick.perform_bulk([[at] for at in range(jobs // 2)], batch_size=max(1, jobs // 8))
        if with_ruby:
            ruby_tick.perform_bulk([[]] * (jobs - jobs // 2), batch_size=max(1, jobs // 3))
            if number % 3 == 0:
                ruby_grow.perform_async()
            if number % 7 == 0:
                ruby_doomed.perform_async()
        else:
            for at in range(jobs - jobs // 2):
                tick.perform_async(at)
        if number % 10 == 3:
            doomed.perform_async(number)
        if number % 4 == 1:
            grow.perform_async(number)
        if number % 5 == 2:
            child = sidekiq.Batch(description=f"{number}/child", track=number % 4 < 2)
            child.on("complete", ruby_called if with_ruby else called, number)
            child.on("success", called, number)
            with child.jobs():
                tick.perform_bulk([[at] for at in range(jobs // 4)])
                if number % 2:
                    grow.perform_async(number)
    return batch.bid


if "BATCH_FAULT" in os.environ:
    _arm(os.environ["BATCH_FAULT"], OPENING if __name__ == "__main__" else RUNNING)

if __name__ == "__main__":
    url, first, count, jobs_each = sys.argv[1], *map(int, sys.argv[2:5])
    sidekiq.configure(redis_url=url, sidekiq_version="7")
    for one in range(first, first + count):
        print(one, open_batch(one, jobs_each, with_ruby="ruby" in sys.argv[5:]), flush=True)
