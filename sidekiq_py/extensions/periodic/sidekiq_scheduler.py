"""
Reads the schedules of the gem sidekiq-scheduler for listings; Python never fires them.

Source: sidekiq-scheduler 6.0.2: the hash `schedules` holds JSON by name, `sidekiq-scheduler:last_times` the last run of
    each, and `sidekiq-scheduler:states` JSON for those that were switched on or off in the gem's Web tab.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import pairs
from sidekiq_py.wire.json_dialect import loads_or_none

# The ways to define a schedule.
_KINDS = ("cron", "every", "interval", "at", "in")
_KEYS = ("schedules", "sidekiq-scheduler:last_times", "sidekiq-scheduler:states")


def entries(pool: Pool) -> Iterator[Mapping[str, Any]]:
    """Yield a mapping for each of its schedules; those that cannot be read are skipped."""
    replies = pool.replies([("HGETALL", key) for key in _KEYS])
    # Another program's keys may have these names, and this user may lack the right to some of them.
    found, last_times, states = ({} if isinstance(reply, RedisReplyError) else _pairs(reply) for reply in replies)
    for name, text in sorted(found.items()):
        entry = _mapping(text)
        if entry is not None:
            kind = next((kind for kind in _KINDS if kind in entry), None)
            yield {
                "name": name,
                "cron": f"{'' if kind == 'cron' else f'{kind} '}{_first(entry[kind])}" if kind else "",
                "class": str(entry.get("class", name)),
                "by": "sidekiq-scheduler",
                "enabled": _is_enabled(entry, _mapping(states.get(name, b"")) or {}),
                "last_enqueue_time": last_times.get(name, b"").decode(errors="replace") or None,
            }


def _is_enabled(entry: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """The Web tab's switch counts more than the entry's own option. In Ruby only null and false are untrue."""
    return state.get("enabled", entry.get("enabled", True)) not in (None, False)


def _mapping(text: bytes) -> dict[str, Any] | None:
    value = loads_or_none(text)
    return value if isinstance(value, dict) else None


def _first(value: Any) -> Any:
    """Without options: `every: ["1h", {first_in: "5m"}]` has them after the value."""
    return value[0] if isinstance(value, list) and value else value


def _pairs(reply: Any) -> dict[str, bytes]:
    return {key.decode(errors="replace"): value for key, value in pairs(reply)}
