"""
Sends this process's events to Redis in the background.

Code that has an event puts it in and goes on. A thread, started with the first event, waits a moment for more and sends
them together: task events in lists, as Celery's workers do, and all messages in one round trip. Events that Redis does
not take in time are dropped and counted: they are news, not a record.
"""

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from sidekiq_celery._config.broker import redis_settings
from sidekiq_celery.contract import App
from sidekiq_celery.events.wire import channels, message
from sidekiq_py.errors import RedisConnectionError
from sidekiq_py.extension import Pool, monotonic

logger = logging.getLogger("celery.events")

MOST_EVENTS = 20_000
"""How many events may wait."""
_MOST_IN_A_LIST = 100
_MOST_AT_ONCE = 2_000
_ENOUGH = 1_000
"""With this many waiting, the thread does not wait for more."""
_BATCHING_SECONDS = 0.05
_PAUSE_SECONDS = 1.0
_LOG_EVERY_SECONDS = 60.0
_CLOSE_SECONDS = 2.0
_RECEIPT = "receipt"
"""Stands in for a routing key. It marks no event, but a caller that waits until all events before it are sent."""


class Letter(NamedTuple):
    """
    An event that waits to be sent.

    Args:
        is_listed: True if it may be sent in a list with others.
    """

    event: Any
    routing_key: str
    hostname: str
    serializer: str
    is_listed: bool


