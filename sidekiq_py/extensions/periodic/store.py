"""The timetable in Redis: it is read as a whole and changed one job at a time, each change in one script."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.periodic import verbs
from sidekiq_py.extensions.periodic.cron_text import CronText, CronTextError, may_be_read_by_ruby, parse
from sidekiq_py.extensions.periodic.keys import CHANGES, DECLARED, DEFAULT_NAMESPACE, OWN_PREFIX, set_key
from sidekiq_py.extensions.periodic.layout import (
    LATEST,
    LAYOUTS,
    CronEntry,
    DamagedJobError,
    Layout,
    OwnState,
    epoch_of,
    json_text,
    layout_of,
    read_entry,
    read_own,
    tick_of,
    tick_text,
)
from sidekiq_py.extensions.periodic.ticks import next_times, previous_time
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import epoch_seconds, name_in, pairs, raise_first
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire.json_dialect import loads_or_none

RUNS_PREFIX = "sidekiq_py:cron_runs:"

# A tick whose push is not in the gem's history this long afterwards was not pushed.
_GRACE_SECONDS = 90.0


class StoredJob(NamedTuple):
    """
    A periodic job as stored in Redis.

    Args:
        key: The key of its hash.
        layout: The layout of the releases that read it.
        entry: The parsed hash; None if it is damaged.
        cron: The parsed text; None if it cannot be parsed.
        problem: What is wrong with it, or None.
        is_unread: True if Redis refused to let its keys be read; for others, the job may be in order.
        is_for_ruby: True if Ruby declared it with a text that cannot be read here, and may be read there.
    """

    key: str
    layout: Layout
    entry: CronEntry | None
    own: OwnState
    cron: CronText | None = None
    problem: str | None = None
    is_unread: bool = False
    is_for_ruby: bool = False

    @property
    def name(self) -> str:
        """Its name; taken from the key if the hash has none."""
        return self.entry.name if self.entry else name_of(self.key, self.layout)

    @property
    def namespace(self) -> str:
        """The gem's namespace."""
        if self.entry is not None:
            return self.entry.namespace
        # Another program may have put anything into the set that lists the keys.
        parts = self.key.split(":", 2)
        return parts[1] if self.layout.has_namespaces and len(parts) == 3 else DEFAULT_NAMESPACE

    @property
    def own_key(self) -> str:
        """The key of Python's own data."""
        return OWN_PREFIX + self.key

    def next_ticks(self, now: float, count: int = 1) -> list[datetime]:
        """
        The first *count* ticks that will fire after *now*, by Redis's clock.

        If that clock was set back behind the last tick that Python has fired, those after that one: none fires twice.
        """
        return [] if self.cron is None else next_times(self.cron, max(now, self.own.fired), count)

    @property
    def other_key(self) -> str:
        """The key of the same job in the other layout; empty where it can have none."""
        return other_key(self.key)


Listed = tuple[str, Layout]
"""The key of a periodic job, and its layout."""


def name_of(key: str, layout: Layout) -> str:
    """The name of the job with this key."""
    return key.split(":", 2 if layout.has_namespaces else 1)[-1]


def other_key(key: str) -> str:
    """The key of the same job in the other layout; empty where it can have none."""
    in_default = f"cron_job:{DEFAULT_NAMESPACE}:"
    if key.startswith(in_default):
        return "cron_job:" + key.removeprefix(in_default)
    return in_default + key.removeprefix("cron_job:") if key.count(":") == 1 else ""


@dataclass(frozen=True, slots=True)
class Run:
    """
    What happened to a tick.

    Args:
        jid: None if nothing was pushed.
        tick: Seconds since the epoch; 0 for a run by hand.
        pushed_at: When it was pushed or skipped.
        outcome: `pushed` until the run ends here; then `success`, `retry`, `dead` …; or why nothing was pushed.
        seconds: How long its last attempt ran, since it was resumed if it is iterable; None if it has not ended in a
            Python worker.
    """

    jid: str | None
    tick: int
    pushed_at: float
    outcome: str
    ended_at: float | None = None
    seconds: float | None = None


