"""
The facts that checks look at: each gathered when it is first asked for, then kept.

Whatever Redis does not let this user see raises its `RedisReplyError` here, at the check that needs it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from sidekiq_py import program
from sidekiq_py.clock import now_seconds
from sidekiq_py.doctor import fleet, keyspace, misfits, owners, sampling
from sidekiq_py.doctor.finding import for_shell
from sidekiq_py.doctor.fleet import Fleet
from sidekiq_py.doctor.keyspace import Keyspace, Part
from sidekiq_py.doctor.misfits import Misfit
from sidekiq_py.doctor.owners import Owners
from sidekiq_py.doctor.sampling import QueueFacts, Sample
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection import server_info
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.server_info import ServerInfo
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.redis_access.reads import survey
from sidekiq_py.registry import JobDefinition
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.extensions import extension_keys_of

# No key of Sidekiq's or of ours begins so.


class Facts:
    """
    What is true of one Redis.

    Args:
        pool: To it.
        pinned: The release that this program is told to write for; None where it finds out.
        declared: Jobs of this program, by the classes that payloads name; None where no program was loaded.
        now: This machine's clock.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        pinned: Dialect | None = None,
        declared: Mapping[str, JobDefinition] | None = None,
        now: Callable[[], float] = now_seconds,
    ) -> None:
        self._pool = pool
        self._now = now
        self.pinned = pinned
        self.declared = declared
        self._taken_over: dict[str, bool] = {}

    def __repr__(self) -> str:
        return f"<Facts of {self._pool!r}>"

    def command(self, *words: str) -> str:
        """A command line of `sidekiq-py` for this Redis's namespace."""
        namespace = self._pool.settings.namespace
        rest = ["--namespace", namespace] if namespace else []
        return " ".join(["sidekiq-py", *map(for_shell, [*words, *rest])])

    def redis_cli(self, *words: str, keys: int) -> str:
        """A command line of `redis-cli`, for bash; the first *keys* words behind its name are keys."""
        namespace = self._pool.settings.namespace
        start = f"{namespace}:" if namespace else ""
        command, named, others = words[0], words[1 : keys + 1], words[keys + 1 :]
        return " ".join(["redis-cli", command, *(for_shell(start + key) for key in named), *map(for_shell, others)])

    @cached_property
    def server(self) -> ServerInfo:
        """Product, version, mode."""
        return server_info.read(self._pool)

    @cached_property
    def info(self) -> dict[str, str]:
        """The lines of INFO."""
        return survey.info(self._pool)

    def info_number(self, name: str) -> int | None:
        """A number in INFO; None where it is not told."""
        try:
            return int(self.info[name])
        except (RedisReplyError, KeyError, ValueError):
            return None

    def setting(self, name: str) -> str | None:
        """A setting of the server; None where it is not told."""
        try:
            return survey.setting(self._pool, name)
        except RedisReplyError:
            return None

    @cached_property
    def clock(self) -> survey.ClockReading:
        """Redis's clock beside this machine's."""
        return survey.clock(self._pool, self._now)

    @cached_property
    def fleet(self) -> Fleet:
        """The processes."""
        return fleet.gather(self._pool)

    @cached_property
    def keyspace(self) -> Keyspace:
        """The names of keys."""
        return keyspace.gather(self._pool)

    @cached_property
    def queues(self) -> tuple[QueueFacts, ...]:
        """The queues: those in the set `queues`, those that the walk over the keys has met, those that are worked."""
        found: set[str] = set()
        with suppress(RedisReplyError):
            found.update(self.keyspace.queues)
        with suppress(RedisReplyError):
            worked = {keys.queue(name): name for name in self.fleet.queues}
            found.update(worked[key] for key in survey.existing(self._pool, list(worked)))
        return sampling.gather_queues(self._pool, list(found))

    @cached_property
    def misfits(self) -> tuple[Misfit, ...]:
        """Keys of Sidekiq's and of ours that hold something else."""
        names: list[str] = []
        identities: list[str] = []
        with suppress(RedisReplyError):
            names = [*self.keyspace.ours, *self.keyspace.counters]
        with suppress(RedisReplyError):
            identities = process_set.identities(self._pool)
        return misfits.gather(self._pool, identities, names, self.clock.redis_seconds)

    def gaps(self, needed: Collection[str], part: Part | None) -> list[str]:
        """
        Why something cannot be told for certain, a clause for each reason.

        Args:
            needed: The keys that tell it; one that holds something else tells nothing.
            part: The names of keys that tell it.
        """
        found = []
        with suppress(RedisReplyError):
            found = [f"{misfit.seen}." for misfit in self.misfits if misfit.key in needed]
        try:
            is_whole = part is None or part in self.keyspace.whole
        except RedisReplyError as error:
            return [*found, f"Redis answered: {error}"]
        if not is_whole:
            found.append(f"the walk over the names of keys was cut off after {keyspace.SECONDS_AT_MOST:.0f} s.")
        return found

    @cached_property
    def sample(self) -> Sample:
        """Jobs that wait."""
        return sampling.gather_jobs(self._pool, self.queues)

    @cached_property
    def marked_queues(self) -> dict[str, set[str]]:
        """Queues with jobs that only Ruby's middleware can end, to the keys by which these are known."""
        found: dict[str, set[str]] = {}
        for job in self.sample.jobs:
            if job.queue is not None and (marks := self.foreign_keys_of(job.item)):
                found.setdefault(job.queue, set()).update(marks)
        return found

    def foreign_keys_of(self, payload: Mapping[str, Any]) -> list[str]:
        """The keys of a job by which only Ruby can end it: no extension of ours takes it over."""
        return [key for key in extension_keys_of(payload) if not self._is_taken_over(key, payload)]

    def _is_taken_over(self, key: str, payload: Mapping[str, Any]) -> bool:
        """Asked once for the jobs of one batch."""
        known = f"{key} {payload[key]} {payload.get('class')}"
        if known not in self._taken_over:
            self._taken_over[known] = program.extensions.takes_over(key, dict(payload), self._pool)
        return self._taken_over[known]

    @cached_property
    def owners(self) -> Owners:
        """What Python processes hold."""
        return owners.gather(self._pool, self.keyspace)

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Lengths of lists."""
        return survey.sizes(self._pool, names, "LLEN")

    def existing(self, names: Sequence[str]) -> set[str]:
        """Those of the keys that are there."""
        return survey.existing(self._pool, names)

    def describe(self) -> dict[str, Any]:
        """A few numbers for the head of a report; those that cannot be seen are left out."""
        parts: dict[str, Callable[[], Any]] = {
            "server": lambda: str(self.server),
            "ruby_processes": lambda: len(self.fleet.ruby),
            "python_processes": lambda: len(self.fleet.python),
            "queues": lambda: len(self.queues),
            "jobs_waiting": lambda: self.sample.total,
            "jobs_looked_at": lambda: len(self.sample.jobs),
            "keys_looked_at": lambda: self.keyspace.seen,
        }
        found = {}
        for name, read in parts.items():
            try:
                found[name] = read()
            except RedisReplyError:
                continue
        return found
