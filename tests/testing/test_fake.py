"""The fake mode: what it keeps, and how jobs run."""

import asyncio
import contextvars
import json
import math
import threading
from contextlib import suppress

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import testing
from sidekiq_py.active_job import Keywords, active_job, perform_later
from sidekiq_py.errors import (
    ArgumentTypeError,
    EmptyQueueError,
    JobNotFoundError,
    RedisConnectionError,
    WrongModeError,
)
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.registry import registry
from sidekiq_py.testing import fake, inline


def test_a_job_waits_as_the_bytes_that_redis_would_get(jobs):
    """The payload is complete, checked and serialized, and the repr shows the job."""
    with fake() as enqueued:
        jid = jobs.plain.perform_async("bob", 5)

    [job] = enqueued
    assert json.loads(job.raw) == job.payload
    assert (job.jid, job.job_class, job.queue, job.args, job.at) == (jid, "Plain", "low", ["bob", 5], None)
    assert "enqueued_at" in job.payload
    assert repr(job) == "<EnqueuedJob Plain('bob', 5) on queue 'low'>"


@pytest.mark.parametrize("ends_by", ["its last item", "an error"])
def test_an_iterable_job_runs_without_redis_from_its_first_item_on(ends_by):
    """It has no saved position, because a test runs each job once."""
    seen = []

    class Walk(sidekiq.IterableJob, name="Walk"):
        def build_enumerator(self, count, *, cursor):
            return self.array_enumerator(range(count), cursor)

        def each_iteration(self, item, count):
            seen.append(item)
            if ends_by == "an error" and item == 2:
                raise LookupError("boom")

    with fake() as enqueued, suppress(LookupError):
        Walk.perform_async(3)
        enqueued.drain()
    with inline(), suppress(LookupError):
        Walk.perform_async(3)

    registry.remove("Walk")
    assert seen == [0, 1, 2] * 2


def test_a_scheduled_job_knows_when_it_is_due(jobs):
    """The time is kept next to the payload, as the score is in a sorted set."""
    with fake() as enqueued:
        jobs.plain.perform_at(4_000_000_000, 1)

    assert enqueued[0].at == 4_000_000_000
    assert "at" not in enqueued[0].payload
    assert "enqueued_at" not in enqueued[0].payload


def test_every_way_to_enqueue_is_taken(jobs):
    """Handles, options, bulk, clients, classes, names, Active Jobs; sync and async."""

    async def awaited():
        await jobs.plain.aperform_async(4)
        await jobs.awaited.aperform_bulk([[5], [6]])
        async with sidekiq.AsyncClient("redis://127.0.0.1:1/1") as client:
            await client.push({"class": "Foreign", "args": [7]})

    with fake() as enqueued:
        jobs.plain.perform_async(0)
        jobs.plain.set(queue="high").perform_async(1)
        jobs.plain.perform_bulk([[2], [3]])
        asyncio.run(awaited())
        sidekiq.Client("redis://127.0.0.1:1/1").push({"class": "Foreign", "args": [8]})
        sidekiq.Client().push_bulk({"class": "Foreign", "args": [[9]]})
        sidekiq.ruby_job("Billing::Emailer").perform_async(10)
        perform_later("RailsJob", 11)

    assert [job.args[0] for job in enqueued] == list(range(12))


def test_nothing_touches_redis_and_outside_of_the_block_everything_does(jobs):
    """The mode ends with the block, also after an error."""
    with fake() as enqueued, suppress(ZeroDivisionError):
        jobs.failing.perform_async()
        enqueued.drain()

    with pytest.raises(RedisConnectionError):
        jobs.plain.perform_async()


def test_arguments_are_checked_and_middleware_runs(jobs):
    """Everything that happens before a job is sent is real."""
    sidekiq.client_middleware.add(lambda job, payload, queue, go: go() if payload["args"] else None)

    with fake() as enqueued:
        with pytest.raises(ArgumentTypeError):
            jobs.plain.perform_async(object())
        assert jobs.plain.perform_async() is None
        jobs.plain.perform_async(1)

    assert len(enqueued) == 1


def test_jobs_by_name_and_by_queue(jobs):
    """You can refer to a job by its handle, its class or its name."""
    with fake() as enqueued:
        jobs.plain.perform_async(1)
        jobs.worker.perform_async(2)
        jobs.plain.set(queue="critical").perform_async(3)

        assert [job.args for job in enqueued.jobs(jobs.plain)] == [[1], [3]]
        assert [job.args for job in testing.jobs(jobs.worker)] == [[2]]
        assert [job.args for job in testing.jobs("Plain", queue="critical")] == [[3]]
        assert {name: len(waiting) for name, waiting in testing.queues().items()} == {"low": 1, "critical": 2}


