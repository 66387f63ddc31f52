"""A worker whose system allows no more threads for a while: it goes on as before when threads can start again."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import monotonic
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.fetch.deferred import Deferred
from sidekiq_py.engine.run.interrupts import Guard, SoftLimits
from sidekiq_py.errors import RedisReplyError, SoftTimeLimitError
from tests.engine.run.test_interrupts import Runner, new_unit, spin
from tests.support.in_flight import jobs_in_flight
from tests.support.no_more_threads import IMPOSSIBLE_STACK_BYTES, without_more_threads
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

JOBS = f"""
import threading, time
import sidekiq_py as sidekiq

@sidekiq.job(name="Exhaust")
def use_up_the_threads():
    threading.stack_size({IMPOSSIBLE_STACK_BYTES})

@sidekiq.job(name="Long")
def run_until_the_stop():
    print("running", flush=True)
    for _ in range(6000):
        time.sleep(0.01)
"""


def test_handlers_are_called_once_a_thread_can_start() -> None:
    """The lease keeper must not fail because its report cannot be made now."""
    callbacks, called = CallbackThread(), []
    without_more_threads(lambda: callbacks.call(lambda: called.append(1)))

    callbacks.call(lambda: called.append(2))

    callbacks.stop(5)
    assert called == [1, 2]


def test_ends_of_jobs_are_deferred_once_a_thread_can_start() -> None:
    """Else the ends of all later jobs would wait for a thread that never runs."""
    deferred, done, refusal = Deferred(lambda: False), [], RedisReplyError("NOPERM no")
    assert not without_more_threads(lambda: deferred.add(lambda: done.append(1), refusal))

    assert deferred.add(lambda: done.append(2), refusal)

    eventually(lambda: done == [2])
    deferred.stop()


def test_soft_limits_are_enforced_once_a_thread_can_start() -> None:
    """The job that meets the shortage fails; those after it have their limits."""
    limits, runner = SoftLimits(), Runner()
    with pytest.raises(RuntimeError, match="thread"):
        without_more_threads(lambda: limits.watch(Guard(), new_unit(), 60))
    assert limits.watched == 0
    unit = new_unit()

    def job() -> None:
        assert runner.guard is not None
        limits.watch(runner.guard, unit, 0.01)
        spin(monotonic() + 30)

    thread = threading.Thread(target=runner.run, args=(unit, job))
    thread.start()
    thread.join(30)

    assert [type(error) for _, error in runner.ended] == [SoftTimeLimitError]
    limits.close()


@pytest.mark.parametrize("arguments", [(), ("--processes", "1", "-c", "1")], ids=["threads", "prefork"])
def test_a_worker_without_threads_stops_in_order(
    start_worker: Callable[..., WorkerProcess],
    redis_client: redis.Redis,
    redis_url: str,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    """A job may have leaked threads up to the limit. The next deploy must not turn into a crash."""
    (tmp_path / "exhausting_jobs.py").write_text(JOBS)
    worker = start_worker("exhausting_jobs", arguments=["-t", "0.2", *arguments])

    def has_started() -> bool:
        # Signals are handled once all of its own threads run.
        worker.send_signal(signal.SIGTTIN)
        return "/processor" in worker.log

    eventually(has_started)
    client = Client(redis_url, sidekiq_version="7")
    client.push({"class": "Exhaust", "args": []})
    eventually(lambda: not redis_client.llen("queue:default") and not jobs_in_flight(redis_client))
    client.push({"class": "Long", "args": []})
    eventually(lambda: "running" in worker.log)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(30) == 0
    assert "Traceback" not in worker.log
    # It is back before the process ends, and not a suspect as after a crash.
    assert redis_client.llen("queue:default") == 1
    assert not redis_client.exists("sidekiq_py:suspects")
    assert not redis_client.hlen("sidekiq_py:owners")
