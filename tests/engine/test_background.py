"""The worker's own threads: none ends by an error, whatever it is."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sidekiq_py.engine import background
from sidekiq_py.engine.background import background_thread
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.fetch.flusher import Alarm, Flusher
from sidekiq_py.engine.ownership.housekeeper import Housekeeper
from sidekiq_py.engine.ownership.lease_keeper import LeaseKeeper
from sidekiq_py.engine.run.interrupts import Guard, SoftLimits
from sidekiq_py.engine.upkeep.heartbeat import Heartbeat
from sidekiq_py.engine.upkeep.poller import Poller
from tests.engine.embedded_worker import Worker
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that fails begins anew at once."""
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_a_loop_that_fails_is_told_of_and_run_again(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Python ends a thread by SystemExit without a word."""
    errors = [error, error]

    def loop() -> None:
        if errors:
            raise errors.pop()

    thread = background_thread("sidekiq.test", loop)
    thread.start()
    thread.join(60)

    assert not errors
    assert caplog.text.count("the thread sidekiq.test failed unexpectedly; it starts again") == 2
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL] * 2


@pytest.mark.parametrize(
    ("part", "step"),
    [
        (LeaseKeeper, "_renew"),
        (Housekeeper, "_turn"),
        (Heartbeat, "_turn"),
        (Poller, "_turn"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_thread_of_a_worker_goes_on_after_an_error_beyond_measure(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, part: type, step: str
) -> None:
    """Without it the lease would run out, due jobs would wait, or the Web UI would show the worker no more."""
    work: Callable[..., Any] = getattr(part, step)
    calls: list[int] = []

    def faulty(self: Any) -> Any:
        calls.append(threading.get_ident())
        if len(calls) == 1:
            raise SystemExit
        return work(self)

    monkeypatch.setattr(part, step, faulty)
    worker = Worker(redis_url)
    worker.start()
    push_jobs(redis_client, [job_text(1, "run")])

    eventually(lambda: len(calls) > 1)
    eventually(lambda: worker.ran == [1])
    assert len(set(calls[:2])) == 1
    worker.stop()


def test_the_flusher_goes_on_with_what_it_was_only_reminded_of() -> None:
    """Nothing else would announce it again until the next job ends."""
    work = ["an acknowledgement"]
    errors: list[BaseException] = [SystemExit()]

    def tick() -> bool:
        if errors:
            raise errors.pop()
        work.clear()
        return True

    alarm = Alarm()
    flusher = Flusher("flusher", alarm, tick, lambda: bool(work))
    alarm.remind()
    flusher.start()

    eventually(lambda: not work)
    flusher.stop()


def test_limits_hold_after_one_that_could_not_be_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that watches them is one for all jobs."""
    failed: list[Any] = []

    def interrupt(self: Guard, unit: Any, kind: Any) -> bool:
        failed.append(unit)
        if len(failed) == 1:
            raise MemoryError
        return True

    monkeypatch.setattr(Guard, "interrupt", interrupt)
    limits, guards = SoftLimits(), [Guard(), Guard()]
    for guard in guards:
        guard.performing = object()  # type: ignore[assignment]
        limits.watch(guard, guard.performing, 0.0)  # type: ignore[arg-type]

    eventually(lambda: failed == [guard.performing for guard in guards])
    limits.close()


def test_handlers_are_called_after_one_whose_failure_could_not_be_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log handler of the program may exit, too."""
    from sidekiq_py.engine import callback_thread as module

    called: list[int] = []

    def refuse(*args: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(module.log, "exception", refuse)
    callbacks = CallbackThread()
    callbacks.call(lambda: 1 / 0)
    callbacks.call(lambda: called.append(1))

    eventually(lambda: called == [1])
    callbacks.stop(5)
