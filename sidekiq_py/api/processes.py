"""The processes that work on this Redis, Ruby's and Python's, and what they run."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sidekiq_py.api.filters import JobFilter
from sidekiq_py.api.job_record import JobRecord, moment
from sidekiq_py.api.source import OfRedis, pool_for
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import SidekiqError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.redis_access.processes.process_set import Beat
from sidekiq_py.redis_access.reads import in_flight_counts
from sidekiq_py.wire.process_info import CapsuleFacts, ProcessInfo, parse_info
from sidekiq_py.wire.work import parse_work


class Process:
    """
    One process, as of its last heartbeat.

    Args:
        beat: The heartbeat.
        info: What it says of itself.
        pool: To the Redis that it works on.
    """

    def __init__(self, beat: Beat, info: ProcessInfo, pool: Pool) -> None:
        self._beat = beat
        self._info = info
        self._pool = pool

    def __repr__(self) -> str:
        state = " stopping" if self.is_stopping else ""
        return f"<Process {self.identity} busy={self.busy}/{self.concurrency}{state}>"

    @property
    def identity(self) -> str:
        """`<hostname>:<pid>:<12 hex>`."""
        return self._beat.identity

    @property
    def hostname(self) -> str:
        """Where it runs."""
        return self._info.hostname

    @property
    def pid(self) -> int | None:
        """Its id on that machine, or in its container."""
        return self._info.pid

    @property
    def tag(self) -> str:
        """The program's name for itself; may be empty."""
        return self._info.tag

    @property
    def labels(self) -> tuple[str, ...]:
        """Badges; a Python process bears `sidekiq_py`."""
        return self._info.labels

    @property
    def queues(self) -> tuple[str, ...]:
        """What it fetches from."""
        return self._info.queues or tuple(dict.fromkeys(name for c in self._info.capsules for name in c.weights))

    @property
    def capsules(self) -> tuple[CapsuleFacts, ...]:
        """Its groups of queues and threads."""
        return self._info.capsules

    @property
    def version(self) -> str | None:
        """Its release; None before Sidekiq 7.0.2."""
        return self._info.version

    @property
    def is_python(self) -> bool:
        """Whether it is one of ours."""
        return self._info.is_python

    @property
    def is_embedded(self) -> bool:
        """Whether it lives inside another program, and so cannot be quieted or stopped from here."""
        return self._info.embedded

    @property
    def started_at(self) -> datetime | None:
        """When it started."""
        started = self._info.started_at
        return None if started is None else datetime.fromtimestamp(started, UTC)

    @property
    def beat_at(self) -> datetime:
        """When it was heard last."""
        return datetime.fromtimestamp(_number(self._beat.beat), UTC)

    @property
    def concurrency(self) -> int:
        """How many jobs it runs at a time; up to Sidekiq 8.1.1 it says so in `info`, later in a field of its own."""
        if self._beat.concurrency is not None:
            return int(_number(self._beat.concurrency))
        return self._info.concurrency or 0

    @property
    def busy(self) -> int:
        """How many jobs it was running."""
        return int(_number(self._beat.busy))

    @property
    def is_stopping(self) -> bool:
        """Whether it takes no more jobs."""
        return self._beat.quiet == b"true"

    @property
    def rss_kb(self) -> int:
        """Its memory."""
        return int(_number(self._beat.rss))

    @property
    def rtt_us(self) -> int:
        """How long a round trip to Redis took it, microseconds."""
        return int(_number(self._beat.rtt_us))

    @property
    def in_flight(self) -> int:
        """How many jobs it has taken and not settled; 0 for Ruby processes, whose jobs are nowhere in Redis."""
        counts = in_flight_counts.counts(self._pool)
        return sum(entry.count for entry in counts if entry.identity == self.identity)

    @property
    def is_leader(self) -> bool:
        """Whether Sidekiq Enterprise has elected it."""
        return process_set.leader(self._pool) == self.identity

    def quiet(self) -> None:
        """
        Let it take no more jobs. It hears of it at its next heartbeat.

        Raises:
            SidekiqError: It is embedded in another program.
        """
        self._refuse_embedded("quieted")
        self._signal("TSTP")

    def stop(self) -> None:
        """
        Let it finish its jobs and leave. It hears of it at its next heartbeat.

        Raises:
            SidekiqError: It is embedded in another program.
        """
        self._refuse_embedded("stopped")
        self._signal("TERM")

    def dump_threads(self) -> None:
        """Let it write to its log what each of its threads does. It hears of it at its next heartbeat."""
        self._signal("TTIN")

    def _signal(self, name: str) -> None:
        process_set.signal(self._pool, self.identity, name)

    def _refuse_embedded(self, what: str) -> None:
        if self.is_embedded:
            raise SidekiqError(f"{self.identity} is embedded in another program; it cannot be {what} from outside")


