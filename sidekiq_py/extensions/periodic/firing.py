"""
Fires due ticks, in the one process of the fleet that does maintenance; for a moment there may be two.

1. Read the timetable after each change, and every five seconds, because Ruby's Web tab does not signal changes.
2. For each job that Python fires, find the due ticks that have not been fired.
3. Push each in one script with its claim and records: a second process is refused, and none can die in between.
4. Claim coming ticks in advance if Ruby must not fire them.
5. Sleep until the next tick, or half a second.

All times are Redis's, because the clocks of machines differ. If the clock goes back, ticks that were fired do not fire
again.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, takewhile
from math import inf

from sidekiq_py import program
from sidekiq_py.client import extended_push
from sidekiq_py.client.sync_client import Client, of_pool
from sidekiq_py.errors import RedisError, RedisReplyError, SidekiqError
from sidekiq_py.extensions.periodic import store, verbs
from sidekiq_py.extensions.periodic.keys import DEFAULT_NAMESPACE, PAYLOAD_KEY
from sidekiq_py.extensions.periodic.layout import enqueue_time, tick_text
from sidekiq_py.extensions.periodic.store import StoredJob
from sidekiq_py.extensions.periodic.ticks import is_repeated, upcoming
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path.push import PushSlice, push_batch_of
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire.failure import error_text

READ_EVERY_SECONDS = 5.0
LOOK_EVERY_SECONDS = 0.5
# The same as the gem's `reschedule_grace_period`.
GRACE_SECONDS = 60.0
MOST_CAUGHT_UP = 100
# Ruby only looks at the last tick, so a planted tick has to be there when it is due, even if another process has taken
# over the maintenance meanwhile.
PLANT_AHEAD_SECONDS = 600.0
_LEAST_PLANTED = 2
_MOST_PLANTED = 40


class Firing:
    """
    The timetable as known to the process that does maintenance.

    Args:
        fire_ruby_jobs: Also fire jobs that Ruby has declared, unless they need Ruby.
        namespaces: The namespaces of sidekiq-cron (since 2.0).
    """

    def __init__(self, *, fire_ruby_jobs: bool = False, namespaces: Iterable[str] = (DEFAULT_NAMESPACE,)) -> None:
        self._fires_ruby_jobs = fire_ruby_jobs
        self._namespaces = tuple(namespaces)
        self._jobs: list[StoredJob] = []
        self._done: dict[str, int] = {}
        self._next: dict[str, float] = {}
        self._changes: bytes | None = None
        self._read_at = 0.0
        self._complained: dict[str, str] = {}

    def round(self, pool: Pool) -> float | None:
        """Fire what is due now. Returns the seconds until the next round, or None if nothing will be due."""
        now, changes = store.clock_and_changes(pool)
        self.look(pool, now, changes)
        if not self._jobs:
            return None
        return min(LOOK_EVERY_SECONDS, max(0.0, self._next_push(now) - store.redis_now(pool)))

    def look(self, pool: Pool, now: float, changes: bytes = b"") -> list[str]:
        """
        Fire what is due at *now*.

        Args:
            changes: The counter from `clock_and_changes`; if it has changed, the timetable is read again.

        Returns:
            The jids of the pushed jobs.
        """
        if changes != self._changes or not 0 <= now - self._read_at < READ_EVERY_SECONDS:
            self._read(pool, now)
            self._changes, self._read_at = changes, now
        client = of_pool(pool)
        pushed: list[str] = []
        for job in self._jobs:
            try:
                for tick in self._due(job, now):
                    jid = self._fire(client, job, tick, now)
                    if jid:
                        pushed.append(jid)
            # Also what a client middleware raises: the other jobs still fire.
            except BaseException as error:
                if isinstance(error, RedisError) and error.is_about_server:
                    raise
                is_ours = isinstance(error, SidekiqError)
                self._complain(job, str(error) if is_ours else f"{type(error).__name__}: {error_text(error)}")
                # Its tick is not done, so it is tried again for as long as it may be late.
                self._next[job.key] = now + READ_EVERY_SECONDS
        return pushed

    def _read(self, pool: Pool, now: float) -> None:
        before, ticks = {job.key: job for job in self._jobs}, self._next
        self._jobs, self._next = [], {}
        for job in store.read_all(pool, namespaces=self._namespaces):
            try:
                if not self._is_fired_here(job):
                    if back := store.given_back(job, now):
                        store.write(pool, *back)
                    continue
                if job.problem is not None:
                    self._complain(job, job.problem)
                    continue
                assert job.entry is not None
                if not job.entry.is_enabled:
                    self._note_disabled(pool, job)
                    continue
                enabled = self._note_enabled(pool, job, now) if job.own.was_disabled else job
                if enabled.own.has_policy:
                    self._plant(pool, enabled, now)
            except RedisReplyError as refusal:
                # Another program has written to this job's keys; the other jobs still fire.
                if refusal.is_about_server:
                    raise
                self._complain(job, str(refusal))
            else:
                self._jobs.append(enabled)
        self._done = {job.key: self._done[job.key] for job in self._jobs if job.key in self._done}
        # To find the next ticks takes half the time of a look. Those of a clock that was ahead may be too far off.
        if now >= self._read_at:
            unchanged = (job.key for job in self._jobs if job == before.get(job.key))
            self._next = {key: ticks[key] for key in unchanged if key in ticks}

    def _is_fired_here(self, job: StoredJob) -> bool:
        if job.own.is_ours:
            return True
        return self._fires_ruby_jobs and job.entry is not None and job.entry.why_ruby_alone() is None

    def _note_disabled(self, pool: Pool, job: StoredJob) -> None:
        """Remember that the job is disabled: Ruby's Web tab does not record it."""
        if not job.own.was_disabled:
            pool.command("HSET", job.own_key, "was_disabled", "1")

    def _note_enabled(self, pool: Pool, job: StoredJob, now: float) -> StoredJob:
        """Record when it was enabled, so that ticks that passed while it was disabled are not made up for."""
        pool.batch([("HSET", job.own_key, "since", f"{now:.3f}"), ("HDEL", job.own_key, "was_disabled")])
        return job._replace(own=replace(job.own, since=now, was_disabled=False))

    def _due(self, job: StoredJob, now: float) -> list[int]:
        """The ticks of a job that should be fired now, earliest first."""
        if self._first(job, now) > now:
            return []
        assert job.cron is not None
        ticks = [
            tick
            for tick in takewhile(lambda tick: tick <= now, upcoming(job.cron, self._after(job, now)))
            if tick + _delay(job, tick) <= now and not (job.own.once_on_dst and is_repeated(job.cron, tick))
        ]
        return ticks[-1:] if job.own.catch_up_seconds is None else ticks[-MOST_CAUGHT_UP:]

    def _first(self, job: StoredJob, now: float) -> float:
        """The first tick that may still have to be fired; computed again once it has passed."""
        first = self._next.get(job.key, 0.0)
        if first <= now:
            assert job.cron is not None
            first = self._next[job.key] = next(upcoming(job.cron, self._after(job, now)), inf)
        return first

    def _after(self, job: StoredJob, now: float) -> float:
        """The time up to which ticks have fired, or no longer need to."""
        catch_up = job.own.catch_up_seconds
        window = max(catch_up or 0.0, GRACE_SECONDS) + job.own.jitter_seconds
        return max(job.own.fired, self._done.get(job.key, 0), job.own.since, now - window)

    def _next_push(self, now: float) -> float:
        """The time at which the next tick of any job should be pushed."""
        pushes = [first + _delay(job, int(first)) for job in self._jobs if (first := self._first(job, now)) < inf]
        return min((at for at in pushes if at > now), default=inf)

    def _fire(self, client: Client, job: StoredJob, tick: int, now: float) -> str | None:
        """Push one tick. Returns its jid, or None if it must not be pushed."""
        jid = None
        try:
            jid = push(client, job, tick, now)
        except RedisReplyError as refusal:
            if refusal.code == "CRONOFF":
                self._changes = None
            elif refusal.code == "CRONRUNNING":
                store.write(client.pool, pass_effect(job, tick, now, "skipped"))
            elif refusal.code != "CRONTAKEN":
                raise
        self._done[job.key] = max(tick, self._done.get(job.key, 0))
        return jid

    def _plant(self, pool: Pool, job: StoredJob, now: float) -> None:
        assert job.cron is not None
        ahead = list(islice(upcoming(job.cron, now), _MOST_PLANTED))
        near = [tick for at, tick in enumerate(ahead) if at < _LEAST_PLANTED or tick <= now + PLANT_AHEAD_SECONDS]
        missing = [tick for tick in near if tick not in job.own.planted]
        past = [f"p:{tick}" for tick in job.own.planted if tick <= self._after(job, now)]
        effects: list[Effect] = [("HDEL", job.own_key, *past)] if past else []
        if missing:
            words = [word for tick in missing for word in (tick, tick_text(tick))]
            effects.append((verbs.PLANT.name, job.own_key, *words))
        if effects:
            store.write(pool, *effects)

    def _complain(self, job: StoredJob, problem: str) -> None:
        """Log each problem once, although the job is looked at again and again."""
        if self._complained.get(job.key) != problem:
            self._complained[job.key] = problem
            log.warning("periodic job %s is skipped: %s", job.name, problem)


