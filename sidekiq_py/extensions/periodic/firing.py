"""
Fires the ticks that are due, in the process of the fleet that maintains; for a moment it may be two.

1. Read the timetable, when something has changed, and every five seconds, as Ruby's Web tab leaves no mark.
2. For each job that Python fires, find the ticks that are due and that nobody has fired.
3. Push each in one script with its claim and its books: whoever comes second is refused, and nobody dies in between.
4. Take ticks to come in advance, where Ruby must not fire them.
5. Sleep until the next tick, or half a second.

The time is that of Redis, as machines differ. A tick that a clock has gone back behind never fires again.
"""

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, takewhile
from math import inf

from sidekiq_py.client import extended_push
from sidekiq_py.client.sync_client import Client, of_pool
from sidekiq_py.errors import RedisError, RedisReplyError, SidekiqError
from sidekiq_py.extensions.periodic import store, verbs
from sidekiq_py.extensions.periodic.keys import DEFAULT_NAMESPACE, PAYLOAD_KEY
from sidekiq_py.extensions.periodic.layout import enqueue_time, tick_text
from sidekiq_py.extensions.periodic.store import StoredJob
from sidekiq_py.extensions.periodic.ticks import is_repeated, upcoming
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path.push import push_batch_of
from sidekiq_py.redis_access.job_path.settle_script import Effect

READ_EVERY_SECONDS = 5.0
LOOK_EVERY_SECONDS = 0.5
# As the gem's `reschedule_grace_period`.
GRACE_SECONDS = 60.0
MOST_CAUGHT_UP = 100
# Ruby looks at the last tick alone, so what is planted has to be there when its time comes, also after a change of the
# maintaining process.
PLANT_AHEAD_SECONDS = 600.0
_LEAST_PLANTED = 2
_MOST_PLANTED = 40

_log = logging.getLogger("sidekiq")


class Firing:
    """
    What the maintaining process knows of the timetable.

    Args:
        fire_ruby_jobs: Jobs that Ruby has declared are fired as well, where Ruby is not needed for that.
        namespaces: sidekiq-cron's, since 2.0.
    """

    def __init__(self, *, fire_ruby_jobs: bool = False, namespaces: Iterable[str] = (DEFAULT_NAMESPACE,)) -> None:
        self._fires_ruby_jobs = fire_ruby_jobs
        self._namespaces = tuple(namespaces)
        self._jobs: list[StoredJob] = []
        self._done: dict[str, int] = {}
        self._next: dict[str, float] = {}
        self._changes: bytes | None = None
        self._read_at = 0.0
        self._complained: set[tuple[str, str]] = set()

    def round(self, pool: Pool) -> float | None:
        """One look; the seconds until the next one, or None where nothing will be due."""
        now, changes = store.clock_and_changes(pool)
        self.look(pool, now, changes)
        if not self._jobs:
            return None
        return min(LOOK_EVERY_SECONDS, max(0.0, self._next_push(now) - store.redis_now(pool)))

    def look(self, pool: Pool, now: float, changes: bytes = b"") -> list[str]:
        """
        Fire what is due at *now*.

        Args:
            changes: What `clock_and_changes` has counted; where it has changed, the timetable is read.

        Returns:
            The jids of what was pushed.
        """
        if changes != self._changes or not 0 <= now - self._read_at < READ_EVERY_SECONDS:
            self._read(pool, now)
            self._changes, self._read_at = changes, now
        client = of_pool(pool)
        pushed = []
        for job in self._jobs:
            for tick in self._due(job, now):
                jid = self._fire(pool, client, job, tick, now)
                pushed += [jid] if jid else []
        return pushed

    def _read(self, pool: Pool, now: float) -> None:
        self._jobs, self._next = [], {}
        for job in store.read_all(pool, namespaces=self._namespaces):
            if not self._is_fired_here(job):
                continue
            if job.problem is not None:
                self._complain(job, job.problem)
                continue
            assert job.entry is not None
            if not job.entry.is_enabled:
                self._note_disabled(pool, job)
                continue
            try:
                enabled = self._note_enabled(pool, job, now) if job.own.was_disabled else job
                if enabled.own.has_policy:
                    self._plant(pool, enabled, now)
            except RedisReplyError as refusal:
                # Of one job's keys, to which somebody else has written: the others fire.
                if refusal.is_about_server:
                    raise
                self._complain(job, str(refusal))
            else:
                self._jobs.append(enabled)
        self._done = {job.key: self._done[job.key] for job in self._jobs if job.key in self._done}

    def _is_fired_here(self, job: StoredJob) -> bool:
        if job.own.is_ours:
            return True
        return self._fires_ruby_jobs and job.entry is not None and job.entry.why_ruby_alone() is None

    def _note_disabled(self, pool: Pool, job: StoredJob) -> None:
        """Ruby's Web tab leaves no mark of when it disabled a job."""
        if not job.own.was_disabled:
            pool.command("HSET", job.own_key, "was_disabled", "1")

    def _note_enabled(self, pool: Pool, job: StoredJob, now: float) -> StoredJob:
        """Ticks that passed while it was disabled are not made up for."""
        pool.batch([("HSET", job.own_key, "since", f"{now:.3f}"), ("HDEL", job.own_key, "was_disabled")])
        return replace(job, own=replace(job.own, since=now, was_disabled=False))

    def _due(self, job: StoredJob, now: float) -> list[int]:
        """The ticks of a job to be fired now, earliest first."""
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
        """The first tick that may still have to be fired; one that has passed is looked for anew."""
        first = self._next.get(job.key, 0.0)
        if first <= now:
            assert job.cron is not None
            first = self._next[job.key] = next(upcoming(job.cron, self._after(job, now)), inf)
        return first

    def _after(self, job: StoredJob, now: float) -> float:
        """Ticks up to here have fired, or are none of ours any more."""
        catch_up = job.own.catch_up_seconds
        window = max(catch_up or 0.0, GRACE_SECONDS) + job.own.jitter_seconds
        return max(job.own.fired, self._done.get(job.key, 0), job.own.since, now - window)

    def _next_push(self, now: float) -> float:
        """When the next tick of all is to be pushed."""
        pushes = [first + _delay(job, int(first)) for job in self._jobs if (first := self._first(job, now)) < inf]
        return min((at for at in pushes if at > now), default=inf)

    def _fire(self, pool: Pool, client: Client, job: StoredJob, tick: int, now: float) -> str | None:
        """Push one tick; its jid, or None where it was not to be pushed."""
        jid = None
        try:
            jid = push(pool, client, job, tick, now)
        except RedisReplyError as refusal:
            if refusal.code == "CRONOFF":
                self._changes = None
            elif refusal.code == "CRONRUNNING":
                self._pass(pool, job, tick, now)
            elif refusal.is_about_server:
                raise
            elif refusal.code != "CRONTAKEN":
                self._complain(job, str(refusal))
        except RedisError:
            raise
        except SidekiqError as error:
            self._complain(job, str(error))
        self._done[job.key] = max(tick, self._done.get(job.key, 0))
        return jid

    def _pass(self, pool: Pool, job: StoredJob, tick: int, now: float) -> None:
        """The last run goes on."""
        try:
            store.write(pool, pass_effect(job, tick, now, "skipped"))
        except RedisReplyError as refusal:
            if refusal.is_about_server:
                raise
            self._complain(job, str(refusal))

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
        """Once for each problem: it is looked at again and again."""
        if (job.key, problem) not in self._complained:
            self._complained.add((job.key, problem))
            _log.warning("periodic job %s is skipped: %s", job.name, problem)


