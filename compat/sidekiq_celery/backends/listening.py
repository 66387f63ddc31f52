"""
One thread listens for results on behalf of everything in this process that waits for one.

1. A waiter registers keys (`Listener.watch`), and is called with every text that is published under one of them.
2. The thread subscribes. Once Redis has confirmed, it reads the keys, so that no earlier result is missed.
3. After a lost connection it subscribes again and reads all keys. It also reads them every few seconds in any case.
4. If Redis refuses SUBSCRIBE, it reads the keys twice a second.
5. When nothing has waited for a while, it closes its connection and exits.

A forked child starts without waiters and without a thread. With gevent, the fork copies the thread; the copy is idle.
"""

import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress

from sidekiq_celery.backends.many_keys import texts_of
from sidekiq_celery.utils.functional import chunks
from sidekiq_py.errors import RedisError, RedisReplyError
from sidekiq_py.extension import Link, Pool, RedisSettings

logger = logging.getLogger("celery.backends.redis")

Deliver = Callable[[bytes, bytes], None]
"""Called by the listener's thread with a key and the text stored there. It must not block."""

Waker = tuple[socket.socket, ...]
"""Both ends of what wakes a listener's thread; empty while there is none."""

LINGER_SECONDS = 5.0
REREAD_SECONDS = 10.0
_POLL_SECONDS = 0.5
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
# A proxy may cut a connection as soon as it is subscribed. One that is open for longer works, even if nothing came.
_LASTING_SECONDS = 0.5
# The most keys that one command names.
_SLICE = 500


