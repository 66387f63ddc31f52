"""The audit log: what users did to jobs, queues and processes, from the dashboard or from programs that record it."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from sidekiq_py.api.arguments import count_of
from sidekiq_py.api.source import OfRedis
from sidekiq_py.redis_access.reads import audit

MOST_ENTRIES = 10_000
_MOST_LETTERS = 500
_ENTRY_ID = re.compile(r"[1-9]\d{0,18}-\d{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """
    One action of a user.

    Args:
        id: Its position in the log.
        at: When, by Redis's clock.
        user: Who did it.
        action: A verb, such as `retry` or `pause`.
        subject: The queue, set, process or job that was acted on.
        details: More about the action.
    """

    id: str
    at: datetime
    user: str
    action: str
    subject: str
    details: str


class AuditLog(OfRedis):
    """
    The last 10,000 actions or so, newest first.

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def record(self, user: str, action: str, subject: str, details: str = "") -> None:
        """Record an action. Texts are cut after 500 characters."""
        fields = {"user": user, "action": action, "subject": subject, "details": details}
        kept = {name: _storable(text) for name, text in fields.items()}
        audit.add(self._pool, kept, most=MOST_ENTRIES)

    def page(self, limit: int = 50, *, before: str | None = None) -> list[AuditEntry]:
        """
        The latest entries, newest first.

        Args:
            before: The `id` of an entry; only older entries are returned.

        Raises:
            ValueError: *before* is not an entry's id, or *limit* is below 1.
        """
        limit = count_of(limit, "limit")
        if before is not None and not _ENTRY_ID.fullmatch(before):
            raise ValueError(f"{before!r} is not an entry's id; take it from an AuditEntry")
        return [_entry(entry_id, fields) for entry_id, fields in audit.page(self._pool, limit, before)]


def _entry(entry_id: str, fields: dict[str, str]) -> AuditEntry:
    at = datetime.fromtimestamp(int(entry_id.partition("-")[0]) / 1000, UTC)
    return AuditEntry(entry_id, at, *(fields.get(name, "") for name in ("user", "action", "subject", "details")))


def _storable(text: str) -> str:
    shown = text.encode(errors="backslashreplace").decode()
    return shown if len(shown) <= _MOST_LETTERS else f"{shown[:_MOST_LETTERS]}…"