def push(pool: Pool, client: Client, job: StoredJob, tick: int, now: float) -> str | None:
    """
    Claim a tick and push its job, in one script.

    Returns:
        The jid, or None where a client middleware stopped the push; the tick is passed over then.

    Raises:
        RedisReplyError: The tick is not to be fired: `CRONTAKEN`, `CRONOFF`, `CRONRUNNING`.
        SidekiqError: It could not be made into a job, or Redis is out of reach.
    """
    assert job.entry is not None
    prepared = prepare(client, job, now)
    if prepared is None:
        store.write(pool, pass_effect(job, tick, now, "stopped"))
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
        store.write(pool, claim, *push_effects)
    except RedisReplyError as refusal:
        # After a lost reply the script is sent again, and finds its own claim.
        if refusal.code != "CRONTAKEN" or not store.was_pushed(pool, job.key, jid):
            raise
    return jid


def prepare(client: Client, job: StoredJob, now: float) -> tuple[str, list[Effect]] | None:
    """The jid of a push, and what pushes it; None where a middleware or an extension stopped it."""
    assert job.entry is not None
    ready = client.prepare({**job.entry.payload(now), PAYLOAD_KEY: job.key})
    if ready is None:
        return None
    dialect = client.detection.dialect(now)
    pushed = extended_push.shown_to_extensions([push_batch_of(ready)], job.entry.klass, {}, client.pool, dialect)
    return (ready.jid, extended_push.effects_of(pushed)) if pushed.outgoing else None


def pass_effect(job: StoredJob, tick: int, now: float, why: str) -> Effect:
    """Pass over a tick, in both languages."""
    return (verbs.PASS.name, job.own_key, tick, tick_text(tick), f"{now:.3f}", why)


def _delay(job: StoredJob, tick: int) -> float:
    """By how much a tick is late on purpose: the same in every process."""
    if not job.own.jitter_seconds:
        return 0.0
    digest = hashlib.sha256(f"{job.key} {tick}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64 * job.own.jitter_seconds


def run_by_hand(pool: Pool, client: Client, job: StoredJob, now: float) -> str | None:
    """Push a job whatever its timetable and its policies say; its jid, or None where a middleware stopped it."""
    prepared = prepare(client, job, now)
    if prepared is None:
        return None
    jid, push_effects = prepared
    line = job.layout.history_line(jid, now)
    store.write(
        pool,
        ("HSET", job.key, "last_enqueue_time", enqueue_time(now)),
        ("LPUSH", f"{job.key}:jid_history", line),
        ("LTRIM", f"{job.key}:jid_history", 0, 9),
        ("LPUSH", store.RUNS_PREFIX + job.key, f"{jid} 0 {now:.3f} pushed"),
        ("LTRIM", store.RUNS_PREFIX + job.key, 0, 99),
        *push_effects,
    )
    return jid
