"""The processes that share this Redis, Ruby's and Python's, and the jobs they run."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sidekiq_py.api.filters import JobFilter, must_be_filter
from sidekiq_py.api.job_record import JobRecord, moment
from sidekiq_py.api.source import SizedOfRedis
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import SidekiqError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.redis_access.processes.beats import BEAT_TTL_SECONDS
from sidekiq_py.redis_access.processes.process_set import Beat
from sidekiq_py.redis_access.reads import in_flight_counts
from sidekiq_py.wire.number_text import to_finite
from sidekiq_py.wire.process_info import ProcessInfo, parse_info
from sidekiq_py.wire.work import parse_work

# Two beats at the slower interval, and a margin. Both languages beat every ten seconds at most.
SILENT_SECONDS = 25


def seconds_since_beat(process: "Process", now: float) -> float:
    """
    Seconds since a process's last heartbeat, from what is left of its time to live, because the process's clock may be
    wrong. Only where Redis does not tell that, by the heartbeat's own time.
    """
    ttl_ms = process._beat.ttl_ms
    if ttl_ms is None or ttl_ms < 0:
        return now - process.beat_at.timestamp()
    return BEAT_TTL_SECONDS - ttl_ms / 1000


def is_silent(process: "Process", now: float) -> bool:
    """True if a process has missed two heartbeats: it died, hangs or has lost Redis."""
    return seconds_since_beat(process, now) > SILENT_SECONDS


class Process:
    """
    One process, as of its last heartbeat.

    Args:
        beat: The heartbeat.
        info: What it publishes about itself.
        pool: Connections to its Redis.

    Attributes:
        identity: `<hostname>:<pid>:<12 hex>`.
        hostname: The host it runs on.
        pid: Its process id on that host, or in its container.
        tag: The program's tag; may be empty.
        labels: Its labels; a Python process carries `sidekiq_py`.
        capsules: Its groups of queues and threads.
        version: Its Sidekiq release; None before Sidekiq 7.0.2.
        is_python: True for a sidekiq_py process.
        is_embedded: True if it is embedded in another program, so that it cannot be quieted or stopped from here.
    """

    def __init__(self, beat: Beat, info: ProcessInfo, pool: Pool) -> None:
        self._beat = beat
        self._info = info
        self._pool = pool
        self.identity = beat.identity
        self.hostname = info.hostname
        self.pid = info.pid
        self.tag = info.tag
        self.labels = info.labels
        self.capsules = info.capsules
        self.version = info.version
        self.is_python = info.is_python
        self.is_embedded = info.embedded

    def __repr__(self) -> str:
        state = " stopping" if self.is_stopping else ""
        return f"<Process {self.identity} busy={self.busy}/{self.concurrency}{state}>"

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues it fetches from."""
        return self._info.served_queues

    @property
    def started_at(self) -> datetime | None:
        """When it started."""
        return moment(self._info.started_at)

    @property
    def beat_at(self) -> datetime:
        """The time of its last heartbeat."""
        return moment(to_finite(self._beat.beat)) or datetime.fromtimestamp(0, UTC)

    @property
    def concurrency(self) -> int:
        """How many jobs it runs at a time. Up to Sidekiq 8.1.1 it is part of `info`, later a field of its own."""
        if self._beat.concurrency is not None:
            return int(to_finite(self._beat.concurrency))
        return self._info.concurrency or 0

    @property
    def busy(self) -> int:
        """How many jobs it was running at its last heartbeat."""
        return int(to_finite(self._beat.busy))

    @property
    def is_stopping(self) -> bool:
        """True if it has stopped fetching."""
        return self._beat.quiet == b"true"

    @property
    def rss_kb(self) -> int:
        """Its memory (RSS) in kilobytes."""
        return int(to_finite(self._beat.rss))

    @property
    def rtt_us(self) -> int:
        """The duration of its last measured round trip to Redis, in microseconds."""
        return int(to_finite(self._beat.rtt_us))

    @property
    def in_flight(self) -> int:
        """How many jobs it has fetched and not settled; 0 for Ruby processes, whose jobs are not stored in Redis."""
        counts = in_flight_counts.counts(self._pool)
        return sum(entry.count for entry in counts if entry.identity == self.identity)

    @property
    def is_leader(self) -> bool:
        """True if Sidekiq Enterprise has elected it leader."""
        return process_set.leader(self._pool) == self.identity

    def quiet(self) -> None:
        """
        Ask it to stop fetching. It reads the request at its next heartbeat.

        Raises:
            SidekiqError: It is embedded in another program.
        """
        self._refuse_embedded("quieted")
        self._signal("TSTP")

    def stop(self) -> None:
        """
        Ask it to finish its jobs and exit. It reads the request at its next heartbeat.

        Raises:
            SidekiqError: It is embedded in another program.
        """
        self._refuse_embedded("stopped")
        self._signal("TERM")

    def dump_threads(self) -> None:
        """Ask it to log what each of its threads is doing. It reads the request at its next heartbeat."""
        self._signal("TTIN")

    def _signal(self, name: str) -> None:
        process_set.signal(self._pool, self.identity, name)

    def _refuse_embedded(self, what: str) -> None:
        if self.is_embedded:
            raise SidekiqError(f"{self.identity} is embedded in another program; it cannot be {what} from outside")


