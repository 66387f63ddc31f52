"""A signal: connects receivers and calls them."""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import Any, TypeVar, overload

from sidekiq_celery.local import PromiseProxy, Proxy
from sidekiq_celery.utils.functional import fun_accepts_kwargs

__all__ = ("Signal",)

logger = logging.getLogger("celery.utils.dispatch.signal")

Receiver = Callable[..., Any]
F = TypeVar("F", bound=Receiver)
Listener = tuple[tuple[Any, Any], Any]
"""The key (receiver and sender) and the receiver, or a weak reference to it."""


def _make_id(target: Any) -> Any:
    if issubclass(type(target), Proxy):
        target = target._get_current_object()
    if isinstance(target, bytes | str):
        # Equal texts may be two objects.
        return target
    if hasattr(target, "__func__"):
        return id(getattr(target, "__self__", None)), id(target.__func__)
    return id(target)


def _make_key(receiver: Any, sender: Any, dispatch_uid: Any) -> tuple[Any, Any]:
    uid = dispatch_uid or getattr(receiver, "_dispatch_uid", None)
    return uid or _make_id(receiver), _make_id(sender)


def _weakly(receiver: Any) -> "weakref.ref[Any]":
    # A bound method is created anew at each access, so only its object can be referenced.
    if hasattr(receiver, "__self__") and hasattr(receiver, "__func__"):
        return weakref.WeakMethod(receiver)
    return weakref.ref(receiver)


_ANY_SENDER = _make_id(None)


def _until_it_succeeds(receiver: Receiver, sleep: Callable[[float], None]) -> Receiver:
    def tried_again(*args: Any, **kwargs: Any) -> Any:
        pause = 2.0
        while True:
            try:
                return receiver(*args, **kwargs)
            except Exception:  # noqa: BLE001 - a program's receiver may raise anything
                logger.error("Could not process signal receiver %r. Retrying in %s seconds...", receiver, pause)
            sleep(pause)
            pause = min(pause + 2.0, 30.0)

    return tried_again


class Signal:
    """
    An event in the life of a program, with the receivers that want to be called.

    Receivers are called in the order in which they were connected, with `signal`, `sender` and the signal's arguments
    as keywords. Their exceptions are logged and returned, not raised.

    Args:
        providing_args: The names of the signal's arguments; only documentation.
        use_caching: Accepted but ignored, because the list of receivers is short.
        name: Shown in `repr`.
    """

    def __init__(
        self, providing_args: Collection[str] | None = None, use_caching: bool = False, name: str | None = None
    ) -> None:
        self.receivers: list[Listener] = []
        self.providing_args = set(providing_args or ())
        self.use_caching = use_caching
        self.name = name
        # Reentrant, because a weak reference may die, and a receiver with it, while the lock is held.
        self.lock = threading.RLock()

    @overload
    def connect(
        self, receiver: F, /, sender: Any = None, weak: bool = True, dispatch_uid: Any = None, retry: bool = False
    ) -> F: ...
    @overload
    def connect(
        self, sender: Any = None, weak: bool = True, dispatch_uid: Any = None, retry: bool = False
    ) -> Callable[[F], F]: ...
    def connect(self, *args: Any, **kwargs: Any) -> Any:
        """
        Call a receiver whenever the signal is sent. Also works as a decorator, with and without arguments.

        Args:
            receiver: A function that accepts any keyword.
            sender: Only receive signals of this sender; None for all.
            weak: Keep the receiver connected only while something else refers to it.
            dispatch_uid: Receivers with the same uid are connected once.
            retry: Call the receiver again, with growing pauses, until it succeeds. It is then held strongly.

        Raises:
            ValueError: The receiver does not accept arbitrary keywords.
        """

        def with_options(
            sender: Any = None, weak: bool = True, dispatch_uid: Any = None, retry: bool = False
        ) -> Callable[[Receiver], Receiver]:
            def decorate(receiver: Receiver) -> Receiver:
                self._connect(receiver, sender, weak, dispatch_uid, retry)
                return receiver

            return decorate

        if args and callable(args[0]):
            return with_options(*args[1:], **kwargs)(args[0])
        return with_options(*args, **kwargs)

    def _connect(self, receiver: Receiver, sender: Any, weak: bool, dispatch_uid: Any, retry: bool) -> None:
        if not retry:
            self._connect_signal(receiver, sender, weak, dispatch_uid)
            return
        uid = dispatch_uid or _make_id(receiver)
        again: Any = _until_it_succeeds(receiver, time.sleep)
        again._dispatch_uid = uid
        self._connect_signal(again, sender, False, uid)

    def _connect_signal(self, receiver: Receiver, sender: Any, weak: bool, dispatch_uid: Any) -> Receiver:
        if not callable(receiver):
            raise TypeError(f"{receiver!r} cannot be called; connect a function or a method")
        if not fun_accepts_kwargs(receiver):
            raise ValueError("Signal receiver must accept keyword arguments.")
        if issubclass(type(sender), PromiseProxy):
            # A task that has not been created yet: connect once it is.
            sender.__then__(lambda: self._connect_signal(receiver, sender._get_current_object(), weak, dispatch_uid))
            return receiver
        key = _make_key(receiver, sender, dispatch_uid)
        held = _weakly(receiver) if weak else receiver
        with self.lock:
            self._forget_the_dead()
            if all(known != key for known, _ in self.receivers):
                self.receivers.append((key, held))
        return receiver

    def disconnect(self, receiver: Any = None, sender: Any = None, weak: Any = None, dispatch_uid: Any = None) -> bool:
        """
        Disconnect a receiver.

        Returns:
            True if it was connected.
        """
        if weak is not None:
            from sidekiq_celery.utils import deprecated

            deprecated.warn("`weak` of Signal.disconnect", removal="6.0", alternative="It has no effect.")
        key = _make_key(receiver, sender, dispatch_uid)
        with self.lock:
            self._forget_the_dead()
            others = [listener for listener in self.receivers if listener[0] != key]
            was_connected = len(others) < len(self.receivers)
            self.receivers[:] = others
        return was_connected

    def has_listeners(self, sender: Any = None) -> bool:
        """True if any receiver is called for signals of *sender*."""
        return bool(self.receivers) and bool(self._live_receivers(sender))

    def send(self, sender: Any = None, **named: Any) -> list[tuple[Receiver, Any]]:
        """
        Call all receivers.

        Returns:
            Each receiver with its return value or exception.
        """
        if not self.receivers:
            return []
        responses: list[tuple[Receiver, Any]] = []
        for receiver in self._live_receivers(sender):
            try:
                response = receiver(signal=self, sender=sender, **named)
            except Exception as exc:
                logger.exception("Signal handler %r raised: %r", receiver, exc)
                response = exc
            responses.append((receiver, response))
        return responses

    send_robust = send

    def _forget_the_dead(self) -> None:
        self.receivers[:] = [
            listener
            for listener in self.receivers
            if not (isinstance(listener[1], weakref.ReferenceType) and listener[1]() is None)
        ]

    def _live_receivers(self, sender: Any) -> list[Receiver]:
        wanted = (_ANY_SENDER, _make_id(sender))
        with self.lock:
            self._forget_the_dead()
            held = [receiver for (_, of), receiver in self.receivers if of in wanted]
        found = (receiver() if isinstance(receiver, weakref.ReferenceType) else receiver for receiver in held)
        return [receiver for receiver in found if receiver is not None]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name} providing_args={self.providing_args!r}>"

    __str__ = __repr__
