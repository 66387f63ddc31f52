"""The inline mode: jobs run where they are enqueued."""

import asyncio

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.active_job import perform_later
from sidekiq_py.errors import JobNotFoundError
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.testing import inline


def test_a_job_runs_at_once_with_what_json_leaves_of_its_arguments(jobs):
    """The push returns the jid, as always."""
    with inline():
        jid = jobs.worker.perform_async({"a": [1.0]})

    assert jobs.ran == [("Worker", jid, {"a": [1.0]})]


def test_scheduled_and_bulk_jobs_run_at_once_too(jobs):
    """Their time is ignored."""
    with inline():
        jobs.plain.perform_in(3600, 1)
        jobs.plain.perform_bulk([[2], [3]])

    assert jobs.ran == [("Plain", 1), ("Plain", 2), ("Plain", 3)]


def test_what_a_job_enqueues_runs_within_it(jobs):
    """Everything is done when the first push returns."""
    with inline():
        jobs.spawning.perform_async(2)

    assert jobs.ran == [("Spawning", 2), ("Spawning", 1), ("Spawning", 0)]


def test_an_error_is_raised_by_the_push(jobs):
    """There is no retry set."""
    with inline(), pytest.raises(ZeroDivisionError, match="as told"):
        jobs.failing.perform_async()


def test_an_async_job_runs_with_and_without_a_loop(jobs):
    """Inside a loop it gets a thread with its own loop, and the push waits for it."""

    async def within_a_loop():
        await jobs.awaited.aperform_async(2)
        jobs.awaited.perform_async(3)
        await jobs.plain.aperform_async(4)

    with inline():
        jobs.awaited.perform_async(1)
        asyncio.run(within_a_loop())

    assert jobs.ran == [("Awaited", 1), ("Awaited", 2), ("Awaited", 3), ("Plain", 4)]


def test_server_middleware_wraps_the_run(jobs):
    """The program's own middleware, or a chain for the test."""
    seen = []
    sidekiq.server_middleware.add(lambda job, payload, queue, go: (seen.append(queue), go())[1])

    with inline():
        jobs.plain.perform_async()
    with inline(server_middleware=Chain()):
        jobs.plain.perform_async()

    assert seen == ["low"]


def test_a_job_of_the_ruby_side_cannot_run_here():
    """Use the fake mode for such jobs."""
    with inline(), pytest.raises(JobNotFoundError, match="RailsJob"):
        sidekiq.ruby_job("RailsJob").perform_async()
    with inline(), pytest.raises(JobNotFoundError, match="RailsJob"):
        perform_later("RailsJob")