def push(client: Client, job: StoredJob, tick: int, now: float) -> str | None:
    """
    Claim a tick and push its job, in one script.

    Returns:
        The jid, or None if a client middleware stopped the push; the tick is then skipped.

    Raises:
        RedisReplyError: The tick must not be fired: `CRONTAKEN`, `CRONOFF`, `CRONRUNNING`.
        SidekiqError: No job could be made from it, or Redis cannot be reached.
    """
    assert job.entry is not None
    prepared = prepare(client, job, now)
    if prepared is None:
        store.write(client.pool, pass_effect(job, tick, now, "stopped"))
        return None
    jid, push_effects = prepared
    claim = (
        verbs.CLAIM.name,
        job.own_key,
        job.other_key,
        tick,
        tick_text(tick),
        job.entry.cron,
        f"{now:.3f}",
        enqueue_time(now),
        jid,
        job.layout.history_line(jid, now),
    )
    try:
        store.write(client.pool, claim, *push_effects)
    except RedisReplyError as refusal:
        # After a lost reply the script is sent again and finds its own claim.
        if refusal.code != "CRONTAKEN" or not store.was_pushed(client.pool, job.key, jid):
            raise
    return jid


def prepare(client: Client, job: StoredJob, now: float) -> tuple[str, list[Effect]] | None:
    """The jid and the commands of a push; None if a middleware or an extension stopped it."""
    assert job.entry is not None
    payload = job.entry.payload(now)
    ready = client.prepare({**payload, PAYLOAD_KEY: job.key})
    if ready is None:
        return None
    dialect = client.detection.dialect(now)
    # The stored message has the options of its class.
    pushed = program.extensions.push(PushSlice([push_batch_of(ready)], job.entry.klass, payload, client.pool, dialect))
    return (ready.jid, extended_push.effects_of(pushed)) if pushed.outgoing else None