def layout_in_use(pool: Pool, cron_version: str | None) -> Layout:
    """
    The layout for the releases of the gem that read this Redis.

    Args:
        cron_version: As configured. Without it, 1.x is assumed only if it has jobs and 2.x has none but Python's.
    """
    if cron_version is not None:
        return layout_of(cron_version)
    old = members(pool, LAYOUTS["1.8"].set_key())
    if not old or members(pool, LAYOUTS["2"].set_key()) - declared_keys(pool):
        return LAYOUTS["2"]
    has_flag = _replies(pool, [("HEXISTS", key, "symbolize_args") for key in old])
    return LAYOUTS["1.8" if any(has_flag) else "1.2"]


def read_all(pool: Pool, *, namespaces: Iterable[str] = (DEFAULT_NAMESPACE,)) -> list[StoredJob]:
    """
    All periodic jobs of both layouts, by name: those of *namespaces*, and those that Python declared in other ones.
    """
    return read(pool, listed(pool, namespaces=namespaces))


def listed(pool: Pool, *, namespaces: Iterable[str] = (DEFAULT_NAMESPACE,)) -> list[Listed]:
    """The keys of the jobs that `read_all` reads."""
    sets = {LAYOUTS["1.8"].set_key(): LAYOUTS["1.8"]}
    sets |= {LAYOUTS["2"].set_key(namespace): LAYOUTS["2"] for namespace in namespaces}
    *stored, declared = _replies(pool, [("SMEMBERS", key) for key in (*sets, DECLARED)])
    keys = [
        (name_in(key), layout) for layout, found in zip(sets.values(), stored, strict=True) for key in sorted(found)
    ]
    return keys + [(key, LAYOUTS["2"]) for key in _declared_elsewhere(pool, declared, sets)]


def read(pool: Pool, keys: Sequence[Listed]) -> list[StoredJob]:
    """The jobs with these keys, in one round trip."""
    commands = [command for key, _ in keys for command in (("HGETALL", key), ("HGETALL", OWN_PREFIX + key))]
    replies = pool.replies(commands)
    raise_first([reply for reply in replies if isinstance(reply, RedisReplyError) and reply.is_about_server])
    return [
        _stored(key, layout, hashed, own) for (key, layout), (hashed, own) in zip(keys, pairs(replies), strict=True)
    ]


def _declared_elsewhere(pool: Pool, declared: Iterable[bytes], sets: Collection[str]) -> list[str]:
    """Keys of jobs that Python has declared in namespaces other than those of *sets*."""
    by_set: dict[str, list[str]] = {}
    for raw in sorted(declared):
        key = name_in(raw)
        # Jobs of release 1, whose names may contain colons, have no such set.
        parts = key.split(":", 2)
        if len(parts) == 3 and set_key(parts[1]) not in sets:
            by_set.setdefault(set_key(parts[1]), []).append(key)
    # Another program's namespace may be out of bounds for this user.
    replies = pool.readable([("SMEMBERS", name) for name in by_set])
    return [
        key
        for keys, found in zip(by_set.values(), replies, strict=True)
        for members in [frozenset(map(name_in, found or ()))]
        for key in keys
        if key in members
    ]


def find(
    pool: Pool, name: str, namespace: str | None = None, *, namespaces: Iterable[str] = (DEFAULT_NAMESPACE,)
) -> StoredJob | None:
    """
    The job with this name; if both layouts have one, that of the newer layout.

    Source: sidekiq-cron 2.3.1, job.rb, `Job.find` also finds a job by its key, which ends in its name.
    """
    if namespace:
        # Its keys are known: the whole timetable, which may be long, is not read.
        keys = [(f"cron_job:{name}", LAYOUTS["1.8"]), (f"cron_job:{namespace}:{name}", LAYOUTS["2"])]
        lists = [("SISMEMBER", layout.set_key(namespace), key) for key, layout in keys]
        keys = [one for one, is_listed in zip(keys, pool.well_typed(lists), strict=True) if is_listed]
    else:
        keys = [one for one in listed(pool, namespaces=namespaces) if f":{one[0]}".endswith(f":{name}")]
    found = [job for job in read(pool, keys) if job.name == name and namespace in (None, job.namespace)]
    return found[-1] if found else None


