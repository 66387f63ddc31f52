"""
Reads the schedules of the gem sidekiq-scheduler for listings; Python never fires them.

Source: sidekiq-scheduler 6.0.2: the hash `schedules` holds JSON by name, `sidekiq-scheduler:last_times` the last run of
    each.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sidekiq_py.errors import JsonParseError, RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import pairs
from sidekiq_py.wire.json_dialect import loads

# The ways to define a schedule.
_KINDS = ("cron", "every", "interval", "at", "in")


def entries(pool: Pool) -> Iterator[Mapping[str, Any]]:
    """Yield a mapping for each of its schedules; those that cannot be read are skipped."""
    found, last = pool.replies([("HGETALL", "schedules"), ("HGETALL", "sidekiq-scheduler:last_times")])
    # Another program's keys may have these names.
    if isinstance(found, RedisReplyError) or isinstance(last, RedisReplyError):
        return
    last_times = _pairs(last)
    for name, text in sorted(_pairs(found).items()):
        try:
            entry = loads(text)
        except JsonParseError:
            continue
        if isinstance(entry, dict):
            kind = next((kind for kind in _KINDS if kind in entry), None)
            yield {
                "name": name,
                "cron": f"{'' if kind == 'cron' else f'{kind} '}{_first(entry[kind])}" if kind else "",
                "class": str(entry.get("class", name)),
                "by": "sidekiq-scheduler",
                "last_enqueue_time": last_times.get(name, b"").decode(errors="replace") or None,
            }


def _first(value: Any) -> Any:
    """Without options: `every: ["1h", {first_in: "5m"}]` has them after the value."""
    return value[0] if isinstance(value, list) and value else value


def _pairs(reply: Any) -> dict[str, bytes]:
    return {key.decode(errors="replace"): value for key, value in pairs(reply)}
