"""The data API: `sidekiq_py.api.CronJobs`."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from sidekiq_py import program
from sidekiq_py.api.arguments import count_of
from sidekiq_py.api.source import client_for
from sidekiq_py.client.outgoing import moment
from sidekiq_py.client.sync_client import Client
from sidekiq_py.errors import ConfigError, RedisReplyError
from sidekiq_py.extensions.periodic import firing, loading, sidekiq_scheduler, store
from sidekiq_py.extensions.periodic.cron_text import CronText
from sidekiq_py.extensions.periodic.declared import make
from sidekiq_py.extensions.periodic.keys import DEFAULT_NAMESPACE
from sidekiq_py.extensions.periodic.layout import arguments_of, epoch_of
from sidekiq_py.extensions.periodic.store import Run, StoredJob
from sidekiq_py.extensions.periodic.ticks import next_times, previous_time
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.slices import slices_of

__all__ = ["CronJob", "CronJobs", "Run"]

# Redis needs some milliseconds for this many.
_CHANGED_AT_ONCE = 200


class CronJob:
    """
    One periodic job, of either language, as of when it was read.

    Attributes:
        stored: The stored job.
    """

    def __init__(self, stored: StoredJob, client: Client) -> None:
        self.stored = stored
        self._client = client

    def __repr__(self) -> str:
        state = "" if self.is_enabled else " disabled"
        return f"<CronJob {self.name} {self.cron!r} {self.klass}{state}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self.stored.name

    @property
    def namespace(self) -> str:
        """sidekiq-cron's namespace; `default` before 2.0."""
        return self.stored.namespace

    @property
    def cron(self) -> str:
        """Its cron text as stored."""
        return self.stored.entry.cron if self.stored.entry else ""

    @property
    def klass(self) -> str:
        """The class that is pushed."""
        return self.stored.entry.klass if self.stored.entry else ""

    @property
    def args(self) -> list[Any]:
        """The arguments of each push."""
        return arguments_of(self.stored.entry.args) if self.stored.entry else []

    @property
    def queue(self) -> str:
        """The queue it is pushed to."""
        try:
            payload = self.stored.entry.payload(0.0) if self.stored.entry else {}
        except ConfigError:
            return ""
        return str(payload.get("queue", "default"))

    @property
    def description(self) -> str:
        """A text for people."""
        return self.stored.entry.description if self.stored.entry else ""

    @property
    def is_enabled(self) -> bool:
        """True if its ticks fire."""
        return self.stored.entry is not None and self.stored.entry.is_enabled

    @property
    def reason(self) -> str:
        """Why it is disabled, if a reason was given."""
        return self.stored.own.reason

    @property
    def problem(self) -> str | None:
        """Why Python cannot fire it: its hash is damaged, or its text cannot be parsed. None if all is well."""
        return self.stored.problem

    @property
    def declared_by(self) -> str:
        """`<program>:<module or file>` of its Python declaration; empty for Ruby's jobs and those added by hand."""
        return self.stored.own.by

    @property
    def is_python(self) -> bool:
        """True if it was declared in or added from Python, which fires it."""
        return self.stored.own.is_ours

    @property
    def overlap(self) -> str:
        """`allow` or `skip`."""
        return self.stored.own.overlap

    @property
    def catch_up(self) -> timedelta | None:
        """How far back missed ticks are made up for."""
        seconds = self.stored.own.catch_up_seconds
        return None if seconds is None else timedelta(seconds=seconds)

    @property
    def jitter(self) -> float:
        """The longest deliberate delay of a push, in seconds."""
        return self.stored.own.jitter_seconds

    @property
    def last_enqueue_time(self) -> datetime | None:
        """When it was last pushed, by either language or by hand."""
        at = epoch_of(self.stored.entry.last_enqueue_time) if self.stored.entry else None
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def next_ticks(self, count: int = 1, *, after: float | datetime | None = None) -> list[datetime]:
        """
        Its next ticks, in its own zone.

        Args:
            after: Epoch seconds or an aware datetime; by default now, by Redis's clock, or the last tick that Python
                has fired if that clock was set back behind it.
        """
        cron = self.stored.cron
        if cron is None:
            return []
        if after is None:
            return self.stored.next_ticks(self._moment(None), count)
        return next_times(cron, moment(after), count)

    def previous_tick(self, *, before: float | datetime | None = None) -> datetime | None:
        """Its last tick, fired or not, in its own zone."""
        cron = self.stored.cron
        at = None if cron is None else previous_time(cron, self._moment(before))
        return None if at is None or cron is None else datetime.fromtimestamp(at, cron.tz)

    def history(self) -> list[dict[str, Any]]:
        """The gem's list of the last ten pushes by both languages: `jid` and `enqueued`, newest first."""
        return store.jid_history(self._client.pool, self.stored.key)

    def runs(self) -> list[Run]:
        """The last hundred ticks that Python has fired or skipped, newest first, with their outcomes."""
        return store.runs(self._client.pool, self.stored.key)

    def lost_ticks(self) -> list[datetime]:
        """Ticks that a Ruby process claimed and did not push, because it died."""
        now = store.redis_now(self._client.pool)
        [lost] = store.lost_ticks(self._client.pool, [self.stored], now)
        return [datetime.fromtimestamp(at, UTC) for at in lost]

    def enable(self) -> None:
        """Let it fire again. Ticks that passed meanwhile are not made up for."""
        self._set_status(is_enabled=True, reason="")

    def disable(self, reason: str = "") -> None:
        """
        Stop it from firing until it is enabled. It stays in all listings.

        Args:
            reason: A text to show in listings.
        """
        self._set_status(is_enabled=False, reason=reason)

    def run(self, *, at: float | datetime | None = None) -> str | None:
        """
        Push its job now, regardless of its policies, like the button in the Web tab.

        Args:
            at: The time to use as now, for tests.

        Returns:
            The jid, or None if a client middleware stopped it.

        Raises:
            ConfigError: Its hash is damaged, or only Ruby can push it correctly.
        """
        if self.stored.entry is None:
            raise ConfigError(f"the periodic job {self.name} cannot be run: {self.problem}")
        because = None if self.is_python else self.stored.entry.why_ruby_alone()
        if because is not None:
            raise ConfigError(f"the periodic job {self.name} can only be run from Ruby, in its Web tab: {because}")
        return firing.run_by_hand(self._client, self.stored, self._moment(at))

    def remove(self) -> None:
        """Delete it. A declared job comes back: disable it, or remove the declaration."""
        store.write(self._client.pool, store.remove_effect(self.stored))

    def to_dict(self, *, ticks: int = 1) -> dict[str, Any]:
        """A dict for JSON."""
        last, catch_up = self.last_enqueue_time, self.stored.own.catch_up_seconds
        return {
            "name": self.name,
            "namespace": self.namespace,
            "cron": self.cron,
            "class": self.klass,
            "args": self.args,
            "queue": self.queue,
            "description": self.description,
            "enabled": None if self.stored.is_unread else self.is_enabled,
            "reason": self.reason or None,
            "problem": self.problem,
            "declared_by": self.declared_by or None,
            "is_python": self.is_python,
            "overlap": self.overlap,
            "catch_up_seconds": catch_up,
            "jitter_seconds": self.jitter,
            "last_enqueue_time": None if last is None else last.isoformat(),
            "next_ticks": [tick.isoformat() for tick in self.next_ticks(ticks)],
        }

    def _set_status(self, *, is_enabled: bool, reason: str) -> None:
        pool = self._client.pool
        try:
            store.write(
                pool, store.status_effect(self.stored, is_enabled=is_enabled, reason=reason, now=store.redis_now(pool))
            )
        except RedisReplyError as refusal:
            if refusal.code != "CRONGONE":
                raise
            raise ConfigError(f"the periodic job {self.name} no longer exists") from refusal
        found = store.find(pool, self.name, self.namespace)
        self.stored = found or self.stored

    def _moment(self, given: float | datetime | None) -> float:
        if given is None:
            return store.redis_now(self._client.pool)
        return moment(given)


