"""
A worker's duties for the timetable besides firing: write what its program declares, keep it there, and release runs
that will never report an end.

A program only removes what it has declared itself: `by` in Python's own hash names the program and the module or file.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sidekiq_py.config import Config
from sidekiq_py.errors import ConfigError, RedisReplyError
from sidekiq_py.extensions.periodic import schedule_file, store, verbs
from sidekiq_py.extensions.periodic.declared import Declaration, declarations, with_program
from sidekiq_py.extensions.periodic.keys import (
    DECLARED,
    DEFAULT_NAMESPACE,
    NO_TAG,
    OWN_PREFIX,
    named_file,
    usual_places,
)
from sidekiq_py.extensions.periodic.layout import LAYOUTS, Layout, OwnState
from sidekiq_py.logs import counted, log
from sidekiq_py.options import closest
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.registry import registry

# A younger run may be on its way between two places.
_LOST_AFTER_SECONDS = 60.0
_MOST_NAMED = 5
# A longer queue is not read: the run is assumed to wait in it.
_MOST_READ = 10_000


def load(pool: Pool, config: Config, *, cron_version: str | None, directory: Path | None = None) -> int:
    """
    Write what this program declares, and remove what it declared before and no longer does.

    Returns:
        The number of jobs that it declares.

    Raises:
        ConfigError: The schedule file is invalid.
        RedisError: Redis cannot be reached.
    """
    program = config.tag or NO_TAG
    here = directory or _working_directory()
    given = named_file(config.extra)
    path = schedule_file.find(given, usual_places(config.extra), here)
    declared = list(declarations)
    places = {declaration.own.by for declaration in declared} | set(sys.modules)
    if path is not None:
        place = str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
        in_file = _of_file(path, place, is_named=given is not None)
        # None of a file that cannot be read counts as gone from it.
        if in_file is not None:
            declared += in_file
            places.add(place)
    _warn_of_unknown_classes(declared)
    ours = {f"{program}:{place}" for place in places}
    layout = store.layout_in_use(pool, cron_version)
    declared = _with_rivals(pool, layout, [with_program(one, program) for one in declared], ours)
    save(pool, layout, declared)
    _remove_obsolete(pool, layout, declared, ours)
    return len(declared)


def _working_directory() -> Path:
    """The working directory. If it was deleted, as an old release is after a deploy, nothing is found in it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path()


def _of_file(path: Path, place: str, *, is_named: bool) -> list[Declaration] | None:
    """
    The jobs of a file. One found at a usual place may be Ruby's, in a shared folder; of it, only Python's jobs are
    read, and it may be unreadable: None.
    """
    if is_named:
        return schedule_file.read(path, environment=os.environ, by=place)
    left: list[str] = []

    def is_ours(klass: str) -> bool:
        if registry.find(klass) is None:
            left.append(klass)
            return False
        return True

    def skip(error: ConfigError) -> None:
        log.warning("a periodic job is not read, and does not run: %s", error)

    try:
        found = schedule_file.read(path, environment=os.environ, by=place, is_wanted=is_ours, on_invalid=skip)
    except ConfigError as error:
        log.warning("periodic jobs are not read: %s; pass the file with --schedule if it is meant for Python", error)
        return None
    if left:
        log.info(
            "%s left to Ruby, because this program declares no such class: %s",
            counted(len(left), f"periodic job of {place} is", f"periodic jobs of {place} are"),
            _with_slips(left),
        )
    return found


