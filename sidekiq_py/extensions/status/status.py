"""Reading a job's status from outside, and asking the job to stop."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Self

from sidekiq_py.api.source import pool_for
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds, utc
from sidekiq_py.extensions.status import keys
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import name_in, texts
from sidekiq_py.redis_access.connection.scan import pages
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.wire.number_text import to_finite

_PAGE = 500
# The names of these times in the gem up to 3.0.3.
_OLDER_NAMES = {"started_at": "working_at", "updated_at": "update_time"}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """
    A job's status when it was read; `refresh()` reads it again.

    Attributes:
        fields: All fields of its hash, as strings.
    """

    jid: str
    fields: dict[str, str]
    _pool: Pool

    @classmethod
    def find(cls, jid: str | None, *, pool: Any = None, client: Client | None = None) -> Self | None:
        """
        The status of a job, or None if it has none: it was not declared with a status, or the status has expired.

        Args:
            jid: The return value of a push. For None (a client middleware stopped the push) there is no status.
            pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
            client: A client to use instead of *pool*.

        Raises:
            TypeError: *jid* is neither a string nor None.
        """
        if jid is None:
            return None
        if not isinstance(jid, str):
            raise TypeError(f"the jid is {jid!r}; give the job's id as a string")
        links = pool_for(pool, client)
        fields = texts(links.command("HGETALL", keys.of(jid)))
        return cls(jid, fields, links) if fields else None

    @classmethod
    def all(cls, *, pool: Any = None, client: Client | None = None) -> Iterator[Self]:
        """Every stored status, in no particular order. Scans Redis, so this is for people, not for programs."""
        links = pool_for(pool, client)
        # Another program may have written a key of another type, which is no status.
        words = ("MATCH", f"{keys.PREFIX}*", "COUNT", _PAGE, "TYPE", "hash")
        for key in chain.from_iterable(pages(links.command, ("SCAN",), *words)):
            status = cls.find(name_in(key)[len(keys.PREFIX) :], pool=links)
            if status is not None:
                yield status

    @property
    def status(self) -> str:
        """`queued`, `working`, `retrying`, `complete`, `stopped`, `failed`, `interrupted`, or empty."""
        return self.fields.get("status", "")

    @property
    def worker(self) -> str:
        """The job's class, as shown to people."""
        return self.fields.get("worker", "")

    @property
    def at(self) -> float:
        """How much is done, in the unit of `total`."""
        return to_finite(self.fields.get("at"))

    @property
    def total(self) -> float:
        """How much there is to do; 0 before the first progress."""
        return to_finite(self.fields.get("total"))

    @property
    def percent(self) -> int:
        """The share that is done, from 0 to 100."""
        return int(to_finite(self.fields.get("pct_complete")))

    @property
    def message(self) -> str:
        """Its last message."""
        return self.fields.get("message", "")

    @property
    def enqueued_at(self) -> datetime | None:
        """When it was pushed."""
        return self._moment("enqueued_at")

    @property
    def started_at(self) -> datetime | None:
        """When its last run began."""
        return self._moment("started_at")

    @property
    def updated_at(self) -> datetime | None:
        """When it was last written."""
        return self._moment("updated_at")

    @property
    def ended_at(self) -> datetime | None:
        """When it ended."""
        return self._moment("ended_at")

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the pace so far; None before the first progress."""
        began = self._seconds("started_at") or self._seconds("enqueued_at")
        if not self.at or not began:
            return None
        return (now_seconds() - began) / self.at * max(0.0, self.total - self.at)

    def refresh(self) -> Self | None:
        """The current status; None if it has expired."""
        return type(self).find(self.jid, pool=self._pool)

    def stop(self) -> None:
        """Ask the job to stop: its next `progress()` raises `Stopped`, in both languages."""
        command = keys.write(self.jid, now_seconds(), {"stop": "true"})
        self._pool.run(lambda link: settle_script.write(link, [command]))

    def delete(self) -> bool:
        """Delete the status, but not the job. Returns False if it was already gone."""
        return bool(self._pool.command("DEL", keys.of(self.jid)))

    def to_dict(self) -> dict[str, Any]:
        """A dict for JSON; times are whole epoch seconds or None. `docs/progress.md` has the schema."""
        times = ("enqueued_at", "started_at", "updated_at", "ended_at")
        return {
            "jid": self.jid,
            "status": self.status,
            "worker": self.worker,
            "at": self.at,
            "total": self.total,
            "percent": self.percent,
            "message": self.message,
            **{name: int(self._seconds(name)) if self._has(name) else None for name in times},
            "fields": dict(self.fields),
        }

    def _has(self, name: str) -> bool:
        return name in self.fields or _OLDER_NAMES.get(name) in self.fields

    def _seconds(self, name: str) -> float:
        """A time in epoch seconds, 0.0 if there is none. The later one counts, as both languages may have run it."""
        return max(to_finite(self.fields.get(name)), to_finite(self.fields.get(_OLDER_NAMES.get(name, ""))))

    def _moment(self, name: str) -> datetime | None:
        seconds = self._seconds(name)
        return utc(seconds) if seconds else None
