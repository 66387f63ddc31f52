"""Handlers of the program that nobody waits for."""

import logging
import threading

import pytest

from sidekiq_py.engine.callback_thread import CallbackThread
from tests.support.waiting import eventually


def test_handlers_are_called_in_order_by_another_thread() -> None:
    """Whoever asked goes on at once."""
    callbacks, called = CallbackThread(), []
    gate = threading.Event()

    def wait() -> None:
        gate.wait(5)
        called.append((1, threading.current_thread().name))

    callbacks.call(wait)
    callbacks.call(lambda: called.append((2, threading.current_thread().name)))

    assert called == []
    gate.set()
    eventually(lambda: called == [(1, "sidekiq.handlers"), (2, "sidekiq.handlers")])
    callbacks.stop(1)


def test_a_handler_that_fails_stops_none_of_those_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    """Not even by a SystemExit."""
    callbacks, called = CallbackThread(), []

    def leave() -> None:
        raise SystemExit

    with caplog.at_level(logging.CRITICAL + 1, "sidekiq"):
        callbacks.call(leave)
        callbacks.call(lambda: called.append(1))
        callbacks.stop(5)

    assert called == [1]


def test_stopping_waits_for_what_was_asked_for_but_not_for_ever() -> None:
    """What was not called in time is counted in a warning."""
    callbacks, called = CallbackThread(), []
    callbacks.call(lambda: called.append(1))
    callbacks.stop(5)
    callbacks.stop(5)
    assert called == [1]

    hanging, gate = CallbackThread(), threading.Event()
    hanging.call(lambda: gate.wait(10))
    hanging.stop(0.01)
    gate.set()
    CallbackThread().stop(1)
