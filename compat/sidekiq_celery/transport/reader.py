"""
A thread that fetches jobs for a channel.

1. It fetches only on demand: when the consumer waits, and up to what is left of the prefetch count.
2. When there is nothing to fetch, it waits on all queues at once.
3. Fetched jobs are ready for the consumer, whose event loop sees a pipe become readable: one byte per job.

If a blocking move brings a job after the consumer has lost interest, the job is requeued. When Redis is down, the
thread retries until it is back, and the consumer keeps waiting.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from sidekiq_celery.transport.bell import Bell
from sidekiq_py.consumer import ConsumerSession, UnitOfWork, Waiters
from sidekiq_py.errors import RedisError
from sidekiq_py.extension import monotonic

_log = logging.getLogger("sidekiq")

_RETRY_SECONDS = 0.5
_STOP_SECONDS = 1.0
# How soon to notice that a queue is no longer paused, or its key a list again.
_PAUSED_SECONDS = 0.5
_ALL = 4096


class Reader:
    """
    Starts with the first call of `ask`. Stopping twice, or before the start, is fine.

    Args:
        room: Returns how many more jobs the consumer can take. Jobs that are ready count against it.
    """

    def __init__(self, session: ConsumerSession, room: Callable[[], int]) -> None:
        self._session = session
        self._room = room
        self._queues: Sequence[tuple[str, int]] = ()
        self._are_new = False
        self._paused: list[str] = []
        self._waiters: Waiters | None = None
        self._jobs: deque[UnitOfWork] = deque()
        self._is_asked = False
        self._is_stopped = False
        self._is_offline = False
        self._ready, self._call = Bell(), Bell()
        self._thread: threading.Thread | None = None

    # ---- for the consumer

    @property
    def ready_fd(self) -> int:
        """A descriptor that is readable while a job is ready."""
        return self._ready.fd

    def serve(self, queues: Sequence[tuple[str, int]]) -> None:
        """Fetch from these queues, in order of precedence, each with its weight. All weights 0 means strict order."""
        if list(queues) != list(self._queues):
            self._queues = queues
            self._are_new = True
            self.wake()

    def ask(self) -> None:
        """Called when the consumer waits for a job."""
        if not self._is_asked:
            self._is_asked = True
            self.wake()
        if self._thread is None and self._queues and not self._is_stopped:
            self._session.begin_consuming()
            self._thread = threading.Thread(target=self._run, name="sidekiq.transport/reader", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Called when there may be room again."""
        self._call.ring()

    def take(self) -> UnitOfWork | None:
        """Return the next ready job, or None."""
        self._ready.take_back(1)
        try:
            unit = self._jobs.popleft()
        except IndexError:
            return None
        # One job at a time unless a prefetch count allows more: the consumer may be about to leave.
        self._is_asked = False
        return unit

    def stop(self) -> None:
        """Stop fetching, and requeue the ready jobs."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.wake()
        if self._thread is not None:
            self._thread.join(timeout=self._session.pool.settings.socket_timeout_seconds + _STOP_SECONDS)
            self._session.end_consuming()
        self._session.give_back(self._drained())
        self._close_bells()

    def forget(self) -> None:
        """In a forked child: drop what belongs to the parent without touching it."""
        self._is_stopped = True
        self._thread = None
        self._close_bells()

    def _close_bells(self) -> None:
        # A thread that hangs along with Redis still waits for a bell. It ends with the process.
        if self._thread is None or not self._thread.is_alive():
            self._ready.close()
            self._call.close()

    # ---- the thread

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                self._turn()
                self._note_online()
            except RedisError as error:
                self._note_offline(error)
                self._pause(_RETRY_SECONDS)
            except Exception:  # noqa: BLE001 - without this thread the consumer would wait forever
                _log.exception("the transport could not fetch, trying again")
                self._pause(_RETRY_SECONDS)
        if self._waiters is not None:
            self._waiters.close()

    def _turn(self) -> None:
        room = self._free()
        if room > 0:
            self._fetch(room)
        elif self._waiters is not None and self._waiters.any_open:
            # No one wants a job any more, but Redis may be serving one right now.
            units, was_woken = self._waiters.collect(self._call.fd, None)
            self._lay_out(units, was_woken)
        else:
            self._pause(None)

    def _fetch(self, room: int) -> None:
        queues = self._queues
        if self._are_new:
            self._change_queues(queues)
        units, self._paused = self._session.fetch(queues, room)
        if units:
            self._lay_out(units, False)
            return
        waiters = self._waiters
        assert waiters is not None
        waiters.open(self._paused)
        units, was_woken = waiters.collect(self._call.fd, self._patience(waiters))
        self._lay_out(units, was_woken)

    def _change_queues(self, queues: Sequence[tuple[str, int]]) -> None:
        self._are_new = False
        if self._waiters is not None:
            # A job that an open move still brings stays in an inbox, which the housekeeper empties.
            self._waiters.close()
        session = self._session
        names = [name for name, _ in queues]
        self._waiters = Waiters(
            session.pool,
            session.ownership_for(names),
            names[: session.config.idle_waiters],
            session.config.idle_poll_seconds,
            on_notices=session.notices.note,
        )

    def _patience(self, waiters: Waiters) -> float | None:
        """The seconds until the next fetch is due. None: wait until something arrives."""
        config = self._session.config
        if len(self._queues) > config.idle_waiters:
            return config.idle_poll_seconds
        seconds = _PAUSED_SECONDS if self._paused else None
        if waiters.cool_until:
            seconds = min(seconds or 1.0, max(0.001, waiters.cool_until - monotonic()))
        return seconds

    def _lay_out(self, units: list[UnitOfWork], was_woken: bool) -> None:
        if was_woken:
            self._call.take_back(_ALL)
        room = self._free()
        for unit in units[:room]:
            self._jobs.append(unit)
            self._ready.ring()
        if units[room:]:
            self._session.give_back(units[room:])

    def _free(self) -> int:
        if not self._is_asked or self._is_stopped or not self._queues:
            return 0
        return max(0, self._room() - len(self._jobs))

    def _pause(self, seconds: float | None) -> None:
        self._call.wait(seconds)
        self._call.take_back(_ALL)

    def _drained(self) -> list[UnitOfWork]:
        units = list(self._jobs)
        self._jobs.clear()
        return units

    def _note_offline(self, error: RedisError) -> None:
        if not self._is_offline:
            self._is_offline = True
            _log.warning("no jobs can be fetched, trying again until Redis is back: %s", error)

    def _note_online(self) -> None:
        if self._is_offline:
            self._is_offline = False
            _log.info("jobs are fetched again")
