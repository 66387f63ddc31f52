"""Where periodic jobs stand, in Redis and in files: all that a worker knows of them where there are none."""

from collections.abc import Iterable

DEFAULT_NAMESPACE = "default"
OWN_PREFIX = "sidekiq_py:cron:"
"""Before the gem's key of a job: what only we keep of it."""
DECLARED = "sidekiq_py:cron_declared"
"""Set of the keys of jobs that Python has declared or added, wherever they are declared."""
PAYLOAD_KEY = "sidekiq_py_cron"
"""In each job that Python fires: the key of the periodic job, so that its history hears how the run ended."""
CHANGES = "sidekiq_py:cron_changes"
"""Counts up when one of our programs changes the timetable."""
SCHEDULE_OPTIONS = ("schedule", "cron_schedule_file")
"""Name a schedule file: our option, and the gem's in `config/sidekiq.yml`."""
USUAL_PLACES = ("config/schedule.yml", "config/schedule.yaml")
"""Where one is read that nobody has named."""


def set_key(namespace: str | None) -> str:
    """sidekiq-cron's set of the keys of its jobs; releases 1.x have no namespaces."""
    return "cron_jobs" if namespace is None else f"cron_jobs:{namespace}"


def all_sets(namespaces: Iterable[str]) -> list[str]:
    """Where nothing stands at any of these keys, there are no periodic jobs."""
    return [DECLARED, set_key(None), *map(set_key, namespaces)]