def _stored(key: str, layout: Layout, hashed: Any, own: Any) -> StoredJob:
    state = OwnState() if isinstance(own, RedisReplyError) else read_own(dict(pairs(own)))
    refusal = next((reply for reply in (hashed, own) if isinstance(reply, RedisReplyError)), None)
    if refusal is not None and refusal.code != "WRONGTYPE":
        return StoredJob(key, layout, None, state, problem=f"its keys cannot be read: {refusal}", is_unread=True)
    if isinstance(hashed, RedisReplyError):
        return StoredJob(key, layout, None, state, problem=f"the key {key} is not a hash; delete it")
    try:
        entry = read_entry(key, dict(pairs(hashed)))
    except DamagedJobError as error:
        return StoredJob(key, layout, None, state, problem=str(error))
    if _is_taken_over(entry, state):
        state = replace(state, is_ours=False)
    try:
        return StoredJob(key, layout, entry, state, *_timetable(entry.cron))
    except CronTextError as error:
        if not state.is_ours and may_be_read_by_ruby(entry.cron):
            problem = f"only Ruby may be able to read {entry.cron!r}, so its ticks are unknown here"
            return StoredJob(key, layout, entry, state, problem=problem, is_for_ruby=True)
        return StoredJob(key, layout, entry, state, problem=str(error))


# Looking for a tick took two thirds of the time of reading 5,000 jobs, which happens every five seconds. They are read
# in turn: with room for fewer texts than there are, each would be forgotten before it is read again.
@lru_cache(maxsize=2**16)
def _timetable(text: str) -> tuple[CronText, str | None]:
    """The parsed text, and what is wrong with it if it can be read."""
    cron = parse(text)
    return cron, None if previous_time(cron, 2_000_000_000.0) is not None else f"{text!r} is never due"


def _is_taken_over(entry: CronEntry, own: OwnState) -> bool:
    """Whether Ruby has declared a job of the same name since: of another class, or in a schedule file (2.x)."""
    return own.is_ours and (entry.source == "schedule" or own.klass not in ("", entry.klass))


def _replies(pool: Pool, commands: Sequence[Command]) -> list[Any]:
    """The replies; empty for a key of the wrong type, which the doctor reports."""
    return [[] if reply is None else reply for reply in pool.well_typed(commands)]


def wrong_types(pool: Pool, jobs: Sequence[StoredJob]) -> list[str]:
    """Keys of the timetable, except the gem's hashes, that another program has overwritten with another type."""
    wanted = dict.fromkeys((DECLARED, *(layout.set_key() for layout in LAYOUTS.values())), b"set")
    wanted[CHANGES] = b"string"
    for job in jobs:
        wanted |= {job.own_key: b"hash", f"{job.key}:enqueued": b"zset"}
        wanted |= {f"{job.key}:jid_history": b"list", RUNS_PREFIX + job.key: b"list"}
    found = _replies(pool, [("TYPE", key) for key in wanted])
    return [key for key, kind in zip(wanted, found, strict=True) if kind not in (wanted[key], b"none")]


def write(pool: Pool, *effects: Effect) -> None:
    """
    Change the timetable atomically.

    Raises:
        RedisReplyError: A verb or Redis refused it.
    """
    pool.run(lambda link: settle_script.write(link, effects))


def given_back(job: StoredJob, now: float) -> list[Effect]:
    """What leaves the coming ticks of a job to Ruby, which has taken it over; empty if none are claimed in advance."""
    coming = [tick_text(tick) for tick in job.own.planted if tick > now]
    marks = [f"p:{tick}" for tick in job.own.planted]
    effects: list[Effect] = [("ZREM", f"{job.key}:enqueued", *coming)] if coming else []
    return [*effects, ("HDEL", job.own_key, *marks)] if marks else effects