def pass_effect(job: StoredJob, tick: int, now: float, why: str) -> Effect:
    """The command that skips a tick in both languages."""
    return (verbs.PASS.name, job.own_key, tick, tick_text(tick), f"{now:.3f}", why)


def _delay(job: StoredJob, tick: int) -> float:
    """The deliberate delay (jitter) of a tick, the same in every process."""
    if not job.own.jitter_seconds:
        return 0.0
    digest = hashlib.sha256(f"{job.key} {tick}".encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:8]) / 2**64 * job.own.jitter_seconds


def run_by_hand(client: Client, job: StoredJob, now: float) -> str | None:
    """Push a job regardless of its timetable and policies. Returns its jid, or None if a middleware stopped it."""
    prepared = prepare(client, job, now)
    if prepared is None:
        return None
    jid, push_effects = prepared
    line = job.layout.history_line(jid, now)
    store.write(
        client.pool,
        ("HSET", job.key, "last_enqueue_time", enqueue_time(now)),
        ("LPUSH", f"{job.key}:jid_history", line),
        ("LTRIM", f"{job.key}:jid_history", 0, 9),
        ("LPUSH", store.RUNS_PREFIX + job.key, f"{jid} 0 {now:.3f} pushed"),
        ("LTRIM", store.RUNS_PREFIX + job.key, 0, 99),
        *push_effects,
    )
    return jid
