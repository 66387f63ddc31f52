"""
Test programs that enqueue jobs, without Redis.

    with fake() as enqueued:                      jobs wait in memory, as the bytes that Redis would get
        hard_worker.perform_async("bob", 5)
        enqueued.assert_enqueued(hard_worker, args=["bob", 5])
        enqueued.drain()                          and run, middleware included

    with inline():                                jobs run where they are enqueued
        hard_worker.perform_async("bob", 5)

    keep_off_redis()                              for a whole test run: no job and no command reaches Redis

A mode applies to the thread or task that enters it; `fake(everywhere=True)` applies to the whole process. Modes do not
nest. Jobs are not retried: an exception in a job reaches the test. Source: Sidekiq 8.1.7, test_api.rb.
"""

from typing import TYPE_CHECKING, Any

from sidekiq_py.testing.enqueued import EnqueuedJobs
from sidekiq_py.testing.enqueued_job import EnqueuedJob
from sidekiq_py.testing.modes import (
    adrain,
    adrain_all,
    allow_redis,
    aperform_one,
    assert_enqueued,
    clear,
    drain,
    drain_all,
    fake,
    inline,
    jobs,
    keep_off_redis,
    perform_one,
    queues,
    refute_enqueued,
)

if TYPE_CHECKING:
    from sidekiq_py.embedded import PrivateRedis as PrivateRedis

__all__ = [
    "EnqueuedJob",
    "EnqueuedJobs",
    "PrivateRedis",
    "adrain",
    "adrain_all",
    "allow_redis",
    "aperform_one",
    "assert_enqueued",
    "clear",
    "drain",
    "drain_all",
    "fake",
    "inline",
    "jobs",
    "keep_off_redis",
    "perform_one",
    "queues",
    "refute_enqueued",
]


if not TYPE_CHECKING:  # or every misspelled name would have the type Any

    def __getattr__(name: str) -> Any:
        # Most tests need no server, so the code that starts one is imported only on demand.
        if name != "PrivateRedis":
            raise AttributeError(f"module 'sidekiq_py.testing' has no attribute {name!r}")
        from sidekiq_py.embedded import PrivateRedis

        globals()[name] = PrivateRedis
        return PrivateRedis
