"""Keys of Sidekiq and sidekiq_py that hold another type than they should, so that writes to them fail."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.reads import survey
from sidekiq_py.wire import keys

_WORDS = {"zset": "sorted set"}
_NUMBER = "number"
# The text that INCRBY accepts.
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")


class _Kind(NamedTuple):
    """
    The expected type of a key.

    Args:
        name: As TYPE reports it, or `number`.
        broken: What goes wrong if it is something else.
    """

    name: str
    broken: str


class Misfit(NamedTuple):
    """
    A key of the wrong type.

    Args:
        key: Without a namespace.
        seen: A clause: what it is, and what it should be.
        broken: What goes wrong because of it.
    """

    key: str
    seen: str
    broken: str


_FINISHING = _Kind(_NUMBER, "Workers cannot count the jobs they ran, or anything else that is counted in the same step")
_FETCHING = "No Python process can fetch"
_FIXED = {
    keys.QUEUES: _Kind("set", "Every push is refused"),
    keys.SCHEDULE: _Kind("zset", "Every job for later (perform_in, perform_at) is refused"),
    keys.RETRY: _Kind("zset", "No failed job can be put there for its retry"),
    keys.DEAD: _Kind("zset", "No job that has used up its retries can be put there"),
    keys.PROCESSES: _Kind("set", "No process can register, and none is visible"),
    keys.PAUSED: _Kind("set", "No queue can be paused"),
    keys.STAT_PROCESSED: _FINISHING,
    keys.STAT_FAILED: _FINISHING,
    keys.PROCESS_CLEANUP: _Kind("string", "Processes that have ended may stay in the list"),
    keys.OWNERS: _Kind("hash", f"{_FETCHING}, and the jobs of none are recovered"),
    keys.DEPARTED: _Kind("hash", "Jobs of Python processes that have ended may not be recovered"),
    keys.SUSPECTS: _Kind("hash", "Jobs that kill their process are not recognized, and run again without end"),
    keys.DEATHS: _Kind("hash", "Death handlers are not called if a Python process is killed before it could call them"),
    keys.REVOKED: _Kind("zset", _FETCHING),
    keys.NOTICES: _Kind(_NUMBER, _FETCHING),
    keys.AUDIT: _Kind("stream", "The dashboard refuses every action, because it could not record it"),
    keys.BULK_RUNS: _Kind("zset", "The dashboard cannot act on all jobs that match a filter"),
    keys.LOOKOUT_LEASE: _Kind("string", "Jobs of Python processes that died with their machine may not be recovered"),
    keys.POLLER_LEASE: _Kind("string", "Python processes cannot agree on who moves due jobs"),
    keys.EXTENSION_KEYS: _Kind("hash", "Workers do not learn which jobs need an extension that they have not loaded"),
    # Of batches and of Celery's tasks, whose modules stand above this one.
    "sidekiq_py:batches": _Kind("zset", "No batch can be opened, listed or audited"),
    "sidekiq_py:batches:running": _Kind("zset", "No batch can be opened or audited"),
    "sidekiq_py:batches:invalid": _Kind("zset", "Batches cannot be audited, and their jobs wait"),
    "sidekiq_py:batches:ruby": _Kind("set", "Jobs of batches are lost if the Ruby process that runs them is killed"),
    "sidekiq_py:celery_dead": _Kind("zset", "Tasks that have failed stay in flight"),
    "sidekiq_py:revoked_stamps": _Kind("zset", "Tasks cannot be revoked by their stamps"),
    "sidekiq_py:rate_limits": _Kind("hash", "Rate limits of tasks cannot be changed"),
    "sidekiq_py:beats": _Kind("hash", "No beat can start"),
}
_PREFIXES = {
    keys.in_flight(""): _Kind("hash", "The Python process of that name cannot fetch"),
    keys.INBOX_PREFIX: _Kind("list", "The Python process of that name cannot wait for jobs there"),
    keys.lease(""): _Kind("string", "The Python process of that name may count as dead"),
    keys.newest(""): _Kind("string", "Jobs of Python processes that died there may be recovered late"),
    keys.declared(""): _Kind("string", "The classes that the Python process of that name can run stay unknown"),
    "sidekiq_py:batches:ruby:": _Kind("hash", "Jobs of batches are lost if the Ruby process of that name is killed"),
    "sidekiq_py:beat:": _Kind("hash", "The beat of the app of that name cannot start"),
    "sidekiq_py:rate:": _Kind("hash", "The rate limit of the task of that name is not applied"),
}
_QUEUE = _Kind("list", "Pushes to that queue are refused")
_BEAT = _Kind("hash", "The process of that name cannot send its heartbeat, and counts as dead")
_SIGNALS = _Kind("list", "The process of that name cannot be quieted or stopped from the Web UI")


def gather(pool: Pool, identities: Iterable[str], names: Iterable[str], now: float) -> tuple[Misfit, ...]:
    """
    Look at the type of each key.

    Args:
        identities: The registered processes.
        names: Further keys; those without an expected type are ignored.
        now: Seconds since the epoch.

    Raises:
        RedisError: Redis did not answer, or does not let this user read.
    """
    expected = {**_FIXED, **_of_days(now)}
    for identity in identities:
        expected |= {identity: _BEAT, keys.work(identity): _BEAT, keys.work(identity, suffix="workers"): _BEAT}
        expected[keys.signals(identity)] = _SIGNALS
    expected |= {name: kind for name in names if name not in expected and (kind := _kind_of(name)) is not None}
    kinds = survey.kinds(pool, list(expected))
    numbers = [name for name, kind in expected.items() if kind.name == _NUMBER and kinds[name] == "string"]
    texts = survey.texts(pool, numbers)
    no_numbers = {name for name, text in texts.items() if not _INTEGER.fullmatch(text)}
    return tuple(
        Misfit(name, _seen(name, kinds[name], kind.name), kind.broken)
        for name, kind in expected.items()
        if name in no_numbers or kinds[name] not in ("none", "string" if kind.name == _NUMBER else kind.name)
    )


def of_key(pool: Pool, key: str, identities: Iterable[str], now: float) -> Misfit | None:
    """Check one key: None if its type is right. Arguments as for `gather`."""
    if not key.startswith(keys.queue("")):
        return next((found for found in gather(pool, identities, [key], now) if found.key == key), None)
    kind = survey.kinds(pool, [key])[key]
    return None if kind in ("list", "none") else Misfit(key, _seen(key, kind, _QUEUE.name), _QUEUE.broken)


def _of_days(now: float) -> dict[str, _Kind]:
    """Today's counters and those of the days before and after, because clocks differ."""
    today = datetime.fromtimestamp(now, UTC).date()
    days = [(today + timedelta(days=offset)).isoformat() for offset in (-1, 0, 1)]
    return {name(day): _FINISHING for day in days for name in (keys.stat_processed_on, keys.stat_failed_on)}


def _kind_of(name: str) -> _Kind | None:
    if name.startswith((keys.STAT_PROCESSED, keys.STAT_FAILED)):
        return _FINISHING
    return next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), None)


def _seen(key: str, kind: str, expected: str) -> str:
    is_a = f"the key `{key}` is a {_WORDS.get(kind, kind)}"
    if (kind, expected) == ("string", _NUMBER):
        return f"{is_a} that is not a whole number"
    return f"{is_a} and not a {_WORDS.get(expected, expected)}"
