"""The timer of bootsteps and of snapshots."""

import time
from datetime import UTC, datetime

import pytest
from sidekiq_celery.utils.timer import Hub, Timer

from tests.support.no_more_threads import without_more_threads
from tests.support.waiting import eventually


def test_after_a_shortage_of_threads_calls_are_made_again() -> None:
    """Who schedules one meanwhile is told; later ones are made."""
    timer, called = Timer(), []
    with pytest.raises(RuntimeError, match="thread"):
        without_more_threads(lambda: timer.call_after(0, called.append, (1,)))

    timer.call_after(0, called.append, (2,))

    eventually(lambda: called == [2])
    timer.stop()


def test_the_hub_takes_arguments_one_by_one() -> None:
    """As kombu's does, where the timer takes a tuple of them."""
    timer, called = Timer(), []
    hub = Hub(timer)

    def note(first: int, second: int) -> None:
        called.append((first, second))

    hub.call_soon(note, 1, 2)
    hub.call_later(0.001, note, 3, 4)
    hub.call_at(time.time(), note, 5, 6)
    hub.call_at(datetime.now(UTC), note, 7, 8)
    repeated = hub.call_repeatedly(0.001, note, 9, 10)

    eventually(lambda: {(1, 2), (3, 4), (5, 6), (7, 8)} < set(called) and called.count((9, 10)) >= 2)
    repeated.cancel()
    timer.stop()


def test_cleared_and_cancelled_calls_are_not_made(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does an error in a call keep the timer from the next one, or the call itself from its repetition."""
    timer, called = Timer(), []

    def fail() -> None:
        called.append("fails")
        raise ValueError("oops")

    timer.call_after(0.05, called.append, ("cleared",))
    timer.clear()
    timer.cancel(timer.call_after(0.05, called.append, ("cancelled",)))
    failing = timer.call_repeatedly(0.001, fail)
    timer.call_after(0.1, called.append, ("last",))

    eventually(lambda: "last" in called)
    failing.cancel()
    timer.stop()

    assert set(called) == {"fails", "last"}
    assert called.count("fails") > 1
    assert "Timer error: ValueError('oops')" in caplog.text
