"""Is this Redis fit to hold jobs?"""

import re
from collections.abc import Iterator

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, Level, note, ok, problem, unseen, verb, warning
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.connection.server_info import OLDEST_REDIS
from sidekiq_py.wire.dialect import version_text

_NOEVICTION_ADVICE = "Set maxmemory-policy to noeviction, and keep caches on another server."
_FULL, _NEARLY_FULL = 0.95, 0.8
# The default of min-replicas-max-lag.
_REDIS_MOST_LAG_SECONDS = 10


def version(facts: Facts) -> Iterator[Finding]:
    """The server's product, version and mode."""
    server = facts.server
    needed = version_text(OLDEST_REDIS)
    if server.mode == "cluster":
        yield problem(
            "This is a Redis Cluster, which cannot move a job from one key to another atomically.",
            "Use a single primary, with Sentinel for failover.",
        )
    elif server.mode == "sentinel":
        yield problem(
            "This is a Sentinel, which holds no data.",
            "Put the service's name into the URL, so that the Sentinel is asked for the primary: "
            "redis+sentinel://host:26379/mymaster",
        )
    elif server.redis_version is None:
        yield unseen(
            "the version", "this user may use neither INFO nor HELLO.", "Let it use INFO: ACL SETUSER <user> +info"
        )
    elif server.redis_version < OLDEST_REDIS:
        yield problem(
            f"This is {server}; Redis {needed} or later is needed, and a Python worker refuses to start.",
            "Upgrade the server.",
        )
    else:
        yield ok(f"{server}.")


def eviction(facts: Facts) -> Iterator[Finding]:
    """What Redis does when its memory is full."""
    policy = facts.server.maxmemory_policy
    limit = facts.info_number("maxmemory")
    evicted = facts.info_number("evicted_keys") or 0
    if policy is None:
        yield Finding(
            Level.UNSEEN,
            "maxmemory-policy could not be looked at: this user may use neither INFO nor CONFIG GET, or this Redis "
            "does not say.",
            "Let it use INFO (ACL SETUSER <user> +info), or ask whoever runs this Redis: it should be noeviction.",
        )
    elif policy == "noeviction":
        yield ok("maxmemory-policy is noeviction.")
    elif policy.startswith("volatile-"):
        yield (problem if evicted else warning)(
            f"maxmemory-policy is {policy}: when its memory is full, this Redis deletes keys that have a time to live: "
            "batches and chords (their callbacks are then never enqueued), results, locks of unique tasks, heartbeats, "
            f"leases, the progress of iterable jobs. Jobs have none.{_gone(evicted)}",
            _NOEVICTION_ADVICE,
        )
    elif limit == 0 and not evicted:
        yield warning(
            f"maxmemory-policy is {policy}. maxmemory is 0, so nothing is deleted yet; with a limit, jobs "
            "would be lost when memory is full.",
            _NOEVICTION_ADVICE,
        )
    else:
        yield problem(
            f"maxmemory-policy is {policy}: when its memory is full, this Redis deletes jobs.{_gone(evicted)}",
            _NOEVICTION_ADVICE,
        )


def _gone(evicted: int) -> str:
    if not evicted:
        return ""
    return f" {counted(evicted, 'key')} {verb(evicted, 'has', 'have')} been evicted since it started."


def memory(facts: Facts) -> Iterator[Finding]:
    """How full the memory is."""
    used, limit = int(facts.info.get("used_memory", 0)), facts.info_number("maxmemory") or 0
    if not limit:
        yield ok(f"Memory: {_megabytes(used)} used, no limit (maxmemory is 0).")
        return
    share = used / limit
    seen = f"Memory: {_megabytes(used)} of {_megabytes(limit)} (maxmemory) are used ({share:.0%})."
    advice = "Raise maxmemory, or drain the queues: a full Redis refuses pushes (OOM)."
    if share >= _FULL:
        yield problem(seen, advice)
    elif share >= _NEARLY_FULL:
        yield warning(seen, advice)
    else:
        yield ok(seen)


def persistence(facts: Facts) -> Iterator[Finding]:
    """What survives a stop or a crash of the server."""
    info = facts.info
    failed = [
        name
        for name in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
        if info.get(name, "ok") != "ok"
    ]
    if failed:
        yield problem(
            f"Redis could not write to its disk ({', '.join(failed)}); by default it refuses every push in that state.",
            "Look at the server's log and at its disk.",
        )
    if info.get("aof_enabled") == "1":
        fsync = facts.setting("appendfsync")
        yield ok(f"The append-only file is on{f', appendfsync {fsync}' if fsync else ''}.")
    elif facts.setting("save") == "":
        yield note(
            "Redis keeps nothing on disk, neither an append-only file nor snapshots: all jobs are lost when the server "
            "stops.",
            "Set appendonly yes. What each setting can lose: docs/delivery.md.",
        )
    else:
        changes = facts.info_number("rdb_changes_since_last_save") or 0
        yield note(
            f"The append-only file is off. A crash of the server loses everything after the last snapshot "
            f"({counted(changes, 'change')} so far).",
            "Set appendonly yes. What each setting can lose: docs/delivery.md.",
        )


def replication(facts: Facts) -> Iterator[Finding]:
    """Is this a primary, and do its replicas keep up?"""
    info = facts.info
    if info.get("role") == "slave":
        yield problem(
            "This is a replica: it refuses every push.",
            "Point REDIS_URL at the primary, or at its Sentinels: redis+sentinel://host:26379/mymaster",
        )
        return
    replicas = [text for name, text in info.items() if name.startswith("slave") and name[5:].isdigit()]
    most = int(facts.setting("min-replicas-max-lag") or 0) or _REDIS_MOST_LAG_SECONDS
    behind = [text for text in replicas if "state=online" not in text or _lag_seconds(text) > most]
    if behind:
        yield warning(
            f"{counted(len(behind), 'replica is', 'replicas are')} not in sync with this primary: {'; '.join(behind)}.",
            "A failover now would lose jobs. Check the replica's log.",
        )
    elif replicas:
        yield ok(f"{counted(len(replicas), 'replica follows', 'replicas follow')}.")
    else:
        yield ok("There is no replica.")


def _lag_seconds(replica: str) -> int:
    """How long ago a replica confirmed what it has received, from its line in INFO."""
    found = re.search(r"\blag=(\d+)", replica)
    return int(found[1]) if found else 0


def _megabytes(number: int) -> str:
    return f"{number / 1_048_576:,.0f} MB"
