"""The profiles of jobs that Sidekiq 8 keeps for a day."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sidekiq_py.api.job_record import moment
from sidekiq_py.api.source import SizedOfRedis
from sidekiq_py.clock import now_seconds
from sidekiq_py.redis_access.reads import profiles
from sidekiq_py.wire.number_text import to_finite


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """
    One profile.

    Args:
        key: `<token>-<jid>`.
        type: The job's class.
        token: The token under which the job was profiled.
        size: The size of the data in bytes.
        elapsed: Seconds that the job took.
    """

    key: str
    started_at: datetime | None
    jid: str
    type: str
    token: str
    size: int
    elapsed: float


class ProfileSet(SizedOfRedis):
    """
    The profiles of the last day, latest first.

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __iter__(self) -> Iterator[ProfileRecord]:
        names = profiles.live_keys(self._pool, now_seconds())
        for name, row in zip(names, profiles.summaries(self._pool, names), strict=True):
            if any(value is not None for value in row):
                yield _record(name, row)

    @property
    def size(self) -> int:
        """The number of profiles."""
        return profiles.count(self._pool)

    def data(self, key: str) -> bytes | None:
        """The gzipped profile; None if it has expired."""
        return profiles.data(self._pool, key)


def _record(name: bytes, row: list[bytes | None]) -> ProfileRecord:
    started_at, jid, kind, token, size, elapsed = (value.decode(errors="replace") if value else "" for value in row)
    return ProfileRecord(
        name.decode(errors="replace"), moment(started_at), jid, kind, token, int(to_finite(size)), to_finite(elapsed)
    )
