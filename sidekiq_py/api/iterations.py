"""The progress of iterable jobs."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sidekiq_py.api.job_record import moment
from sidekiq_py.api.source import pool_for
from sidekiq_py.client.sync_client import Client
from sidekiq_py.redis_access.job_path import iteration
from sidekiq_py.wire.json_dialect import loads_or_none
from sidekiq_py.wire.number_text import to_finite, to_i


@dataclass(frozen=True, slots=True)
class IterationState:
    """
    The state of one iterable job.

    Args:
        executions: The number of times it was started.
        runtime: Its total run time in seconds.
        cursor: The next item.
        cancelled_at: When it was cancelled; None if it was not.
    """

    executions: int
    runtime: float
    cursor: Any
    cancelled_at: datetime | None


class IterableJobQuery:
    """
    The states of some iterable jobs, read in one round trip when this object is created.

        query = IterableJobQuery([jid])
        query[jid].cursor

    Args:
        jids: The ids of the jobs.
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __init__(self, jids: Iterable[str], *, pool: Any = None, client: Client | None = None) -> None:
        if isinstance(jids, str):
            raise TypeError(f"jids is {jids!r}; give a list of ids")
        wanted = list(jids)
        found = iteration.fields_of(pool_for(pool, client), wanted)
        self._states = {jid: _state(fields) for jid, fields in zip(wanted, found, strict=True) if fields}

    def __repr__(self) -> str:
        return f"<IterableJobQuery {list(self._states)}>"

    def __contains__(self, jid: object) -> bool:
        return jid in self._states

    def __getitem__(self, jid: str) -> IterationState:
        return self._states[jid]

    def get(self, jid: str) -> IterationState | None:
        """The state of one job; None if nothing is stored: it has not begun, is done, or is not an iterable job."""
        return self._states.get(jid)


def _state(fields: dict[bytes, bytes]) -> IterationState:
    cancelled = fields.get(b"cancelled")
    return IterationState(
        executions=to_i(fields.get(b"ex")),
        runtime=to_finite(fields.get(b"rt")),
        # A job that was cancelled before its first run has no cursor.
        cursor=loads_or_none(fields.get(b"c", b"")),
        cancelled_at=moment(cancelled.decode(errors="replace")) if cancelled else None,
    )