class ProcessSet(SizedOfRedis):
    """
    All processes with a heartbeat within the last minute.

        for process in ProcessSet():
            process.quiet()

    Args:
        clean: Remove processes without a heartbeat for a minute from the registry, at most once a minute.
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __init__(self, clean: bool = True, *, pool: Any = None, client: Client | None = None) -> None:
        super().__init__(pool=pool, client=client)
        if clean:
            self.cleanup()

    def __iter__(self) -> Iterator[Process]:
        return iter(self._read(process_set.identities(self._pool)))

    def __getitem__(self, identity: str) -> Process:
        found = self.find(identity)
        if found is None:
            raise KeyError(identity)
        return found

    @property
    def size(self) -> int:
        """The number of registered processes; one that died within the last minute may be included."""
        return process_set.count(self._pool)

    @property
    def total_concurrency(self) -> int:
        """How many jobs all processes together can run at a time."""
        return sum(process.concurrency for process in self)

    @property
    def total_rss_kb(self) -> int:
        """The memory of all processes in kilobytes."""
        return sum(process.rss_kb for process in self)

    @property
    def leader(self) -> str:
        """The identity of the leader that Sidekiq Enterprise has elected; empty if there is none."""
        return process_set.leader(self._pool)

    def find(self, identity: str) -> Process | None:
        """The process with this identity; None if there is none."""
        return next(iter(self._read([identity])), None)

    def serving(self, queue: str) -> list[Process]:
        """The processes that fetch from this queue, without those that are quiet."""
        return [process for process in self if queue in process.queues and not process.is_stopping]

    def cleanup(self) -> int:
        """Remove processes without a heartbeat for a minute; returns how many. At most once a minute."""
        return process_set.prune(self._pool)

    def _read(self, identities: list[str]) -> list[Process]:
        return processes_of(process_set.beats(self._pool, identities), self._pool)


def processes_of(beats: Iterable[Beat], pool: Pool) -> list[Process]:
    """The processes whose heartbeats can be read."""
    return [Process(beat, info, pool) for beat in beats if (info := parse_info(beat.info)) is not None]


class Work:
    """
    A job that a thread is running.

    Args:
        process_id: The identity of its process.
        thread_id: Unique within the process.
        queue: The queue it was fetched from.
        run_at: When it started.
        payload: The payload's bytes.
    """

    def __init__(self, process_id: str, thread_id: str, *, queue: str, run_at: datetime | None, payload: bytes) -> None:
        self.process_id = process_id
        self.thread_id = thread_id
        self.queue = queue
        self.run_at = run_at
        self.payload = payload

    def __repr__(self) -> str:
        return f"<Work {self.job.display_class} jid={self.job.jid} at={self.process_id}/{self.thread_id}>"

    @cached_property
    def job(self) -> JobRecord:
        """The job that is running."""
        return JobRecord(self.payload, self.queue)

    @property
    def elapsed_seconds(self) -> float | None:
        """How long it has been running, by this machine's clock; None if the process does not report a start time."""
        return None if self.run_at is None else max(0.0, now_seconds() - self.run_at.timestamp())


class WorkSet(SizedOfRedis):
    """
    The jobs running now, as of each process's last heartbeat. A short job may never show up here.

        for process_id, thread_id, work in WorkSet():
            print(work.job.jid, work.run_at)

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __iter__(self) -> Iterator[tuple[str, str, Work]]:
        running = process_set.running(self._pool)
        return ((work.process_id, work.thread_id, work) for work in works_of(running))

    def find(self, wanted: JobFilter) -> list[Work]:
        """The running jobs that match, longest-running first. A job's time is when it started."""
        must_be_filter(wanted)
        return [
            work
            for _, _, work in self
            if wanted.fits(work.job, None if work.run_at is None else work.run_at.timestamp())
        ]

    @property
    def size(self) -> int:
        """The number of jobs that all processes reported as running."""
        return process_set.busy(self._pool)

    def find_work(self, jid: str) -> Work | None:
        """The running job with this id; None if none is known."""
        found = (work for work in _each_of(process_set.running(self._pool)) if work.job.jid == jid)
        return min(found, key=_start_of, default=None)


def works_of(running: Iterable[tuple[str, str, bytes]]) -> list[Work]:
    """The readable entries, longest-running first."""
    return sorted(_each_of(running), key=_start_of)


def _each_of(running: Iterable[tuple[str, str, bytes]]) -> Iterator[Work]:
    for identity, thread, raw in running:
        entry = parse_work(raw)
        if entry is not None:
            yield Work(identity, thread, queue=entry.queue, run_at=moment(entry.run_at), payload=entry.payload)


def _start_of(work: Work) -> datetime:
    return work.run_at or datetime.min.replace(tzinfo=UTC)
