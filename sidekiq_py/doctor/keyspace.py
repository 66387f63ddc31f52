"""What the names of keys tell: products beside Sidekiq, namespaces, queues that no list names, what owners left."""

import re
from dataclasses import dataclass

from sidekiq_py.clock import monotonic
from sidekiq_py.doctor import families
from sidekiq_py.redis_access import survey
from sidekiq_py.redis_access.pool import Pool
from sidekiq_py.wire import keys

KEYS_AT_MOST = 200_000
SECONDS_AT_MOST = 5.0
# Looked for by name, as the walk over all keys may end before it meets them.
_LANDMARKS = (
    *("batches", "super_processes", "dear-leader", "cron_jobs", "cron_jobs:default", "schedules", "schedules_changed"),
    *("uniquejobs:digests", "uniquejobs:live"),
)
_IN_FLIGHT = keys.in_flight("")
_INBOX = keys.inbox("", "").rstrip(":") + ":"
_QUEUE = keys.queue("")
_NAMESPACED = ":" + keys.QUEUES
# <hostname>:<pid>:<12 hex>:<epoch>:<queue>
_INBOX_NAME = re.compile(r"(.+?:\d+:[0-9a-f]+:\d+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Keyspace:
    """
    Names, sorted.

    Args:
        seen: How many keys were looked at.
        is_whole: They are all there is.
        families: By the title of their family.
        queues: Of the lists `queue:<name>` that belong to no other product.
        namespaces: Of the sets `<namespace>:queues`.
        in_flight: Owners that have an in-flight hash.
        inboxes: Owner to the queues of its inboxes.
    """

    seen: int
    is_whole: bool
    families: dict[str, list[str]]
    queues: list[str]
    namespaces: list[str]
    in_flight: list[str]
    inboxes: dict[str, list[str]]


def gather(pool: Pool) -> Keyspace:
    """
    Walk over the names of keys, as far as the limits let.

    Raises:
        RedisError: Redis did not answer, or does not let this user walk.
    """
    end = monotonic() + SECONDS_AT_MOST
    raw, is_whole = survey.key_names(pool, most=KEYS_AT_MOST, is_late=lambda: monotonic() > end)
    names = {name.decode(errors="replace") for name in raw} | survey.existing(pool, _LANDMARKS)
    found = families.grouped(names)
    theirs = {name for group in found.values() for name in group}
    sets = [name for name in names if name.endswith(_NAMESPACED) and name != _NAMESPACED]
    kinds = survey.kinds(pool, sets)
    inboxes: dict[str, list[str]] = {}
    for name in sorted(names):
        match = _INBOX_NAME.fullmatch(name.removeprefix(_INBOX)) if name.startswith(_INBOX) else None
        if match is not None:
            inboxes.setdefault(match[1], []).append(match[2])
    return Keyspace(
        seen=len(names),
        is_whole=is_whole,
        families=found,
        queues=_tails(names - theirs, _QUEUE),
        namespaces=sorted(name.removesuffix(_NAMESPACED) for name in sets if kinds[name] == "set"),
        in_flight=_tails(names, _IN_FLIGHT),
        inboxes=inboxes,
    )


def _tails(names: set[str], prefix: str) -> list[str]:
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