def test_drain_runs_all_jobs_of_a_kind(jobs):
    """Oldest first; other jobs keep waiting."""
    with fake() as enqueued:
        jobs.plain.perform_async(1)
        jobs.worker.perform_async(2)
        jobs.plain.perform_in(60, 3)

        assert enqueued.drain(jobs.plain) == 2

    assert jobs.ran == [("Plain", 1), ("Plain", 3)]
    assert [job.job_class for job in enqueued] == ["Worker"]


def test_drain_goes_on_with_what_jobs_enqueue(jobs):
    """Until no job is waiting."""
    with fake():
        jobs.spawning.perform_async(2)

        assert testing.drain_all() == 3

    assert jobs.ran == [("Spawning", 2), ("Spawning", 1), ("Spawning", 0)]


def test_drain_ends_where_a_job_enqueues_itself_for_ever(jobs):
    """The test fails with a message instead of hanging."""
    with fake() as enqueued:
        jobs.spawning.perform_async(100)

        with pytest.raises(WrongModeError, match="enqueues itself"):
            enqueued.drain(limit=5)


def test_a_limit_that_is_no_number_is_named(jobs):
    """None is not "no limit"; math.inf is."""
    with fake() as enqueued:
        jobs.plain.perform_async()

        with pytest.raises(TypeError, match="limit is None; give the most jobs to run"):
            enqueued.drain(limit=None)
        assert enqueued.drain(limit=math.inf) == 1


@pytest.mark.parametrize("mode", [fake, inline])
def test_server_middleware_is_given_as_a_chain(jobs, mode):
    """Not as a list."""
    with (
        pytest.raises(TypeError, match=r"server_middleware is \[<.*>\]; give a Chain"),
        mode(server_middleware=[print]),
    ):
        jobs.plain.perform_async()


def test_perform_one_runs_the_oldest_and_returns_it(jobs):
    """An instance of the class form knows its jid."""
    with fake() as enqueued:
        jid = jobs.worker.perform_async(1)
        jobs.worker.perform_async(2)

        assert testing.perform_one(jobs.worker).jid == jid

    assert jobs.ran == [("Worker", jid, 1)]
    assert len(enqueued) == 1


def test_perform_one_with_nothing_to_run(jobs):
    """The error names the job that was wanted."""
    with fake() as enqueued:
        jobs.plain.perform_async()

        with pytest.raises(EmptyQueueError, match="Worker on queue 'x'"):
            enqueued.perform_one(jobs.worker, queue="x")


def test_an_error_reaches_the_test_and_the_job_is_gone(jobs):
    """Jobs are not retried; the jobs after the failed one are still waiting."""
    with fake() as enqueued:
        jobs.failing.perform_async()
        jobs.plain.perform_async()

        with pytest.raises(ZeroDivisionError, match="as told"):
            enqueued.drain()

    assert [job.job_class for job in enqueued] == ["Plain"]


def test_jobs_of_the_ruby_side_stay_when_the_others_are_drained(jobs):
    """You can assert on them, but they do not run here, in whatever order they were enqueued."""
    with fake() as enqueued:
        emailer = sidekiq.ruby_job("Billing::Emailer")
        emailer.perform_async(42)
        perform_later("RailsJob", 11)
        jobs.plain.perform_async("bob")
        jobs.plain.perform_async("al")

        assert enqueued.perform_one().args == ["bob"]
        assert asyncio.run(enqueued.adrain()) == 1
        assert enqueued.drain() == 0
        enqueued.assert_enqueued(emailer, args=[42])
        enqueued.assert_enqueued("RailsJob", args=[11])
        with pytest.raises(EmptyQueueError):
            enqueued.perform_one()


def test_a_job_that_is_not_declared_here_cannot_be_run():
    """A Ruby job that is named explicitly, or a class that was never imported."""
    with fake() as enqueued:
        emailer = sidekiq.ruby_job("Billing::Emailer")
        emailer.perform_async(42)
        with pytest.raises(JobNotFoundError, match="Billing::Emailer"):
            enqueued.drain(emailer)

        sidekiq.Client().push({"class": "Forgotten", "args": []})
        with pytest.raises(JobNotFoundError, match="Forgotten"):
            enqueued.drain()


def test_clear_forgets_jobs(jobs):
    """All of them, or those of one job."""
    with fake() as enqueued:
        jobs.plain.perform_async()
        jobs.worker.perform_async()
        jobs.worker.perform_async()

        testing.clear(jobs.worker)
        assert len(enqueued) == 1
        testing.clear()
        assert len(enqueued) == 0