class CronJobs:
    """
    All periodic jobs, Ruby's and Python's.

        for job in CronJobs():
            print(job.name, job.cron, job.next_ticks(3))
        CronJobs().find("report").disable("the source is down")

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __init__(self, *, pool: Any = None, client: Client | None = None) -> None:
        self._client = client_for(pool, client)

    def __repr__(self) -> str:
        return f"<CronJobs {self.pool!r}>"

    def __iter__(self) -> Iterator[CronJob]:
        jobs = store.read_all(self.pool, namespaces=_extension().namespaces)
        return iter([CronJob(job, self._client) for job in sorted(jobs, key=lambda job: (job.name, job.namespace))])

    def __len__(self) -> int:
        return len(store.listed(self.pool, namespaces=_extension().namespaces))

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def page(self, start: int, count: int, *, name: str = "") -> tuple[list[CronJob], int]:
        """
        Up to *count* of the jobs from position *start* on, by name, and how many there are.

        Args:
            name: Only jobs whose name contains this, in any case of letters.

        Raises:
            ValueError: *start* or *count* is not a whole number of 0 or more.
        """
        start, count = count_of(start, "start", 0), count_of(count, "count", 0)
        keys = store.listed(self.pool, namespaces=_extension().namespaces)
        if name:
            keys = [listed for listed in keys if name.casefold() in store.name_of(*listed).casefold()]
        keys.sort(key=lambda listed: (store.name_of(*listed), listed[0]))
        jobs = store.read(self.pool, keys[start : start + count])
        return [CronJob(job, self._client) for job in jobs], len(keys)

    def find(self, name: str, namespace: str | None = None) -> CronJob | None:
        """The job with this name; None if there is none."""
        found = store.find(self.pool, name, namespace, namespaces=_extension().namespaces)
        return None if found is None else CronJob(found, self._client)

    def enable_all(self, *, reason: str | None = None) -> list[CronJob]:
        """
        Let all disabled jobs fire again, Ruby's and Python's.

        Args:
            reason: Only those that were disabled for exactly this reason.

        Returns:
            Those that were disabled, as they were.
        """
        return self._set_all(
            [job for job in self if not job.is_enabled and reason in (None, job.reason)], is_enabled=True, reason=""
        )

    def disable_all(self, reason: str = "") -> list[CronJob]:
        """
        Stop all enabled jobs from firing, Ruby's and Python's. Those that are already disabled keep their reason.

        Args:
            reason: A text to show in listings.

        Returns:
            Those that were enabled, as they were.
        """
        return self._set_all([job for job in self if job.is_enabled], is_enabled=False, reason=reason)

    def _set_all(self, wanted: list[CronJob], *, is_enabled: bool, reason: str) -> list[CronJob]:
        # A damaged job cannot fire; its keys are left alone.
        jobs = [job for job in wanted if job.stored.entry is not None]
        now = store.redis_now(self.pool)
        done = []
        for part in slices_of(jobs, _CHANGED_AT_ONCE):
            stored = [job.stored for job in part]
            changed = store.write_status(self.pool, stored, is_enabled=is_enabled, reason=reason, now=now)
            done += [job for job, is_changed in zip(part, changed, strict=True) if is_changed]
        return done

    def add(self, cron: str, job: Any, **given: Any) -> CronJob:
        """
        Add a periodic job that no program declares; it stays until it is removed.

        Args:
            cron, job, given: As for `sidekiq.periodic`.

        Raises:
            ConfigError: An argument is invalid, or a program declares a job with this name.
        """
        new = make(cron, job, **given).routed()
        name, namespace = new.entry.name, new.entry.namespace
        old = self.find(name, namespace)
        if old is not None and old.declared_by:
            raise ConfigError(f"{old.declared_by} declares a periodic job {name!r}; choose another name")
        loading.save(self.pool, store.layout_in_use(self.pool, _extension().cron_version), [new])
        added = self.find(name, namespace)
        assert added is not None
        return added

    @property
    def pool(self) -> Pool:
        """The connections in use."""
        return self._client.pool

    def next_ticks(self, cron: CronText, count: int, *, after: float | None = None) -> list[datetime]:
        """
        The next ticks of a cron text, after a time in epoch seconds or after now.

        Raises:
            TypeError: *cron* was not parsed.
        """
        if not isinstance(cron, CronText):
            raise TypeError(f"cron is {cron!r}; give it parsed, by sidekiq_py.extensions.periodic.cron_text.parse")
        return next_times(cron, store.redis_now(self.pool) if after is None else after, count)

    def others(self) -> list[Mapping[str, Any]]:
        """
        Entries of other schedulers in this Redis, for display only: beat entries of `sidekiq_celery`, schedules of the
        gem sidekiq-scheduler, and everything that extensions add to the listing `cron`.
        """
        program.extensions.load_installed()
        # A dashboard or a command may show another Redis than the program's own.
        with Client.via(self.pool):
            added = [entry for extension in program.extensions for entry in extension.entries("cron")]
        return [*added, *sidekiq_scheduler.entries(self.pool)]


def _extension() -> Any:
    """The active extension, for its settings."""
    program.extensions.load_installed()
    # In a source tree that is not installed, the extension is not registered.
    return program.extensions.find("periodic") or SimpleNamespace(namespaces=(DEFAULT_NAMESPACE,), cron_version=None)
