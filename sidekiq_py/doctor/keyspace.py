"""Facts from key names: products beside Sidekiq, namespaces, queues missing from `queues`, in-flight keys of owners."""

import enum
import re
from typing import NamedTuple

from sidekiq_py.clock import monotonic
from sidekiq_py.doctor import families
from sidekiq_py.doctor.families import family_of
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import survey
from sidekiq_py.wire import keys

# The limit for each of three scans.
SECONDS_AT_MOST = 5.0
# Looked up by name, because the scan of all keys may be cut off before it reaches them.
_LANDMARKS = (
    *("batches", "super_processes", "dear-leader", "cron_jobs", "cron_jobs:default", "schedules", "schedules_changed"),
    *("uniquejobs:digests", "uniquejobs:live"),
)
_IN_FLIGHT = keys.in_flight("")
_QUEUE = keys.queue("")
_OURS = "sidekiq_py:"
_COUNTERS = re.compile(r"stat:(?:processed|failed)(?::\d{4}-\d\d-\d\d)?")
_NAMESPACED = ":" + keys.QUEUES
# <hostname>:<pid>:<12 hex>:<epoch>:<queue>
_INBOX = re.compile(re.escape(keys.INBOX_PREFIX) + r"(.+?:\d+:[0-9a-f]+:\d+):(.*)", re.DOTALL)


class Part(enum.Enum):
    """A part of the key names."""

    QUEUES = "queues"
    OURS = "ours"
    ALL = "all"


class Keyspace(NamedTuple):
    """
    Key names, sorted.

    Args:
        seen: How many keys were looked at.
        whole: The parts of which no name was missed.
        ours: All keys of sidekiq_py.
        counters: Sidekiq's counters.
        families: Key names by the title of their family.
        queues: The names of the lists `queue:<name>` that belong to no other product.
        namespaces: The namespaces for which a set `<namespace>:queues` exists.
        in_flight: Owners that have an in-flight hash.
        inboxes: Maps each owner to the queues of its inboxes.
    """

    seen: int
    whole: frozenset[Part]
    ours: list[str]
    counters: list[str]
    families: dict[str, list[str]]
    queues: list[str]
    namespaces: list[str]
    in_flight: list[str]
    inboxes: dict[str, list[str]]


def gather(pool: Pool) -> Keyspace:
    """
    Scan the key names as far as the time limits allow: first those of queues, then those of sidekiq_py, then all.

    Redis filters the first two itself, so they finish in a fraction of the time that the scan of all names takes.

    Raises:
        RedisError: Redis did not answer, or does not let this user scan.
    """
    walks = {
        Part.QUEUES: _walk(pool, _QUEUE + "*"),
        Part.OURS: _walk(pool, _OURS + "*"),
        Part.ALL: _walk(pool, "*"),
    }
    names = frozenset().union(*(walk.names for walk in walks.values()), survey.existing(pool, _LANDMARKS))
    is_whole = walks[Part.ALL].is_whole
    found = families.grouped(names)
    theirs = {name for group in found.values() for name in group}
    sets = [name for name in names if name.endswith(_NAMESPACED) and name != _NAMESPACED]
    kinds = survey.kinds(pool, sets)
    inboxes: dict[str, list[str]] = {}
    for name in sorted(names):
        match = _INBOX.fullmatch(name)
        if match is not None:
            inboxes.setdefault(match[1], []).append(match[2])
    return Keyspace(
        seen=max(len(names), walks[Part.ALL].seen),
        whole=frozenset(part for part, walk in walks.items() if walk.is_whole or is_whole),
        ours=sorted(name for name in names if name.startswith(_OURS)),
        counters=sorted(name for name in names if _COUNTERS.fullmatch(name)),
        families=found,
        queues=_tails(names - theirs, _QUEUE),
        namespaces=sorted(name.removesuffix(_NAMESPACED) for name in sets if kinds[name] == "set"),
        in_flight=_tails(names, _IN_FLIGHT),
        inboxes=inboxes,
    )


def _walk(pool: Pool, match: str) -> survey.Walk:
    end = monotonic() + SECONDS_AT_MOST
    return survey.walk(pool, match, is_late=lambda: monotonic() > end, is_kept=_is_relevant)


def _is_relevant(name: str) -> bool:
    is_ours = name.startswith((_QUEUE, _OURS, "stat:")) or name.endswith(_NAMESPACED)
    return is_ours or family_of(name) is not None


def _tails(names: frozenset[str], prefix: str) -> list[str]:
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
