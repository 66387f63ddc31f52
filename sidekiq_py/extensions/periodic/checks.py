"""The doctor's checks of the timetable."""

from collections.abc import Iterator

from sidekiq_py.api import Process, ProcessSet
from sidekiq_py.doctor.finding import Finding, command_line, listed, note, ok, problem, unseen, verb, warning
from sidekiq_py.extension import DoctorCheck
from sidekiq_py.extensions.periodic import store
from sidekiq_py.extensions.periodic.keys import NO_TAG
from sidekiq_py.extensions.periodic.layout import tick_text
from sidekiq_py.extensions.periodic.store import StoredJob
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import declared_classes

_CLOCK_SECONDS = 120.0
# Programs are deployed at least once a week.
_RIVAL_SECONDS = 7 * 86400.0
# Each job takes eight commands.
_MOST_LOOKED_AT = 200
# In one command.
_MOST_REMOVED = 20


def timetable(pool: Pool) -> Iterator[Finding]:
    """Periodic jobs that cannot fire, or do not fire as their author expects."""
    jobs = store.read_all(pool)
    wrong = store.wrong_types(pool, jobs[:_MOST_LOOKED_AT])
    if wrong:
        yield problem(
            f"Another program has written to {counted(len(wrong), 'key')} of periodic jobs: {listed(wrong)}. Jobs "
            "that need them do not fire.",
            "Find that program, and delete the keys; the next worker that starts writes them again.",
            wrong,
        )
    if not jobs:
        return
    now = store.redis_now(pool)
    bad = [job for job in jobs if job.problem and not job.is_for_ruby]
    for job in bad:
        if job.is_unread:
            advice = "Let this user read its keys, or run the doctor as a user who may."
            yield unseen(f"the periodic job `{job.name}`", str(job.problem), advice)
            continue
        yield problem(
            f"The periodic job `{job.name}` never fires: {job.problem}.",
            "Repair it where it is declared, or remove it: "
            + command_line(pool.settings.namespace, "cron", "remove", operands=[job.name]),
            (job.name,),
        )
    yield from _two_layouts(jobs)
    yield from _for_ruby(jobs)
    yield from _zoneless(jobs)
    yield from _clock(jobs, now)
    yield from _lost(pool, jobs, now)
    yield from _vanished(pool, jobs)
    processes = list(ProcessSet(pool=pool, clean=False))
    yield from _undeclared(pool, jobs, [process for process in processes if process.is_python])
    yield from _left_alone(pool, jobs, processes)
    yield from _rivals(jobs, now)
    off = [job for job in jobs if job.entry is not None and not job.entry.is_enabled]
    if off:
        names = listed(f"{job.name} ({job.own.reason})" if job.own.reason else job.name for job in off)
        yield note(f"{counted(len(off), 'periodic job is', 'periodic jobs are')} disabled: {names}.")
    if not bad:
        yield ok(f"{counted(len(jobs), 'periodic job')} can be read.")


def _two_layouts(jobs: list[StoredJob]) -> Iterator[Finding]:
    kinds = {job.layout.has_namespaces for job in jobs if not job.own.is_ours}
    if len(kinds) > 1:
        yield problem(
            "Releases 1.x and 2.x of sidekiq-cron both have jobs in this Redis: they use different keys, so each "
            "job fires twice.",
            "Run only one of them; 2.x takes over the jobs of 1.x when it starts.",
        )


def _for_ruby(jobs: list[StoredJob]) -> Iterator[Finding]:
    names = [job.name for job in jobs if job.is_for_ruby]
    if names:
        jobs_with_texts = counted(len(names), "periodic job with a cron text", "periodic jobs with cron texts")
        yield note(
            f"Ruby declares {jobs_with_texts} that cannot be read here: {listed(names)}. Ruby fires what its fugit can "
            "read; no ticks are shown here.",
            "To see the ticks here, write the times as in `0 17 * * tue`.",
            names,
        )


def _zoneless(jobs: list[StoredJob]) -> Iterator[Finding]:
    names = [job.name for job in jobs if job.cron is not None and job.cron.zone is None]
    if names:
        yield warning(
            f"{counted(len(names), 'periodic job has', 'periodic jobs have')} no time zone: {listed(names)}. Each "
            "Ruby process uses the zone of its own TZ or of Rails for them.",
            "Write the zone at the end of the text, as in `0 9 * * * Europe/Berlin`.",
            names,
        )