class ProcessSet:
    """
    All processes that were heard within the last minute.

        for process in ProcessSet():
            process.quiet()

    Args:
        clean: Take processes that were not heard for a minute out of the registry, at most once a minute.
        pool: Whose Redis: a `Pool`, a redis-py client, or a URL. Without it and *client*, the program's.
        client: Instead of *pool*.
    """

    def __init__(self, clean: bool = True, *, pool: Any = None, client: Client | None = None) -> None:
        self._pool = pool_for(pool, client)
        if clean:
            self.cleanup()

    def __repr__(self) -> str:
        return "<ProcessSet>"

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Process]:
        return iter(self._read(process_set.identities(self._pool)))

    def __getitem__(self, identity: str) -> Process:
        found = self.find(identity)
        if found is None:
            raise KeyError(identity)
        return found

    @property
    def size(self) -> int:
        """How many are registered; one that died within the last minute may be among them."""
        return process_set.count(self._pool)

    @property
    def total_concurrency(self) -> int:
        """How many jobs all of them can run at a time."""
        return sum(process.concurrency for process in self)

    @property
    def total_rss_kb(self) -> int:
        """The memory of all."""
        return sum(process.rss_kb for process in self)

    @property
    def leader(self) -> str:
        """The identity of the one that Sidekiq Enterprise has elected; empty without one."""
        return process_set.leader(self._pool)

    def find(self, identity: str) -> Process | None:
        """The process with this identity."""
        return next(iter(self._read([identity])), None)

    def serving(self, queue: str) -> list[Process]:
        """The processes that fetch from this queue, those that are quiet left out."""
        return [process for process in self if queue in process.queues and not process.is_stopping]

    def cleanup(self) -> int:
        """Take processes that were not heard for a minute out of the registry; how many. At most once a minute."""
        return process_set.prune(self._pool)

    def _read(self, identities: list[str]) -> list[Process]:
        return processes_of(process_set.beats(self._pool, identities), self._pool)


def processes_of(beats: Iterable[Beat], pool: Pool) -> list[Process]:
    """The processes whose heartbeats can be read."""
    return [Process(beat, info, pool) for beat in beats if (info := parse_info(beat.info)) is not None]


class Work:
    """
    A job that a thread runs.

    Args:
        process_id: The identity of its process.
        thread_id: Unique within the process.
        queue: Where it was fetched.
        run_at: When it started.
        payload: Its bytes.
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
        """The job."""
        return JobRecord(self.payload, self.queue)

    @property
    def elapsed_seconds(self) -> float | None:
        """How long it has been running, by this machine's clock; None where the process does not say."""
        return None if self.run_at is None else max(0.0, now_seconds() - self.run_at.timestamp())


class WorkSet(OfRedis):
    """
    What runs now, as of each process's last heartbeat; a short job may never be seen here.

        for process_id, thread_id, work in WorkSet():
            print(work.job.jid, work.run_at)

    Args:
        pool: Whose Redis: a `Pool`, a redis-py client, or a URL. Without it and *client*, the program's.
        client: Instead of *pool*.
    """

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[tuple[str, str, Work]]:
        running = process_set.running(self._pool, process_set.identities(self._pool))
        return ((work.process_id, work.thread_id, work) for work in works_of(running))

    def find(self, wanted: JobFilter) -> list[Work]:
        """What runs and fits, the longest first. A job's time is when it started."""
        return [
            work
            for _, _, work in self
            if wanted.fits(work.job, None if work.run_at is None else work.run_at.timestamp())
        ]

    @property
    def size(self) -> int:
        """How many jobs all processes said they were running."""
        return process_set.busy(self._pool, process_set.identities(self._pool))

    def find_work(self, jid: str) -> Work | None:
        """What runs the job with this id."""
        return next((work for _, _, work in self if work.job.jid == jid), None)


def works_of(running: Iterable[tuple[str, str, bytes]]) -> list[Work]:
    """The entries that can be read, the longest running first."""
    found = []
    for identity, thread, raw in running:
        entry = parse_work(raw)
        if entry is not None:
            run_at = moment(entry.run_at)
            found.append(Work(identity, thread, queue=entry.queue, run_at=run_at, payload=entry.payload))
    return sorted(found, key=lambda work: work.run_at or datetime.min.replace(tzinfo=UTC))


def _number(text: bytes | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