def save_effect(layout: Layout, entry: CronEntry, own: OwnState, *, now: float) -> Effect:
    """The command that writes a job, as the gem's `save` does."""
    cron = parse(entry.cron)
    previous = previous_time(cron, now)
    key = layout.key_of(entry)
    mine = [
        *("by", own.by, "rival", own.rival, "cron", entry.cron, "overlap", own.overlap),
        *("catch_up", "" if own.catch_up_seconds is None else f"{own.catch_up_seconds:g}"),
        *("jitter", f"{own.jitter_seconds:g}", "once_on_dst", "1" if own.once_on_dst else "0"),
        *("ours", "1", "copy", json_text(dict(pairs(entry.fields(layout))))),
    ]
    return (
        verbs.SAVE.name,
        OWN_PREFIX + key,
        layout.set_key(entry.namespace),
        key,
        f"{now:.6f}",
        "" if previous is None else tick_text(previous),
        verbs.FORMAT,
        len(mine),
        *mine,
        *entry.fields(layout),
    )


def remove_effect(job: StoredJob) -> Effect:
    """The command that deletes a job, as the gem's `destroy` does."""
    return (verbs.REMOVE.name, job.own_key, job.layout.set_key(job.namespace), job.key)


def forget_effect(key: str) -> Effect:
    """The command that deletes Python's own data about a job that others have deleted. A job that exists keeps it."""
    return (verbs.FORGET.name, OWN_PREFIX + key, key)


def status_effect(job: StoredJob, *, is_enabled: bool, reason: str, now: float) -> Effect:
    """
    The command that enables or disables a job.

    Raises:
        TypeError: *reason* is not a text.
    """
    if not isinstance(reason, str):
        raise TypeError(f"the reason is {reason!r}; give a text, or leave it out")
    return (verbs.STATUS.name, job.own_key, "enabled" if is_enabled else "disabled", reason, f"{now:.3f}")


def write_status(pool: Pool, jobs: Sequence[StoredJob], *, is_enabled: bool, reason: str, now: float) -> list[bool]:
    """Enable or disable several jobs. Returns False for each that was removed in the meantime, or is damaged."""
    try:
        write(pool, *(status_effect(job, is_enabled=is_enabled, reason=reason, now=now) for job in jobs))
    except RedisReplyError as refusal:
        if refusal.code not in ("CRONGONE", "WRONGTYPE"):
            raise
        if len(jobs) == 1:
            return [False]
        # Nothing was written, because of one of them.
        return [write_status(pool, [job], is_enabled=is_enabled, reason=reason, now=now)[0] for job in jobs]
    return [True] * len(jobs)


def declared_keys(pool: Pool) -> set[str]:
    """The keys of all jobs that Python has declared or added."""
    return members(pool, DECLARED)


def declared_among(pool: Pool, keys: Sequence[str]) -> set[str]:
    """Those of the keys whose jobs Python has declared or added."""
    replies = pool.well_typed([("SISMEMBER", DECLARED, key) for key in keys])
    return {key for key, is_declared in zip(keys, replies, strict=True) if is_declared}


def members(pool: Pool, key: str) -> set[str]:
    """The members of a set of keys."""
    [found] = _replies(pool, [("SMEMBERS", key)])
    return set(map(name_in, found))


def own_states(pool: Pool, keys: Sequence[str]) -> dict[str, OwnState]:
    """Python's own data about each job, by its key."""
    replies = _replies(pool, [("HGETALL", OWN_PREFIX + key) for key in keys])
    return {key: read_own(dict(pairs(found))) for key, found in zip(keys, replies, strict=True)}


def restore_effect(key: str, own: OwnState, *, now: float) -> Effect | None:
    """The command that restores a deleted declared job; None if there is no usable copy."""
    try:
        fields = {str(name).encode(): str(value).encode() for name, value in own.copied.items()}
        entry = read_entry(key, fields)
        parse(entry.cron)
    except ValueError:  # DamagedJobError and CronTextError are among them
        return None
    layout = LAYOUTS["2" if b"namespace" in fields else "1.8"]
    return save_effect(layout, replace(entry, last_enqueue_time=""), own, now=now)


