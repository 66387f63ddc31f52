"""
The schedule as it is stored in Redis: read it, add to it, pause it and run its tasks by hand, whether or not a beat
is running.

Beats read it every five seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sidekiq_celery._beat import as_data, turns
from sidekiq_celery._beat.persistent import PersistentScheduler, turns_key
from sidekiq_celery._beat.runs import Runs, read_runs
from sidekiq_celery._beat.scheduler import Scheduler
from sidekiq_celery._send.clients import client_of
from sidekiq_celery.contract import App

__all__ = ("EntryState", "add", "entries", "pause", "remove", "resume", "run")


@dataclass(frozen=True, slots=True)
class EntryState:
    """
    A periodic task.

    Args:
        schedule: The schedule in readable form: a cron line, or `every 10.00 seconds`.
        last_run_at: When it was last sent, in the app's time zone; None if never.
        total_run_count: How many times it was sent.
        is_added: True if it was added at run time and is not in the settings.
    """

    name: str
    task: str
    schedule: str
    last_run_at: datetime | None
    total_run_count: int
    is_paused: bool
    is_added: bool


def entries(app: App) -> list[EntryState]:
    """
    All periodic tasks of an app, sorted by name.

    Raises:
        RedisError: As `Pool.run` does.
    """
    values, held, _ = turns.read(client_of(app).pool, turns_key(app))
    found = []
    for name, entry in sorted(_scheduler(app).schedule.items()):
        runs = read_runs(values.get(name, b""), app.timezone)
        count, last_run_at = (0, None) if runs is None else runs[1:]
        is_added = name not in app.conf.beat_schedule and name != "celery.backend_cleanup"
        when = as_data.schedule_text(entry.schedule)
        found.append(EntryState(name, entry.task, when, last_run_at, count, name in held, is_added))
    return found


def add(
    app: App,
    name: str,
    task: str,
    when: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """
    Add a periodic task, or change one that was added. It is first due one interval from now.

    Args:
        name: The entry's name.
        task: The task's name.
        when: Seconds, a timedelta, `schedule`, `crontab` or `solar`.

    Raises:
        ValueError: The settings already have an entry of that name.
        TypeError: The schedule is an instance of a custom class, or an argument cannot be written as JSON.
    """
    if name in app.conf.beat_schedule:
        raise ValueError(f"{name!r} is in the setting beat_schedule; change it there, or choose another name")
    text = as_data.entry_text(task, when, args, kwargs, options)
    turns.add(client_of(app).pool, turns_key(app), name, text, Runs(app.now()).text())


def remove(app: App, name: str) -> None:
    """
    Remove a periodic task that was added at run time.

    Raises:
        ValueError: There is no task of that name, or it is in the settings.
    """
    pool, key = client_of(app).pool, turns_key(app)
    if name in turns.read(pool, key)[2]:
        turns.remove(pool, key, [name])
        return
    _entry(app, name)
    raise ValueError(f"{name!r} is in the settings of the app; remove it there, or pause it")


def pause(app: App, name: str) -> None:
    """
    Pause a periodic task: no beat sends it until it is resumed.

    Raises:
        ValueError: There is no task of that name.
    """
    _entry(app, name)
    turns.hold(client_of(app).pool, turns_key(app), name)


def resume(app: App, name: str) -> None:
    """
    Resume a periodic task. Runs that were due while it was paused are not made up.

    Raises:
        ValueError: There is no task of that name.
    """
    _entry(app, name)
    pool, key = client_of(app).pool, turns_key(app)
    value, _ = turns.read_one(pool, key, name)
    before = read_runs(value, app.timezone) or Runs(app.now())
    turns.release(pool, key, name, before._replace(counted_from=app.now()).text())


def run(app: App, name: str) -> Any:
    """
    Send a periodic task now. Its next due time stays as it is, and so does the stored record of its runs: otherwise a
    beat that has read the record would skip its own run.

    Returns:
        A handle for the task's result.

    Raises:
        ValueError: There is no task of that name.
        SchedulingError: The task could not be sent.
    """
    entry = _entry(app, name)
    return Scheduler.apply_async(_scheduler(app), entry, advance=False)


def _scheduler(app: App) -> PersistentScheduler:
    app.finalize()
    scheduler = PersistentScheduler(app, lazy=True)
    scheduler.describe(turns.read(client_of(app).pool, turns_key(app))[2])
    return scheduler


def _entry(app: App, name: str) -> Any:
    known = _scheduler(app).schedule
    if name not in known:
        raise ValueError(f"there is no periodic task {name!r}; there are {', '.join(sorted(known)) or 'none'}")
    return known[name]