def _clock(jobs: list[StoredJob], now: float) -> Iterator[Finding]:
    ahead = [job for job in jobs if job.own.fired > now + _CLOCK_SECONDS]
    if ahead:
        worst = max(job.own.fired for job in ahead) - now
        yield warning(
            f"{counted(len(ahead), 'periodic job has', 'periodic jobs have')} fired ticks "
            f"{worst / 60:,.0f} min in the future: {listed(job.name for job in ahead)}. The clock of Redis's machine "
            "was set back.",
            "Nothing fires twice: they continue with the first tick that has not fired. Synchronize the clock (NTP). "
            "If that is too late, remove the job (sidekiq-py cron remove NAME) and restart a worker that declares it.",
            (job.name for job in ahead),
        )


def _lost(pool: Pool, jobs: list[StoredJob], now: float) -> Iterator[Finding]:
    looked_at = jobs[:_MOST_LOOKED_AT]
    for job, lost in zip(looked_at, store.lost_ticks(pool, looked_at, now), strict=True):
        if lost:
            last = tick_text(lost[-1])
            yield warning(
                f"{counted(len(lost), 'tick')} of the periodic job `{job.name}` {verb(len(lost), 'was', 'were')} "
                f"claimed by a Ruby process and never pushed, the last at {last}: the process was killed in between.",
                "Run it by hand if it is needed: "
                + command_line(pool.settings.namespace, "cron", "run", operands=[job.name]),
                (job.name,),
            )


def _vanished(pool: Pool, jobs: list[StoredJob]) -> Iterator[Finding]:
    gone = sorted(store.declared_keys(pool) - {job.key for job in jobs})
    names = [key for key, own in store.own_states(pool, gone).items() if own.by]
    if names:
        yield warning(
            f"{counted(len(names), 'declared periodic job is', 'declared periodic jobs are')} gone from the gem's "
            f"keys: {listed(names)}. Before sidekiq-cron 1.11, `load_from_hash!` deletes every job that is not in its "
            "file; 1.10 calls it at each start.",
            "A Python worker restores them within a minute. Update sidekiq-cron, or call `load_from_hash`.",
            names,
        )


def _undeclared(pool: Pool, jobs: list[StoredJob], ours: list[Process]) -> Iterator[Finding]:
    identities = [process.identity for process in ours]
    declared = [classes for classes in declared_classes.read(pool, identities).values() if classes is not None]
    if not declared:
        return
    missing = sorted({job.entry.klass for job in jobs if job.own.is_ours and job.entry}.difference(*declared))
    if missing:
        yield note(
            f"No Python worker declares {listed(missing)}, which periodic jobs push.",
            "That is fine if Ruby runs them. Otherwise start a worker that declares them.",
            missing,
        )


def _left_alone(pool: Pool, jobs: list[StoredJob], processes: list[Process]) -> Iterator[Finding]:
    """
    Jobs whose program has no worker. Whoever does the fleet's maintenance fires them on, and only a worker of their own
    program removes them.

    A program is known by its tag, which its processes publish. Without any Python worker, Python fires nothing at all,
    not even what was added by hand.
    """
    enabled = [job for job in jobs if job.own.is_ours and not job.problem and job.entry and job.entry.is_enabled]
    ours = [process for process in processes if process.is_python]
    if not ours:
        # Without any process, the check of the processes says enough.
        if enabled and processes:
            yield note(
                f"No Python worker is running, so Python fires none of its {counted(len(enabled), 'periodic job')}; "
                "sidekiq-cron fires them only if a Ruby process has loaded it.",
                "Start a Python worker, of any program.",
                (job.name for job in enabled),
            )
        return
    # A colon may be part of a tag.
    tags = tuple(f"{process.tag or NO_TAG}:" for process in ours)
    alone: dict[str, list[str]] = {}
    for job in enabled:
        if job.own.by and not job.own.by.startswith(tags):
            alone.setdefault(job.own.by, []).append(job.name)
    for by, names in sorted(alone.items()):
        yield note(
            f"No worker of the program that declares {listed(names)} is running ({by}). Workers of other programs fire "
            f"{verb(len(names), 'it', 'them')} all the same.",
            "If that program is gone, or its tag (-g) has changed: "
            + command_line(pool.settings.namespace, "cron", "remove", operands=names[:_MOST_REMOVED]),
            names,
        )


def _rivals(jobs: list[StoredJob], now: float) -> Iterator[Finding]:
    for job in jobs:
        rival = job.own.rival_since(now - _RIVAL_SECONDS)
        if rival:
            yield warning(
                f"The periodic job `{job.name}` is declared by {job.own.by}, and was recently declared by {rival}.",
                "If both still declare it, the one that starts last decides: give one of the two another name. If it "
                "is one program whose tag (-g) or module has changed, what only the old one declared fires on: remove "
                f"it (`sidekiq-py cron list` shows {rival} beside it).",
                (job.name,),
            )


CHECKS = (DoctorCheck("periodic-jobs", "Periodic jobs", "the timetable of periodic jobs", timetable),)
