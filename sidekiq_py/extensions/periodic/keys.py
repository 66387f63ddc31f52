"""The keys and files of periodic jobs. A worker without periodic jobs loads only this module."""

from collections.abc import Iterable, Mapping
from typing import Any

DEFAULT_NAMESPACE = "default"
OWN_PREFIX = "sidekiq_py:cron:"
"""Prefix, followed by the gem's key of a job: Python's own data about it."""
DECLARED = "sidekiq_py:cron_declared"
"""Set of the keys of all jobs that were declared in or added from Python."""
PAYLOAD_KEY = "sidekiq_py_cron"
"""In the payload of each job that Python fires: the key of the periodic job, whose history records the outcome."""
CHANGES = "sidekiq_py:cron_changes"
"""Counter of the changes that Python programs make to the timetable."""
NO_TAG = "python"
"""What a program without a tag is called where a job says who declared it."""
_USUAL_PLACES = ("config/schedule.yml", "config/schedule.yaml")


def set_key(namespace: str | None) -> str:
    """sidekiq-cron's set of its jobs' keys. Releases 1.x have no namespaces."""
    return "cron_jobs" if namespace is None else f"cron_jobs:{namespace}"


def all_sets(namespaces: Iterable[str]) -> list[str]:
    """Keys of which at least one exists if there are periodic jobs."""
    return [DECLARED, set_key(None), *map(set_key, namespaces)]


def named_file(options: Mapping[str, Any]) -> str | None:
    """
    The schedule file that a worker's options name.

    A mapping in `schedule` is the timetable of sidekiq-scheduler, which only Ruby fires.
    """
    given = options.get("schedule")
    return str(given) if given and not isinstance(given, Mapping) else None


def usual_places(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Where the gem looks for its schedule file: in 1.x, `cron_schedule_file` in `config/sidekiq.yml` names another."""
    named = options.get("cron_schedule_file")
    return (str(named),) if named else _USUAL_PLACES
