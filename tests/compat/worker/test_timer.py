"""The timer that bootsteps of a program use."""

import pytest
from sidekiq_celery.worker.timer import Timer

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
