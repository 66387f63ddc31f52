"""
What do the two log lines of a job cost?

Start and done, written to a file by one thread and by ten: on the fast path, which is used if our own handler is the
only one, and through the standard library's records, as in a program with its own handlers. The unit is microseconds of
CPU per job, including the kernel's. Lower is better, and at most 25 (40,000 jobs per second) are allowed on the fast
path.
"""

import logging
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import ground
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.report.job_logger import JobLogger
from sidekiq_py.engine.report.line_handler import LineHandler
from sidekiq_py.logs import FORMATTERS
from sidekiq_py.telemetry import JOB_START, JOB_STOP

JOBS = 20_000
ROUNDS = 5

SITUATIONS = (("pretty", 1, False), ("pretty", 10, False), ("json", 1, False), ("pretty", 1, True))
IDENTITY = "host:1:0123456789ab"
PAYLOAD = {
    "retry": True,
    "queue": "default",
    "args": ["bob", 5],
    "class": "HardWorker",
    "jid": "b4a577edbccf1d805744efa9",
    "created_at": 1700000000.1234567,
    "enqueued_at": 1700000000.1235678,
}


@contextmanager
def logging_to_a_file(form: str, *, is_shared: bool) -> Iterator[JobContext]:
    """Set up a worker's logging to a file; *is_shared* adds another handler."""
    context = JobContext()
    logger = JobLogger(context, IDENTITY)
    root = logging.getLogger()
    with tempfile.TemporaryFile("w") as file:
        handlers = [LineHandler(FORMATTERS[form](), file), *([logging.NullHandler()] if is_shared else [])]
        root.setLevel(logging.INFO)
        for handler in handlers:
            root.addHandler(handler)
        logger.attach()
        try:
            yield context
        finally:
            logger.detach()
            for handler in handlers:
                root.removeHandler(handler)


def cpu_us_per_job(context: JobContext, threads: int) -> float:
    """The CPU time per job of `JOBS` runs on that many threads, logged in two lines each."""

    def work() -> None:
        for _ in range(JOBS // threads):
            context.enter(PAYLOAD)
            JOB_START.emit({"payload": PAYLOAD, "queue": "default", "identity": IDENTITY})
            JOB_STOP.emit({"payload": PAYLOAD, "queue": "default", "identity": IDENTITY, "seconds": 0.0012})
            context.leave()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    began = time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (time.process_time() - began) / JOBS * 1e6


def run() -> list[tuple[str, str]]:
    """The rows of the table."""
    rows = []
    for form, threads, is_shared in SITUATIONS:
        with logging_to_a_file(form, is_shared=is_shared) as context:
            cost_us = ground.median([cpu_us_per_job(context, threads) for _ in range(ROUNDS)])
        way = "through the standard library" if is_shared else "by the short way"
        rows.append((f"job log: {form}, {threads} threads, {way}", f"{cost_us:.1f} µs a job"))
    return rows


if __name__ == "__main__":
    ground.main(run)