class Listener:
    """
    Watches keys of one Redis.

    Args:
        pool: A pool without a namespace: keys are given as they are in Redis.
    """

    _waker: Waker = ()

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._thread: threading.Thread | None = None
        self._forget_threads()
        _listeners.add(self)

    @property
    def is_running(self) -> bool:
        """True while the listener has a thread, and so a connection."""
        return self._thread is not None

    def watch(self, keys: Iterable[bytes], deliver: Deliver) -> None:
        """Call *deliver* with each text that is, or will be, stored under *keys*. A text may be delivered twice."""
        with self._lock:
            if self._thread is None:
                self._start()
            for key in keys:
                self._waiting.setdefault(key, []).append(deliver)
                self._changed.add(key)
            self._wake()

    def watching(self, key: bytes) -> list[Deliver]:
        """Who watches *key*."""
        with self._lock:
            return list(self._waiting.get(key, ()))

    def unwatch(self, keys: Iterable[bytes], deliver: Deliver) -> None:
        """Stop calling *deliver*, except for a text that is being delivered already."""
        with self._lock:
            for key in keys:
                waiting = self._waiting.get(key, [])
                with suppress(ValueError):
                    waiting.remove(deliver)
                if not waiting:
                    self._waiting.pop(key, None)
                    self._changed.add(key)
            if self._thread is not None:
                self._wake()

    def _start(self) -> None:
        # Not a pipe: on Windows, nobody can wait for one and for a socket at the same time.
        self._waker = waker = socket.socketpair()
        for end in waker:
            end.setblocking(False)
        thread = threading.Thread(target=self._run, args=(waker,), name="sidekiq_celery.results", daemon=True)
        try:
            thread.start()
        except BaseException:
            # The system allows no more threads. The next waiter tries again.
            self._close_waker()
            raise
        self._thread = thread

    def _close_waker(self) -> None:
        for end in self._waker:
            end.close()
        self._waker = ()

    def _forget_threads(self) -> None:
        self._lock = threading.RLock()
        self._waiting: dict[bytes, list[Deliver]] = {}
        # The keys that have come or gone since the last look: with 10,000, no look may go through all.
        self._changed: set[bytes] = set()
        self._idle_since: float | None = None
        self._has_lasted = False
        self._thread = None

    def _after_fork(self) -> None:
        self._close_waker()
        self._forget_threads()

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            self._waker[1].send(b"w")

    # The methods below run in the thread, which is known by its waker.

    def _run(self, waker: Waker) -> None:
        pid = os.getpid()
        self._serve(waker)
        while os.getpid() != pid:
            # A copy: after the fork `threading` does not know it, and its end would fail.
            time.sleep(3600)

    def _serve(self, waker: Waker) -> None:
        serve = self._listen
        pause = _FIRST_PAUSE_SECONDS
        logged = ""
        while True:
            self._has_lasted = False
            problem = ""
            try:
                serve(waker)
                return
            except Exception as error:
                if self._waker is not waker:
                    # A fork in the meantime has closed the connections of this copy.
                    return
                if isinstance(error, RedisReplyError):
                    if not error.is_about_server:
                        problem = f"Polling for results, because Redis refuses a command: {error}"
                        serve = self._poll
                elif isinstance(error, RedisError):
                    problem = f"Lost the connection for results; connecting again: {error}"
                else:
                    logger.exception("The listener for results failed and is restarted")
            if self._has_lasted:
                pause, logged = _FIRST_PAUSE_SECONDS, ""
            if problem and problem != logged:
                # Not at each try: an outage may last for hours.
                logger.warning("%s", problem)
                logged = problem
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            if self._ends(waker):
                return

    def _listen(self, waker: Waker) -> None:
        """Listen until nothing has waited for a while."""
        link = self._pool.new_link()
        subscribed: set[bytes] = set()
        last_read = received_at = time.monotonic()
        is_confirmed = False
        try:
            link.connect()
            # A new connection has no subscriptions.
            with self._lock:
                self._changed.update(self._waiting)
            while not self._is_idle(waker):
                come, gone = self._take_changes()
                # The other keys are read once Redis has confirmed the subscription.
                self._read(come & subscribed)
                self._subscribe(link, subscribed, come - subscribed, gone & subscribed)
                now = time.monotonic()
                if now - last_read >= REREAD_SECONDS:
                    if now - received_at >= 2 * REREAD_SECONDS:
                        raise RedisError(f"nothing was heard for {now - received_at:.0f} seconds")
                    link.send(link.pack([("PING",)]))
                    self._read(self._wanted())
                    last_read = now
                if self._sleep(link, waker):
                    self._receive(link)
                    received_at = time.monotonic()
                    is_confirmed = True
                elif is_confirmed and time.monotonic() - received_at >= _LASTING_SECONDS:
                    self._has_lasted = True
        finally:
            link.close()

    def _poll(self, waker: Waker) -> None:
        while not self._is_idle(waker):
            self._take_changes()
            self._read(self._wanted())
            self._has_lasted = True
            time.sleep(_POLL_SECONDS)

    def _is_idle(self, waker: Waker) -> bool:
        """True if nothing has waited for a while. The thread is then marked as gone and has to exit."""
        with self._lock:
            if self._waker is not waker:
                return True
            if self._waiting:
                self._idle_since = None
                return False
            now = time.monotonic()
            self._idle_since = self._idle_since or now
            return now - self._idle_since >= LINGER_SECONDS and self._ends(waker)

    def _wanted(self) -> list[bytes]:
        """Return all watched keys."""
        with self._lock:
            return list(self._waiting)

    def _take_changes(self) -> tuple[set[bytes], set[bytes]]:
        """Return the keys for which someone has begun to wait since the last call, and those for which no one does."""
        with self._lock:
            changed, self._changed = self._changed, set()
            come = {key for key in changed if key in self._waiting}
        return come, changed - come

    def _ends(self, waker: Waker) -> bool:
        """True if nothing waits. The thread is then marked as gone, and the next waiter starts a new one."""
        with self._lock:
            if self._waker is not waker:
                return True
            if self._waiting:
                return False
            self._close_waker()
            self._thread = None
            self._idle_since = None
            return True

    def _subscribe(self, link: Link, subscribed: set[bytes], come: set[bytes], gone: set[bytes]) -> None:
        for verb, changed in (("SUBSCRIBE", come), ("UNSUBSCRIBE", gone)):
            for keys in chunks(iter(changed), _SLICE):
                link.send(link.pack([(verb, *keys)]))
        subscribed |= come
        subscribed -= gone

    def _sleep(self, link: Link, waker: Waker) -> bool:
        """Wait for data or a wake-up. Returns True if there is data to read."""
        if link.has_unread:
            return True
        has_data = link.wait_readable(1.0, waker[0].fileno())
        # A fork in the meantime has closed it in the child. What can be read there is for the parent.
        with suppress(OSError):
            waker[0].recv(4096)
        return has_data and self._waker is waker

    def _receive(self, link: Link) -> None:
        confirmed: list[bytes] = []
        while True:
            reply = link.receive()
            if isinstance(reply, list) and reply[0] == b"subscribe":
                confirmed.append(reply[1])
            else:
                # A proxy may confirm a subscription and then cut the connection, again and again.
                self._has_lasted = True
                if isinstance(reply, list) and reply[0] == b"message":
                    self._deliver(reply[1], reply[2])
            if not link.has_unread and not link.wait_readable(0):
                break
        self._read(confirmed)

    def _read(self, wanted: Iterable[bytes]) -> None:
        keys = list(wanted)
        for key, text in zip(keys, texts_of(self._pool, keys), strict=True):
            if text is not None:
                self._deliver(key, text)

    def _deliver(self, key: bytes, text: bytes) -> None:
        with self._lock:
            waiting = tuple(self._waiting.get(key, ()))
        for deliver in waiting:
            try:
                deliver(key, text)
            except Exception:
                logger.exception("Could not deliver the result under %r", key)


_listeners: "weakref.WeakSet[Listener]" = weakref.WeakSet()
_by_place: dict[RedisSettings, Listener] = {}
_by_place_lock = threading.Lock()


def listener_for(pool: Pool) -> Listener:
    """Return this process's listener for the Redis that *pool* connects to."""
    with _by_place_lock:
        listener = _by_place.get(pool.settings)
        if listener is None:
            listener = _by_place[pool.settings] = Listener(pool)
        return listener


def _start_afresh() -> None:
    global _by_place_lock
    _by_place_lock = threading.Lock()
    for listener in list(_listeners):
        listener._after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_start_afresh)
