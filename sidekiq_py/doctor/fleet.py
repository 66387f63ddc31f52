"""The live processes on this Redis: language, release, queues, clock, and the classes they say they can run."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sidekiq_py.logs import counted
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.redis_access.processes import declared_classes, process_set
from sidekiq_py.redis_access.processes.beats import BEAT_TTL_SECONDS
from sidekiq_py.redis_access.reads import survey
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.process_info import ProcessInfo, parse_info

_PAGE = 500


class Worker(NamedTuple):
    """
    One process with a heartbeat.

    Args:
        info: What it publishes about itself.
        is_quiet: True if it has stopped fetching.
        beat_age_seconds: The age of its last heartbeat, by Redis's clock; None if unknown.
        ahead_seconds: How far its clock is ahead of Redis's; None if unknown.
        classes: The classes that it says it can run; None if it does not say, as with Ruby's processes.
    """

    identity: str
    info: ProcessInfo
    is_quiet: bool
    beat_age_seconds: float | None
    ahead_seconds: float | None
    classes: frozenset[str] | None

    @property
    def is_python(self) -> bool:
        """True for a sidekiq_py process."""
        return self.info.is_python

    @property
    def dialect(self) -> Dialect:
        """The format it writes; for a Python process, that of the release it writes for."""
        return Dialect.detect([self.info.version])

    @property
    def release(self) -> str:
        """Its Sidekiq release, or the one that it writes for, as text."""
        return self.info.version or "before 7.0.2"

    @property
    def title(self) -> str:
        """Identity and language, for a sentence."""
        if self.is_python:
            return f"{self.identity} (Python, writes for Sidekiq {self.release})"
        return f"{self.identity} (Sidekiq {self.release})"

    @property
    def queues(self) -> frozenset[str]:
        """The queues it fetches from."""
        return frozenset(self.info.served_queues)


@dataclass(frozen=True, slots=True)
class Fleet:
    """
    All registered processes.

    Args:
        workers: The processes with a heartbeat.
        silent: The identities without one: processes that have ended and are not cleared away yet.
    """

    workers: tuple[Worker, ...]
    silent: tuple[str, ...]
    _by_queue: dict[str, list[Worker]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for worker in self.workers:
            for queue in worker.queues:
                self._by_queue.setdefault(queue, []).append(worker)

    @property
    def ruby(self) -> list[Worker]:
        """The Ruby processes."""
        return [worker for worker in self.workers if not worker.is_python]

    @property
    def python(self) -> list[Worker]:
        """The Python processes."""
        return [worker for worker in self.workers if worker.is_python]

    def on(self, queue: str) -> list[Worker]:
        """The processes that fetch from a queue."""
        return [worker for worker in self._by_queue.get(queue, ()) if not worker.is_quiet]

    def leaving(self, queue: str) -> list[Worker]:
        """The quiet processes of a queue: they take no more jobs from it."""
        return [worker for worker in self._by_queue.get(queue, ()) if worker.is_quiet]

    @property
    def queues(self) -> frozenset[str]:
        """All queues that some process fetches from, or did until it was quieted."""
        return frozenset(self._by_queue)


def gather(pool: Pool) -> Fleet:
    """
    Read the registry of processes.

    Raises:
        RedisError: Redis did not answer, or does not let this user read.
    """
    identities = process_set.identities(pool)
    kinds = survey.kinds(pool, identities)
    whole = [name for name in identities if kinds[name] == "hash"]
    beats = {beat.identity: beat for page in slices_of(whole, _PAGE) for beat in process_set.beats(pool, page)}
    times = survey.beat_times(pool, list(beats), BEAT_TTL_SECONDS)
    infos = {name: parse_info(beat.info) for name, beat in beats.items()}
    ours = [name for name, info in infos.items() if info is not None and info.is_python]
    kinds |= survey.kinds(pool, [keys.declared(name) for name in ours])
    declaring = [name for name in ours if kinds[keys.declared(name)] == "string"]
    classes = declared_classes.read(pool, declaring)
    workers = tuple(
        _worker(beats[name], info, times.get(name), classes.get(name))
        for name, info in infos.items()
        if info is not None
    )
    return Fleet(workers, tuple(name for name in identities if name not in beats))


def releases(workers: Iterable[Worker]) -> str:
    """The releases and how many processes run each: `7.3.2 (2 processes), 8.1.7 (1 process)`."""
    found = Counter(worker.release for worker in sorted(workers, key=lambda worker: worker.dialect.version))
    return ", ".join(f"{release} ({counted(number, 'process', 'processes')})" for release, number in found.items())


def _worker(
    beat: process_set.Beat, info: ProcessInfo, time: survey.BeatTime | None, classes: frozenset[str] | None
) -> Worker:
    return Worker(
        identity=beat.identity,
        info=info,
        is_quiet=beat.quiet == b"true",
        beat_age_seconds=None if time is None else time.age,
        ahead_seconds=None if time is None or time.said is None else time.said - time.written,
        classes=classes,
    )
