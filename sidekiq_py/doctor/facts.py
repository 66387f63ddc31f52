"""
The facts that checks look at. Each is gathered when first asked for, then kept.

If Redis does not let this user read a fact, its `RedisReplyError` is raised in the check that needs it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from sidekiq_py import program
from sidekiq_py.clock import now_seconds
from sidekiq_py.doctor import fleet, keyspace, misfits, owners, sampling
from sidekiq_py.doctor.finding import command_line, for_shell
from sidekiq_py.doctor.fleet import Fleet
from sidekiq_py.doctor.keyspace import Keyspace, Part
from sidekiq_py.doctor.misfits import Misfit
from sidekiq_py.doctor.owners import Owners
from sidekiq_py.doctor.sampling import QueueFacts, Sample
from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection import server_info
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.server_info import ServerInfo
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.redis_access.reads import survey
from sidekiq_py.registry import JobDefinition
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.extensions import extension_keys_of
from sidekiq_py.wire.json_writer import display_text


class Facts:
    """
    The facts about one Redis.

    Args:
        pool: Connections to it.
        pinned: The release that this program is configured to write for; None if it detects the release.
        declared: The jobs of this program, by the class names that payloads carry; None if no program was loaded.
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

    def command(self, *words: str, operands: Iterable[str] = ()) -> str:
        """A `sidekiq-py` command line, with this Redis's namespace."""
        return command_line(self._pool.settings.namespace, *words, operands=operands)

    def redis_cli(self, *words: str, keys: int) -> str:
        """A `redis-cli` command line for bash; the first *keys* words after the command's name are keys."""
        command, named, others = words[0], words[1 : keys + 1], words[keys + 1 :]
        prefix = self._pool.key_prefix
        return " ".join(["redis-cli", command, *(for_shell(prefix + key) for key in named), *map(for_shell, others)])

    @cached_property
    def server(self) -> ServerInfo:
        """Product, version, mode."""
        return server_info.read(self._pool)

    @cached_property
    def info(self) -> dict[str, str]:
        """The lines of INFO."""
        return survey.info(self._pool)

    def info_number(self, name: str) -> int | None:
        """A number from INFO; None if it cannot be read."""
        try:
            return int(self.info[name])
        except (RedisReplyError, KeyError, ValueError):
            return None

    def setting(self, name: str) -> str | None:
        """A setting of the server; None if it cannot be read."""
        try:
            return survey.setting(self._pool, name)
        except RedisReplyError:
            return None

    @cached_property
    def clock(self) -> survey.ClockReading:
        """Redis's clock, compared with this machine's."""
        return survey.clock(self._pool, self._now)

    @cached_property
    def fleet(self) -> Fleet:
        """The processes that are running."""
        return fleet.gather(self._pool)

    @cached_property
    def keyspace(self) -> Keyspace:
        """The names of the keys."""
        return keyspace.gather(self._pool)

    @cached_property
    def queues(self) -> tuple[QueueFacts, ...]:
        """The queues: those in the set `queues`, those found by scanning the keys, and those that a process serves."""
        found: set[str] = set()
        with suppress(RedisReplyError):
            found.update(self.keyspace.queues)
        with suppress(RedisReplyError):
            worked = {keys.queue(name): name for name in self.fleet.queues}
            # A key that this user may not look at counts as existing, so that a check names it.
            exists = survey.replies(self._pool, "EXISTS", list(worked))
            found.update(worked[key] for key, reply in exists.items() if reply)
        return sampling.gather_queues(self._pool, list(found))

    @cached_property
    def misfits(self) -> tuple[Misfit, ...]:
        """Keys of Sidekiq and sidekiq_py that hold another type than they should."""
        names: list[str] = []
        identities: list[str] = []
        with suppress(RedisReplyError):
            names = [*self.keyspace.ours, *self.keyspace.counters]
        with suppress(RedisReplyError):
            identities = process_set.identities(self._pool)
        return misfits.gather(self._pool, identities, names, self.clock.redis_seconds)

    def gaps(self, needed: Collection[str], part: Part | None) -> list[str]:
        """
        The reasons why a check cannot be certain, a clause each.

        Args:
            needed: The keys that the check reads; one of another type makes its answer uncertain.
            part: The key names that the check relies on.
        """
        found = []
        with suppress(RedisReplyError):
            found = [f"{misfit.seen}." for misfit in self.misfits if misfit.key in needed]
        try:
            is_whole = part is None or part in self.keyspace.whole
        except RedisReplyError as error:
            return [*found, f"Redis answered: {error}"]
        if not is_whole:
            found.append(f"the scan of the key names was cut off after {keyspace.SECONDS_AT_MOST:.0f} s.")
        return found

    @cached_property
    def sample(self) -> Sample:
        """A sample of the waiting jobs."""
        return sampling.gather_jobs(self._pool, self.queues)

    @cached_property
    def marked_queues(self) -> dict[str, set[str]]:
        """Maps queues that hold jobs only Ruby's middleware can finish to the payload keys that mark those jobs."""
        return self._queues_with(self.foreign_keys_of)

    @cached_property
    def extension_queues(self) -> dict[str, set[str]]:
        """Maps queues to the keys in their jobs that belong to extensions of sidekiq_py not loaded here."""
        with suppress(RedisReplyError):
            unknown = survey.hash_of(self._pool, keys.EXTENSION_KEYS).keys() - program.extensions.keys
            return self._queues_with(lambda payload: extension_keys_of(payload, unknown)) if unknown else {}
        return {}

    def _queues_with(self, marks_of: Callable[[Mapping[str, Any]], list[str]]) -> dict[str, set[str]]:
        """The queues of the sample that hold jobs with marks, and these marks."""
        found: dict[str, set[str]] = {}
        for job in self.sample.jobs:
            if job.queue is not None and (marks := marks_of(job.item)):
                found.setdefault(job.queue, set()).update(marks)
        return found

    def foreign_keys_of(self, payload: Mapping[str, Any]) -> list[str]:
        """The payload keys that make this a job only Ruby can finish, without those that an extension here handles."""
        return [key for key in extension_keys_of(payload) if not self._is_taken_over(key, payload)]

    def _is_taken_over(self, key: str, payload: Mapping[str, Any]) -> bool:
        """Ask the extensions, once for all jobs of one batch."""
        known = " ".join((key, display_text(payload[key]), display_text(payload.get("class"))))
        if known not in self._taken_over:
            self._taken_over[known] = program.extensions.takes_over(key, dict(payload), self._pool)
        return self._taken_over[known]

    @cached_property
    def owners(self) -> Owners:
        """The in-flight jobs of Python processes."""
        return owners.gather(self._pool, self.keyspace)

    @cached_property
    def dead_size(self) -> int:
        """The number of jobs in the dead set."""
        return survey.sizes(self._pool, [keys.DEAD], "ZCARD")[keys.DEAD]

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """The lengths of these lists."""
        return survey.sizes(self._pool, names, "LLEN")

    def existing(self, names: Sequence[str]) -> set[str]:
        """The keys among these that exist."""
        return survey.existing(self._pool, names)

    def describe(self) -> dict[str, Any]:
        """A few numbers for the head of a report. Those that cannot be read are missing."""
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
            except (RedisConnectionError, ReplyLostError):
                raise
            except Exception:  # noqa: BLE001 - the checks that need it say why
                continue
        return found
