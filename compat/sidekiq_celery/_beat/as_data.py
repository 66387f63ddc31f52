"""
Schedules and entries as JSON, which people and other languages can read, and which runs no code when it is read.

An entry is `{"task": …, "schedule": …, "args": […], "kwargs": {…}, "options": {…}}`. A schedule is
`{"every": seconds}`, optionally with `"relative": true`; `{"crontab": "minute hour day-of-month month day-of-week"}`;
or `{"solar": [event, lat, lon]}`.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sidekiq_celery._wire.json_values import from_plain, to_plain
from sidekiq_celery.schedules import BaseSchedule, crontab, maybe_schedule, schedule, solar


def entry_text(task: str, when: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> bytes:
    """
    An entry as JSON.

    Raises:
        TypeError: The schedule is an instance of a custom class, or an argument cannot be written.
    """
    fields = {"task": task, "schedule": _data(maybe_schedule(when))}
    given = {"args": list(args), "kwargs": dict(kwargs or {}), "options": dict(options or {})}
    return json.dumps({**fields, **to_plain(given)}, ensure_ascii=False).encode()


def entry_of(text: bytes) -> dict[str, Any]:
    """
    Read the fields of a `ScheduleEntry`.

    Raises:
        ValueError: The text is not an entry.
    """
    try:
        fields = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"it is nested too deeply: {text[:80]!r}") from error
    if not isinstance(fields, Mapping) or not isinstance(fields.get("task"), str):
        raise ValueError(f"a beat entry is a JSON object with the name of a task, not {text[:80]!r}")
    try:
        given = {key: from_plain(fields[key]) for key in ("args", "kwargs", "options") if key in fields}
    # What a type's own reader raises for a value that is none of its type.
    except Exception as error:
        raise ValueError(f"its arguments or options cannot be read: {error}") from error
    return {"task": fields["task"], "schedule": schedule_of(fields.get("schedule")), **given}


def schedule_of(data: Any) -> BaseSchedule:
    """
    The schedule that JSON describes.

    Raises:
        ValueError: It does not describe a schedule.
    """
    kinds = [kind for kind in ("every", "crontab", "solar") if kind in data] if isinstance(data, Mapping) else []
    kind = kinds[0] if len(kinds) == 1 else None
    try:
        if kind == "every":
            return schedule(timedelta(seconds=data["every"]), bool(data.get("relative")))
        if kind == "crontab":
            return crontab.from_string(" ".join(data["crontab"].split()))
        if kind == "solar":
            return solar(*data["solar"])
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{data!r} is not a beat schedule: {error}") from error
    raise ValueError(f"{data!r} is not a beat schedule; give every (seconds), crontab or solar")


def schedule_text(when: Any) -> str:
    """A schedule in readable form."""
    if type(when) is crontab:
        return _cron_line(when)
    if type(when) is schedule:
        return f"every {when.human_seconds}"
    return repr(when)


def _data(when: BaseSchedule) -> dict[str, Any]:
    if type(when) is schedule:
        return {"every": when.run_every.total_seconds(), **({"relative": True} if when.relative else {})}
    if type(when) is crontab:
        return {"crontab": _cron_line(when)}
    if type(when) is solar:
        return {"solar": [when.event, when.lat, when.lon]}
    raise TypeError(f"{when!r} cannot be stored as data; put it into the setting beat_schedule")


def _cron_line(when: crontab) -> str:
    days = (when._orig_day_of_month, when._orig_month_of_year, when._orig_day_of_week)
    return " ".join(_cron_field(field) for field in (when._orig_minute, when._orig_hour, *days))


def _cron_field(field: Any) -> str:
    return "".join(str(field).split()) if isinstance(field, int | str) else ",".join(map(str, sorted(field)))