def _with_slips(classes: Iterable[str]) -> str:
    """The first few classes, each with the one of ours that it may have been meant to be; those come first."""
    near = {klass: closest(klass, registry.classes()) for klass in classes}
    slips = [f"{klass} (did you mean {meant}?)" for klass, meant in near.items() if meant]
    shown = [*slips, *(klass or "no class" for klass, meant in near.items() if not meant)]
    rest = len(shown) - _MOST_NAMED
    return ", ".join(shown[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def save(pool: Pool, layout: Layout, declared: Sequence[Declaration]) -> None:
    """Write periodic jobs. A job in the other layout is moved if only Python declares it."""
    now = store.redis_now(pool)
    other = LAYOUTS["1.8"] if layout.has_namespaces else LAYOUTS["2"]
    known = store.declared_among(pool, [other.key_of(one.entry) for one in declared])
    for declaration in declared:
        entry = declaration.entry
        effects = [store.save_effect(layout, entry, declaration.own, now=now)]
        old = other.key_of(entry)
        if old in known:
            effects.append((verbs.REMOVE.name, OWN_PREFIX + old, other.set_key(entry.namespace), old))
        _write(pool, entry.name, *effects)


def _with_rivals(pool: Pool, layout: Layout, declared: list[Declaration], ours: set[str]) -> list[Declaration]:
    """Note other programs that declare a job of the same name: each takes the job over when it starts."""
    states = store.own_states(pool, [layout.key_of(one.entry) for one in declared])
    found = []
    for one in declared:
        stored = states[layout.key_of(one.entry)]
        rival = stored.rival
        if stored.by and stored.by not in ours:
            rival = f"{store.redis_now(pool):.0f} {stored.by}"
            log.warning(
                "periodic job %s was declared by %s, and now follows the declaration by %s. If both still declare it, "
                "the one that starts last decides. Give one of the two another name",
                one.entry.name,
                stored.by,
                one.own.by,
            )
        found.append(one._replace(own=replace(one.own, rival=rival)))
    return found


def _write(pool: Pool, name: str, *effects: Effect) -> bool:
    """Write one job. Returns False, with a warning, if another program has written to its keys; other jobs go on."""
    try:
        store.write(pool, *effects)
    except RedisReplyError as refusal:
        if refusal.code != "WRONGTYPE":
            raise
        log.warning("periodic job %s stays as it is: %s; delete that key", name, refusal)
        return False
    return True


def _remove_obsolete(pool: Pool, layout: Layout, declared: Iterable[Declaration], places: set[str]) -> None:
    kept = {layout.key_of(one.entry) for one in declared}
    known = sorted(store.declared_keys(pool) - kept)
    gone = {key: own.by for key, own in store.own_states(pool, known).items() if own.by in places}
    for job in store.read(pool, [(key, layout) for key in gone]):
        if job.entry is not None and not job.own.is_ours:
            back = store.given_back(job, store.redis_now(pool))
            _write(pool, job.name, *back, ("DEL", job.own_key), ("SREM", DECLARED, job.key))
            log.info("periodic job %s is now Ruby's: %s no longer declares it", job.name, gone.pop(job.key))
    for key, by in gone.items():
        name, of_release_1 = _name(key), LAYOUTS["1.8"].set_key()
        is_older = key in store.members(pool, of_release_1)
        set_key = of_release_1 if is_older else LAYOUTS["2"].set_key(key.split(":")[1])
        if _write(pool, name, (verbs.REMOVE.name, OWN_PREFIX + key, set_key, key)):
            # In containers, the directory of every program is /app, and so is its tag.
            log.info(
                "periodic job %s was removed: %s no longer declares it. If another program does, give each a tag of "
                "its own (-g)",
                name,
                by,
            )


def _name(key: str) -> str:
    """The name of a job for the log; in release 2, with its namespace."""
    return key.partition(":")[2]


def _warn_of_unknown_classes(declared: Iterable[Declaration]) -> None:
    for declaration in declared:
        entry = declaration.entry
        # Options are also unknown for a class that was given by its name.
        if not entry.retry and entry.klass not in registry.elsewhere:
            log.warning(
                "periodic job %s pushes %s, a class that this program does not declare. Check the name; if Ruby runs "
                "it, declare it: sidekiq.ruby_job(%r)",
                entry.name,
                entry.klass,
                entry.klass,
            )


def restore(pool: Pool, namespaces: Iterable[str] = (DEFAULT_NAMESPACE,)) -> None:
    """
    Write declared jobs again that were deleted.

    The gem's `load_from_hash!`, which 1.10 calls at each start, deletes every job that is not in its file; from 1.11 on
    only those that came from it. Release 2 moves the jobs that it finds of 1.x: they are Python's again when the next
    worker starts. A job that was added by hand stays deleted.
    """
    # Read first: a job that is added meanwhile is not gone.
    declared = sorted(store.declared_keys(pool))
    known = {key for key, _ in store.listed(pool, namespaces=namespaces)}
    gone = [key for key in declared if known.isdisjoint((key, store.other_key(key)))]
    for key, own in store.own_states(pool, gone).items():
        effect = store.restore_effect(key, own, now=store.redis_now(pool)) if own.by else None
        if effect is None:
            _write(pool, _name(key), store.forget_effect(key))
        elif _write(pool, _name(key), effect):
            log.warning(
                "periodic job %s was deleted by another program, and restored as %s declares it; disable it instead",
                _name(key),
                own.by,
            )


class DeletedJobs:
    """
    What Python keeps about jobs that only Ruby declares, such as the reason why one is disabled: it goes with the job.

    Args:
        namespaces: The namespaces of sidekiq-cron (since 2.0).
    """

    def __init__(self, namespaces: Iterable[str] = (DEFAULT_NAMESPACE,)) -> None:
        self._namespaces = tuple(namespaces)
        self._listed: set[str] = set()

    def forget(self, pool: Pool) -> None:
        """Delete what is kept about jobs that were there at the last call and have been deleted since."""
        listed = {key for key, _ in store.listed(pool, namespaces=self._namespaces)}
        gone = self._listed - listed
        # Those that were declared are restored, or `restore` forgets them.
        for key in sorted(gone - store.declared_keys(pool) if gone else gone):
            _write(pool, _name(key), store.forget_effect(key))
        self._listed = listed


class LostRuns:
    """
    Lets the next run start if the last one will never report its end, because it ran in Ruby.

    A run counts as over after it was twice found neither in its queue, nor running, nor in flight.
    """

    def __init__(self) -> None:
        self._missing: set[str] = set()

    def release(self, pool: Pool) -> None:
        """Check all running jobs once."""
        keys = sorted(store.declared_keys(pool))
        waiting = [(key, own) for key, own in store.own_states(pool, keys).items() if own.running]
        now = store.redis_now(pool)
        old = [(key, own) for key, own in waiting if now - own.running_since > _LOST_AFTER_SECONDS]
        missing = {own.running for _, own in old} - self._at_work(pool, old) if old else set()
        for key, own in old:
            if own.running in missing & self._missing:
                effect = (verbs.ENDED.name, OWN_PREFIX + key, own.running, "unseen", f"{now:.3f}", "0")
                _write(pool, _name(key), effect)
        self._missing = missing

    def _at_work(self, pool: Pool, waiting: Iterable[tuple[str, OwnState]]) -> set[str]:
        # Usually nothing was lost, so that no worker loads these.
        from sidekiq_py.api import JobRecord, Queue, WorkSet
        from sidekiq_py.redis_access.reads import in_flight_counts

        found = {str(work.job.jid) for _, _, work in WorkSet(pool=pool)}
        # The work set lacks processes whose heartbeats are refused, as by a full Redis.
        for owner in {count.owner for count in in_flight_counts.counts(pool)}:
            found |= {str(JobRecord(raw).jid) for _, raw in in_flight_counts.jobs(pool, owner)}
        for queue in Queue.all(pool=pool):
            if queue.size > _MOST_READ:
                return {own.running for _, own in waiting}
            found |= {str(job.jid) for job in queue}
        return found