def test_async_jobs_drain_on_the_tests_own_loop(jobs):
    """`await adrain()` inside a loop, `drain()` without one; other jobs run in a thread."""
    with fake() as enqueued:
        jobs.awaited.perform_async(1)
        enqueued.drain()

        async def within_a_loop():
            await jobs.awaited.aperform_async(2)
            with pytest.raises(WrongModeError, match="adrain"):
                testing.drain()
            await jobs.awaited.aperform_async(3)
            jobs.plain.perform_async(4)
            await testing.aperform_one(jobs.plain)
            return await testing.adrain_all()

        assert asyncio.run(within_a_loop()) == 1

    assert jobs.ran == [("Awaited", 1), ("Plain", 4), ("Awaited", 3)]


def test_server_middleware_wraps_runs(jobs):
    """By default the program's own middleware, or a chain for the test."""
    seen = []
    sidekiq.server_middleware.add(lambda job, payload, queue, go: (seen.append((job, queue)), go())[1])

    with fake() as enqueued:
        jobs.plain.perform_async()
        enqueued.drain()
    with fake(server_middleware=Chain()) as enqueued:
        jobs.plain.perform_async()
        enqueued.drain()

    assert seen == [(jobs.plain, "low")]
    assert len(jobs.ran) == 2


def test_a_scheduled_job_passes_client_middleware_again_before_it_runs(jobs):
    """As when a poller pushes it to its queue; the middleware may stop it."""
    pushes = []

    @sidekiq.client_middleware.add
    def once(job, payload, queue, go):
        pushes.append(payload["jid"])
        return go() if len(pushes) == 1 else None

    with fake() as enqueued:
        jid = jobs.plain.perform_in(60)
        enqueued.drain()

    assert pushes == [jid, jid]
    assert jobs.ran == []


def test_an_active_job_shows_its_own_class_and_arguments(jobs):
    """Not the wrapper and the job object."""

    @active_job("ReportJob")
    def report(number, *, format):
        jobs.ran.append((number, format))

    with fake() as enqueued:
        report.perform_later(1, format="csv")
        perform_later("OtherJob", 2, Keywords(a=3))

        assert [(job.job_class, job.args) for job in enqueued.jobs(report)] == [("ReportJob", [1, {"format": "csv"}])]
        enqueued.drain("ReportJob")

    assert jobs.ran == [(1, "csv")]
    enqueued.assert_enqueued("OtherJob", args=[2, {"a": 3}])


@pytest.mark.parametrize("outer", [fake, inline])
@pytest.mark.parametrize("inner", [fake, inline])
def test_modes_do_not_nest(outer, inner):
    """The inner mode would take jobs for which the outer mode's test waits."""
    with (
        outer(),
        pytest.raises(WrongModeError, match=rf"{inner.__name__}\(\) within {outer.__name__}\(\)"),
        inner(everywhere=True),
    ):
        pass


def test_calls_outside_of_a_fake_mode_say_so():
    """Also in the inline mode, which keeps no jobs."""
    with pytest.raises(WrongModeError, match="no fake mode is active"):
        testing.drain()
    with inline(), pytest.raises(WrongModeError, match="no fake mode is active"):
        testing.jobs()


def test_a_mode_is_that_of_its_thread(jobs):
    """Another thread has no mode, or its own."""
    outcomes = []

    def elsewhere():
        try:
            jobs.plain.perform_async("real")
        except RedisConnectionError:
            outcomes.append("to Redis")
        with fake() as others:
            jobs.plain.perform_async("theirs")
            outcomes.append(len(others))

    with fake() as enqueued:
        jobs.plain.perform_async("mine")
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    assert outcomes == ["to Redis", 1]
    assert [job.args for job in enqueued] == [["mine"]]


def test_a_mode_everywhere_takes_the_jobs_of_all_threads(jobs):
    """For code under test that runs in a server's threads."""
    with fake(everywhere=True) as enqueued:
        threads = [threading.Thread(target=jobs.plain.perform_async, args=(n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(job.args[0] for job in enqueued) == [0, 1, 2, 3, 4]


def test_a_mode_everywhere_stands_alone():
    """It would take the jobs for which another thread's test waits."""
    is_on, may_end = threading.Event(), threading.Event()

    def elsewhere():
        with fake():
            is_on.set()
            may_end.wait()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    is_on.wait()

    with pytest.raises(WrongModeError, match="another thread"), fake(everywhere=True):
        pass

    may_end.set()
    thread.join()


def test_a_mode_may_be_left_in_another_context(jobs):
    """As async fixtures do."""
    block = fake()
    enqueued = contextvars.copy_context().run(block.__enter__)

    block.__exit__(None, None, None)

    assert len(enqueued) == 0
    with fake():
        jobs.plain.perform_async()
