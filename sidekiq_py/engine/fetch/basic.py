"""
The basic fetcher: BRPOP, as Ruby's own. From fetch to end a job exists only in this process, so a process that is
killed loses the jobs it was running.

It is meant for Redis servers that must not hold any key of ours. Failures, retries and counters are written as with the
reliable fetcher, but without the check that the job is still ours.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.config import CapsuleConfig
from sidekiq_py.engine import draws
from sidekiq_py.engine.downtime import Outage
from sidekiq_py.engine.fetch.deferred import Deferred
from sidekiq_py.engine.fetch.fetcher import note_fetched
from sidekiq_py.engine.fetch.served_queues import ServedQueues
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.errors import RedisError, RedisReplyError, ReplyLostError, rights_hint
from sidekiq_py.logs import counted, log
from sidekiq_py.outcome import Question
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import job_counts, settle_script
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.telemetry import Report
from sidekiq_py.wire import keys

_BLOCK_SECONDS = 2
_RETRY_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.05


class BasicFetcher:
    """Fetches one capsule's jobs, over one connection per processor."""

    def __init__(
        self,
        capsule: CapsuleConfig,
        pool: Pool,
        *,
        report: Report,
        room: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._pool = pool
        self._report = report
        self._is_strict = capsule.mode == "strict"
        self._queues = ServedQueues(capsule.weights, 0, room)
        self._stopping = threading.Event()
        self._has_room = threading.Event()
        self._local = threading.local()
        self._links: list[Link] = []
        self._leaving = 0
        self._leaving_lock = threading.Lock()
        # Fetched jobs that have to go back and that Redis has not accepted yet.
        self._returning: deque[UnitOfWork] = deque()
        self._return_lock = threading.Lock()
        self._closed = threading.Event()
        self._deferred = Deferred(self._closed.is_set)
        # Always at rest: each processor fetches for itself, for two seconds at a time, and none waits for another.
        self.pulse = Pulse()

    def start(self) -> None:
        """Nothing to start: each processor fetches for itself."""

    def take(self, before_waiting: Callable[[], None] | None = None) -> UnitOfWork | None:
        """
        See `Fetcher`. Every fetch may wait.

        Each processor reports an outage once, as Ruby's does. Source: Sidekiq 8.1.7, processor.rb,
        `handle_fetch_exception`.
        """
        if before_waiting is not None:
            before_waiting()
        outage = Outage(self._report, "Error fetching job")
        while not self._stopping.is_set():
            if self._leaving and self._may_leave():
                self._hang_up()
                return None
            try:
                unit = self._fetch()
            except RedisError as error:
                outage.failed(error)
                self._stopping.wait(_RETRY_SECONDS)
                continue
            try:
                outage.over()
                if unit is not None:
                    note_fetched((unit,))
                    return unit
            except BaseException:
                # The program's log may raise, or a handler of telemetry. Redis no longer has the job.
                if unit is not None:
                    self.requeue([unit])
                raise
        return None

    @property
    def reserved(self) -> list[UnitOfWork]:
        """See `Fetcher`."""
        return []

    @property
    def is_waiting_for_redis(self) -> bool:
        """See `Fetcher`."""
        return self._deferred.is_waiting_for_redis

    def acknowledge(self, unit: UnitOfWork, seconds: float) -> None:
        """Count the job. No key in Redis holds it any more."""
        self.settle(unit, (), job_counts.count_commands(now_seconds(), failed=False))

    def acknowledge_early(self, unit: UnitOfWork, *, hard_limit_seconds: float | None = None) -> bool:
        """Always True: the job has already left Redis."""
        return True

    def finish(
        self,
        unit: UnitOfWork,
        vital: Sequence[Effect],
        counters: Sequence[Effect],
        seconds: float,
        question: Question | None = None,
    ) -> None:
        """Write the commands at once."""
        self.settle(unit, vital, counters)

    def settle(self, unit: UnitOfWork, vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        """
        Write the job's end, and try again until it works: if its retry were not written, the job would be lost.

        Raises:
            RedisError: The reply was lost, so the commands may have been carried out, and they must not be repeated. Or
                the process is exiting.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                self._write(vital, counters)
                return True
            except RedisError as error:
                if isinstance(error, ReplyLostError):
                    if not _may_be_repeated(vital):
                        raise
                    # The counters may have been written already, and would count twice.
                    counters = ()
                if self._closed.is_set():
                    raise
                if error.is_lasting and self._deferred.add(partial(self._write, vital, counters), error):
                    stays = "the result of a job stays in this process until this error is fixed"
                    log.error("%s: %s%s", stays, error, rights_hint(error))
                    return True
                if pause == _FIRST_PAUSE_SECONDS:
                    log.warning("could not settle a job, trying again until it works: %s", error)
                self._closed.wait(pause)
                pause = min(2 * pause, _RETRY_SECONDS)

    def _write(self, vital: Sequence[Effect], counters: Sequence[Effect]) -> None:
        self._pool.run(lambda link: settle_script.write(link, vital, counters), idempotent=False)

    def requeue(self, units: Sequence[UnitOfWork]) -> None:
        """
        Put jobs back to the tail of their queues. The first of them will run first. Those that Redis does not accept
        now are kept.
        """
        with self._return_lock:
            self._returning.extend(units)
        try:
            self._return_all()
        except RedisError as error:
            if self._closed.is_set():
                self._lose(error)
                return
            log.warning("jobs could not be put back, trying again until it works: %s", error)
            self._deferred.add(self._return_all, error)

    def _return_all(self) -> None:
        """
        Put back all jobs that have to go back.

        Raises:
            RedisError: Redis did not accept all of them. The rest is kept.
        """
        with self._return_lock:
            while self._returning:
                unit = self._returning[-1]
                try:
                    self._pool.command("RPUSH", keys.queue(unit.queue), unit.raw, idempotent=False)
                except ReplyLostError as error:
                    log.error("a job was put back, but Redis did not confirm it; it may be lost: %s: %s", unit, error)
                self._returning.pop()

    def _lose(self, error: RedisError) -> None:
        with self._return_lock:
            if self._returning:
                lost = counted(len(self._returning), "job")
                log.error("lost %s, because the basic fetcher keeps no copy in Redis: %s", lost, error)
                self._returning.clear()

    def note_async(self, queue: str) -> None:
        """Record that *queue* brings `async def` jobs, so that it is skipped while the event loop is full."""
        self._queues.note_async(queue)

    def stop_serving(self, queue: str) -> None:
        """Stop fetching from *queue*. A job that is still on its way to a processor goes back."""
        self._queues.change({name: weight for name, weight in self._queues.weights if name != queue})

    def serve(self, weights: Mapping[str, int]) -> None:
        """Fetch from exactly these queues, in this order."""
        self._queues.change(weights)
        self._has_room.set()

    def awaits(self, queue: str) -> bool:
        """
        Always False: no copy of a job that has to go back exists elsewhere, so it goes back at once, although a BRPOP
        of this process may bring it again.
        """
        return False

    def release(self, processors: int) -> None:
        """Ask this many processors to exit."""
        with self._leaving_lock:
            self._leaving += processors

    def begin_quiet(self) -> None:
        """Stop fetching. A job that is still on its way to a processor goes back."""
        self._stopping.set()

    def quiet(self) -> None:
        """Stop fetching."""
        self.begin_quiet()
        self._has_room.set()

    def wake(self) -> None:
        """Tell the fetcher that the event loop has room again."""
        self._has_room.set()

    def close(self) -> None:
        """Close all connections."""
        self._closed.set()
        self._stopping.set()
        self._deferred.stop()
        self.requeue(())
        for link in list(self._links):
            link.close()

    def _may_leave(self) -> bool:
        with self._leaving_lock:
            may = self._leaving > 0
            self._leaving -= may
            return may

    def _fetch(self) -> UnitOfWork | None:
        link = self._link()
        open_queues = self._open_queues(link)
        if not open_queues:
            self._has_room.wait(_BLOCK_SECONDS)
            self._has_room.clear()
            return None
        found = link.command("BRPOP", *map(keys.queue, open_queues), _BLOCK_SECONDS)
        if found is None:
            return None
        queue = found[0].removeprefix(b"queue:").decode(errors="surrogateescape")
        unit = UnitOfWork(found[1], queue, None, b"", False, monotonic())
        # The job has left Redis. Nothing may raise from here on until the caller or `requeue` holds it.
        if queue in self._queues.unserved or self._stopping.is_set():
            self.requeue([unit])
            return None
        return unit

    def _open_queues(self, link: Link) -> list[str]:
        order = [name for name, weight in self._queues.with_room() for _ in range(max(weight, 1))]
        if not self._is_strict:
            order = draws.sample(order, len(order))
        paused = _paused(link)
        return [name for name in dict.fromkeys(order) if name not in paused]

    def _link(self) -> Link:
        link: Link | None = getattr(self._local, "link", None)
        if link is None:
            seconds = _BLOCK_SECONDS + self._pool.settings.socket_timeout_seconds
            link = self._local.link = self._pool.new_link(timeout_seconds=seconds)
            self._links.append(link)
        return link

    def _hang_up(self) -> None:
        """Close the connection of the calling thread, which exits."""
        link: Link | None = self._local.__dict__.pop("link", None)
        if link is not None:
            self._links.remove(link)
            link.close()


def _may_be_repeated(vital: Sequence[Effect]) -> bool:
    """True if all commands are ZADD, as for a retry or a dead job: a second ZADD changes nothing."""
    return bool(vital) and all(effect[0] == "ZADD" for effect in vital)


def _paused(link: Link) -> set[str]:
    """Return the names of the paused queues; none if the key is another program's."""
    try:
        names = link.command("SMEMBERS", keys.PAUSED)
    except RedisReplyError as error:
        if error.code != "WRONGTYPE":
            raise
        return set()
    # A name that is not valid UTF-8 is not ours and must not cause an error.
    return {name.decode(errors="replace") for name in names}
