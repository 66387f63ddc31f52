"""
One Celery program for both sides: its tasks, and the measurements that a client makes.

`BENCH_PACKAGE` is the package to use (`celery` or `sidekiq_celery`), `BENCH_URL` the Redis for broker and results, and
`BENCH_QUEUE` a queue other than `default`.

    python -m bench.celery_program delay 20000      # the seconds that this many calls take
    python -m bench.celery_program chord 1000       # the seconds until a chord of this many parts has its result
    python -m bench.celery_program chain 100        # the seconds until a chain of this many steps has its result
    python -m bench.celery_program later 100000     # sends this many tasks with an ETA in an hour
    python -m bench.celery_program fill 20000       # sends this many no-op tasks
    python -m bench.celery_program fill 20000 nap 5 # sends this many calls of a task, with this first argument
"""

import os
import sys
import time
from importlib import import_module
from typing import Any

package: Any = import_module(os.environ["BENCH_PACKAGE"])
app: Any = package.Celery("bench", broker=os.environ["BENCH_URL"], backend=os.environ["BENCH_URL"])
queue = os.environ.get("BENCH_QUEUE", "default")
app.conf.update(task_default_queue=queue, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)


@app.task(name="noop", ignore_result=True)  # type: ignore[untyped-decorator]
def noop(number: int, text: str) -> None:
    """Do nothing."""


@app.task(name="nap", ignore_result=True)  # type: ignore[untyped-decorator]
def nap(milliseconds: int, text: str) -> None:
    """Sleep for the given time."""
    time.sleep(milliseconds / 1000)


@app.task(name="nap_kept")  # type: ignore[untyped-decorator]
def nap_kept(milliseconds: int, text: str) -> None:
    """Sleep for the given time; the task has a result."""
    time.sleep(milliseconds / 1000)


@app.task(name="increment")  # type: ignore[untyped-decorator]
def increment(number: int) -> int:
    """Add one."""
    return number + 1


@app.task(name="total")  # type: ignore[untyped-decorator]
def total(numbers: list[int]) -> int:
    """Add the numbers."""
    return sum(numbers)


def _send(count: int, **options: Any) -> float:
    began = time.perf_counter()
    if options:
        for number in range(count):
            noop.apply_async((number, "x"), **options)
    else:
        for number in range(count):
            noop.delay(number, "x")
    return time.perf_counter() - began


def _result_of(canvas: Any, wanted: int) -> float:
    began = time.perf_counter()
    found = canvas.apply_async().get(timeout=120)
    seconds = time.perf_counter() - began
    if found != wanted:
        raise RuntimeError(f"the result is {found}, and not {wanted}")
    return seconds


def answer(question: str, count: int) -> float:
    """Run one measurement. Returns seconds."""
    if question != "fill":
        noop.delay(0, "the first call connects")
    if question == "chord":
        return _result_of(package.chord((increment.s(n) for n in range(count)), total.s()), sum(range(1, count + 1)))
    if question == "chain":
        return _result_of(package.chain(increment.s(0), *(increment.s() for _ in range(count - 1))), count)
    return _send(count, **({"countdown": 3600} if question == "later" else {}))


def _fill(count: int, task: str, argument: str) -> None:
    for _ in range(count):
        app.tasks[task].delay(int(argument), "x")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        _fill(int(sys.argv[2]), *sys.argv[3:])
    else:
        print(answer(sys.argv[1], int(sys.argv[2])))
