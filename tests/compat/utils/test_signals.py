"""Signals: who is told, and what becomes of errors."""

import gc
import logging

import pytest
from sidekiq_celery import Celery, signals
from sidekiq_celery.utils.dispatch import Signal


@pytest.fixture
def signal():
    """One that nobody listens to yet."""
    return Signal(name="test", providing_args={"value"})


class Listener:
    """Remembers what it is told."""

    def __init__(self):
        self.calls = []

    def hear(self, value=None, **_):
        self.calls.append(value)

    def __call__(self, value=None, **_):
        self.calls.append(value)


def test_receivers_are_told_in_the_order_of_their_connection(signal):
    """With signal, sender and what goes along; what they return is collected."""

    @signal.connect
    def first(sender, value, signal, **_):
        return sender, value, signal.name

    @signal.connect()
    def second(**_):
        return 2

    assert signal.send(sender="me", value=1) == [(first, ("me", 1, "test")), (second, 2)]


def test_a_receiver_may_want_one_sender_alone(signal):
    """An equal text is the same sender."""
    calls = []

    @signal.connect(sender="tasks.add")
    def receive(value, **_):
        calls.append(value)

    signal.send(sender="".join(["tasks", ".add"]), value=1)
    signal.send(sender="tasks.mul", value=2)

    assert calls == [1]
    assert signal.has_listeners("tasks.add")
    assert not signal.has_listeners("tasks.mul")


def test_errors_are_logged_and_returned(signal, caplog):
    """The others are told all the same."""
    calls = []

    @signal.connect
    def broken(**_):
        raise ValueError("no")

    @signal.connect
    def fine(**_):
        calls.append(1)

    with caplog.at_level(logging.ERROR):
        [(_, error), (_, nothing)] = signal.send(sender=None)

    assert isinstance(error, ValueError)
    assert nothing is None
    assert calls == [1]
    assert "raised: ValueError('no')" in caplog.text


def test_a_receiver_that_nobody_holds_is_gone(signal):
    """Unless `weak=False`."""
    weak, strong = Listener(), Listener()
    calls = strong.calls
    signal.connect(weak.hear)
    signal.connect(strong.hear, weak=False)
    del weak, strong
    gc.collect()

    signal.send(sender=None, value=1)

    assert calls == [1]
    assert len(signal.receivers) == 1


def test_a_receiver_is_connected_once(signal):
    """The same one, or the same `dispatch_uid`; methods of two objects are two."""
    one, two = Listener(), Listener()
    signal.connect(one.hear)
    signal.connect(one.hear)
    signal.connect(two.hear)
    signal.connect(lambda **_: 1, weak=False, dispatch_uid="uid")
    signal.connect(lambda **_: 2, weak=False, dispatch_uid="uid")

    assert len(signal.send(sender=None)) == 3


def test_a_receiver_is_disconnected(signal):
    """By itself or by its uid; it is told whether it was connected."""
    listener = Listener()
    signal.connect(listener.hear)
    signal.connect(listener, dispatch_uid="uid")

    assert signal.disconnect(listener.hear) is True
    assert signal.disconnect(listener.hear) is False
    assert signal.disconnect(dispatch_uid="uid") is True
    assert signal.receivers == []


def test_a_receiver_takes_any_keyword(signal):
    """As more may go along one day."""
    with pytest.raises(ValueError, match="keyword arguments"):
        signal.connect(lambda sender: None)
    with pytest.raises(TypeError, match="cannot be called"):
        signal._connect_signal(3, None, True, None)


def test_a_sender_may_be_a_task_that_is_not_made_yet(signal):
    """It is connected when the task is."""
    calls = []
    with Celery("x", set_as_current=False, fixups=[]) as app:
        task = app.task(shared=False)(lambda: None)

        @signal.connect(sender=task)
        def receive(value, **_):
            calls.append(value)

        assert signal.receivers == []
        real = task._get_current_object()
        signal.send(sender=real, value=1)
        signal.send(sender=object(), value=2)

    assert calls == [1]


def test_a_receiver_with_retry_is_called_until_it_succeeds(signal, monkeypatch):
    """With pauses in between."""
    pauses = []
    monkeypatch.setattr("time.sleep", pauses.append)
    tries = []

    def flaky(**_):
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("down")
        return "done"

    signal.connect(flaky, retry=True)
    [(_, answer)] = signal.send(sender=None)

    assert (answer, len(tries), pauses) == ("done", 3, [2.0, 4.0])
    assert signal.disconnect(flaky)


def test_disconnect_has_no_weak(signal):
    """Who gives it, is warned."""
    with pytest.warns(DeprecationWarning, match="weak"):
        signal.disconnect(lambda **_: None, weak=True)


def test_every_signal_of_celery_is_there():
    """Under its own name."""
    for name in signals.__all__:
        assert getattr(signals, name).name == name


def test_a_signal_says_what_it_is(signal):
    """For people who look at it."""
    assert repr(signal) == "<Signal: test providing_args={'value'}>"