class Outbox:
    """
    Sends the events of one process. Safe to use from threads and across forks.

    Args:
        app: The app whose broker receives the events.

    Attributes:
        dropped: How many events were not sent.
    """

    def __init__(self, app: App) -> None:
        self._app = ref(app)
        self._exchange: str = app.conf.event_exchange
        self.dropped = 0
        self._logged = 0
        self._logged_at = -_LOG_EVERY_SECONDS
        self._is_refused = False
        self._last_error: Exception | None = None
        self._starting = threading.Lock()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._letters: deque[Letter] = deque()
        self._lock = threading.Lock()
        self._is_wanted = threading.Event()
        self._is_urgent = threading.Event()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._pool: Pool | None = None
        self._channel: Callable[[str], str] = str
        # Last: other threads then use what is here.
        self._pid = os.getpid()

    # ---- putting in

    def put(self, event: dict[str, Any], hostname: str, serializer: str) -> None:
        """Send a task event in a list with others."""
        self._add(Letter(event, "task.multi", hostname, serializer, True))

    def publish(self, event: Any, *, routing_key: str, serializer: str, headers: dict[str, Any], **_: Any) -> None:
        """Send an event or a list of them. Takes the arguments of kombu's producer."""
        self._add(Letter(event, routing_key, headers["hostname"], serializer, False))

    def publish_now(self, event: dict[str, Any], hostname: str, serializer: str) -> int:
        """
        Send an event and wait until it is sent. Does not raise.

        Returns:
            The number of listeners; also 0 if Redis cannot be reached.
        """
        routing_key = event["type"].replace("-", ".")
        try:
            pool = self._pool or self._connect()
            text = message(event, serializer, hostname, self._exchange, routing_key)
            return int(pool.command("PUBLISH", self._channel(routing_key), text, idempotent=False))
        except Exception as error:  # noqa: BLE001 - an event must never end a program
            self._drop(1, error)
            return 0

    def send_before(self, seconds: float) -> None:
        """Wait until all waiting events are sent, at most *seconds*. Returns at once if too many are waiting."""
        if len(self._letters) >= MOST_EVENTS:
            return
        is_sent = threading.Event()
        self._add(Letter(is_sent, _RECEIPT, "", "", False))
        self._is_urgent.set()
        is_sent.wait(seconds)

    def _add(self, letter: Letter) -> None:
        if self._pid != os.getpid():
            with self._starting:
                if self._pid != os.getpid():
                    self._start_afresh()
        if len(self._letters) >= MOST_EVENTS or self._is_closing.is_set():
            self.dropped += 1
            return
        self._letters.append(letter)
        if not self._is_wanted.is_set():
            self._is_wanted.set()
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="sidekiq_celery.events", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # The system allows no more threads. The next event tries again and takes this one along.
                    self._is_wanted.clear()
                else:
                    self._thread = thread

    def close(self) -> None:
        """Send the waiting events, for a few seconds at most, as the process is ending. Later events are dropped."""
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            self._is_closing.set()
            self._is_urgent.set()
            self._is_wanted.set()
            thread.join(_CLOSE_SECONDS)

    # ---- the thread

    def _run(self) -> None:
        while not self._is_closing.is_set():
            self._is_wanted.wait()
            if len(self._letters) < _ENOUGH:
                self._is_urgent.wait(_BATCHING_SECONDS)
            self._is_urgent.clear()
            self._is_wanted.clear()
            if not self._send_all():
                self._is_closing.wait(_PAUSE_SECONDS)
                self._is_wanted.set()
            self._log_losses()
        # The program may have put an event in and closed the outbox since the last pass.
        self._send_all()
        if self._pool is not None:
            self._pool.close()

    def _send_all(self) -> bool:
        """Send all waiting events. Returns False if Redis cannot be reached; they then stay here."""
        while self._letters:
            taken = [self._letters.popleft() for _ in range(min(len(self._letters), _MOST_AT_ONCE))]
            try:
                self._send([letter for letter in taken if letter.routing_key != _RECEIPT])
            except RedisConnectionError as error:
                self._last_error = error
                self._letters.extendleft(reversed(taken))
                return False
            except Exception as error:  # noqa: BLE001 - an event must never end a program
                self._drop(len(taken), error)
            for letter in taken:
                if letter.routing_key == _RECEIPT:
                    letter.event.set()
        return True

    def _send(self, letters: Sequence[Letter]) -> None:
        pool = self._pool or self._connect()
        commands = []
        for first, events in _lists(letters):
            try:
                text = message(events, first.serializer, first.hostname, self._exchange, first.routing_key)
            except Exception as error:  # noqa: BLE001 - a value may raise anything; send the others
                self._drop(1, error)
                continue
            commands.append(("PUBLISH", self._channel(first.routing_key), text))
        if commands:
            pool.batch(commands, idempotent=False)

    def _connect(self) -> Pool:
        app = self._app()
        if app is None:
            raise ReferenceError("the app of these events is gone")
        # Channel names are complete, so they must not get a namespace.
        pool = Pool(replace(redis_settings(app), namespace="", pool_size=1))
        self._channel = channels(app, pool.settings.url)
        self._pool = pool
        return pool

    # ---- losses

    def _drop(self, count: int, error: Exception) -> None:
        self.dropped += count
        self._last_error = error
        if getattr(error, "code", None) == "NOPERM" and not self._is_refused:
            self._is_refused = True
            logger.warning(
                "this Redis user may not publish events, so monitors see none: allow it +publish and the channels "
                "'&*.%s/*', or turn events off (%s)",
                self._exchange,
                error,
            )

    def _log_losses(self) -> None:
        if self.dropped == self._logged or self._is_refused or monotonic() < self._logged_at + _LOG_EVERY_SECONDS:
            return
        why = "they came faster than they could be sent" if self._last_error is None else self._last_error
        logger.warning("%d events were not sent: %s", self.dropped - self._logged, why)
        self._logged, self._logged_at = self.dropped, monotonic()


def _lists(letters: Sequence[Letter]) -> Iterator[tuple[Letter, Any]]:
    """Group events by message: a single event, or a list of events that are sent together."""
    together: list[Any] = []
    first: Letter | None = None
    for letter in letters:
        fits = first is not None and letter.is_listed and letter[2:] == first[2:] and len(together) < _MOST_IN_A_LIST
        if first is not None and not fits:
            yield first, together
            first, together = None, []
        if not letter.is_listed:
            yield letter, letter.event
        else:
            first = first or letter
            together.append(letter.event)
    if first is not None:
        yield first, together


_outboxes: "WeakKeyDictionary[App, Outbox]" = WeakKeyDictionary()


def outbox_of(app: App) -> Outbox:
    """Return this process's outbox of *app*."""
    found = _outboxes.get(app)
    if found is None:
        found = _outboxes.setdefault(app, Outbox(app))
    return found


@atexit.register
def close_all() -> None:
    """Close all outboxes, as the process is ending."""
    for outbox in list(_outboxes.values()):
        outbox.close()