def runs(pool: Pool, key: str) -> list[Run]:
    """The last hundred ticks of a job that Python has fired, newest first."""
    return _runs_in(_replies(pool, [_runs_of(key)])[0])


def _runs_of(key: str) -> Command:
    return ("LRANGE", RUNS_PREFIX + key, 0, -1)


def _runs_in(rows: Iterable[bytes]) -> list[Run]:
    found = []
    for row in rows:
        words = row.decode(errors="replace").split(" ")
        try:
            tick, pushed_at, *ended = map(_seconds, (*words[1:3], *(words[4:6] if len(words) > 5 else ())))
            jid = None if words[0] == "-" else words[0]
            found.append(Run(jid, int(tick), pushed_at, words[3], *ended))
        except (IndexError, ValueError):
            continue
    return found


def _seconds(text: str) -> float:
    """
    Parse a number of seconds with which times can be calculated.

    Raises:
        ValueError: Another program wrote it.
    """
    seconds = float(text)
    if not 0 <= seconds < LATEST:
        raise ValueError(f"{text} is not a number of seconds")
    return seconds


def was_pushed(pool: Pool, key: str, jid: str) -> bool:
    """True if this push was recorded."""
    return any(run.jid == jid for run in runs(pool, key))


def jid_history(pool: Pool, key: str) -> list[dict[str, Any]]:
    """The gem's list of the last pushes, newest first."""
    return _pushes_in(_replies(pool, [_pushes_of(key)])[0])


def _pushes_of(key: str) -> Command:
    return ("LRANGE", f"{key}:jid_history", 0, -1)


def _pushes_in(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [entry for entry in map(loads_or_none, lines) if isinstance(entry, dict)]


def lost_ticks(pool: Pool, jobs: Sequence[StoredJob], now: float) -> list[list[int]]:
    """
    For each job, ticks that a Ruby process claimed and never pushed, because it died in between.

    Goes back only as far as the gem's history of pushes.
    """
    commands = [
        command
        for job in jobs
        for command in (
            ("ZRANGE", f"{job.key}:enqueued", 0, -1, "WITHSCORES"),
            _pushes_of(job.key),
            _runs_of(job.key),
        )
    ]
    replies = _replies(pool, commands)
    return [
        [] if job.cron is None else _lost_ticks(job, now, *replies[at : at + 3])
        for job, at in zip(jobs, range(0, len(replies), 3), strict=True)
    ]


def _lost_ticks(
    job: StoredJob, now: float, taken: Sequence[bytes], lines: Iterable[bytes], rows: Iterable[bytes]
) -> list[int]:
    # A tick that was planted by the first save has the time of the save as its score.
    scores = [
        float(score) for member, score in pairs(taken) if tick_of(member.decode(errors="replace")) == float(score)
    ]
    pushes = sorted(
        moment for line in _pushes_in(lines) if (moment := epoch_of(str(line.get("enqueued", "")))) is not None
    )
    known = job.own.planted | {run.tick for run in _runs_in(rows)}
    since = pushes[0] if len(pushes) >= 10 else 0.0
    lost = []
    for tick in sorted(set(map(int, scores)) - known):
        following = [moment for moment in pushes if tick <= moment]
        has_fired = bool(following) and following[0] < tick + _GRACE_SECONDS
        if since < tick < now - _GRACE_SECONDS and not has_fired:
            lost.append(tick)
    return lost


def clock_and_changes(pool: Pool) -> tuple[float, bytes]:
    """Redis's time, in seconds since the epoch, and the number of changes so far."""
    time, changes = pool.replies([("TIME",), ("GET", CHANGES)])
    # NOPERM, for a user with read access only.
    raise_first([time])
    return epoch_seconds(time), changes if isinstance(changes, bytes) else b""


def redis_now(pool: Pool) -> float:
    """Redis's time, in seconds since the epoch."""
    return clock_and_changes(pool)[0]
