"""
Keys that do not belong to open-source Sidekiq: which product they belong to, and what that means for Python.

Source: wiki and change logs of Sidekiq Pro and Enterprise (no code of theirs is public); sidekiq-cron 1.12 and 2.3,
sidekiq-scheduler 6.0, sidekiq-unique-jobs 8.1, gitlab-sidekiq-fetcher 0.9, sidekiq-status 4.0, sidekiq-throttled 2.1,
sidekiq-limit_fetch 4.4, sidekiq-grouping 1.3, sidekiq-debouncer 3.2, sidekiq-fair_tenant 0.1, activejob-uniqueness 0.4.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Family(NamedTuple):
    """
    The keys of one feature.

    Args:
        title: The product or feature that owns them.
        pattern: A regular expression for the whole key name.
        means: A sentence on what they mean for Python.
        advice: What a team with Python processes should do about it.
    """

    title: str
    pattern: str
    means: str
    advice: str = ""


SUPER_FETCH = "Sidekiq Pro's super_fetch"
GITLAB = "GitLab's reliable fetcher"
_LOSES_JOBS = (
    "Its client middleware raises for a class that Ruby does not have, so Ruby's poller loses Python's scheduled jobs "
    "and retries"
)
_DECLARE_THEM = "Declare the classes of Python's jobs in Ruby, too."

FAMILIES = (
    Family(
        "Sidekiq Pro's batches",
        r"batches|b-[\w-]{14}(?:-\w+)?",
        "A job with `bid` belongs to a batch, and only Ruby can count it there",
        "Leave queues with such jobs to Ruby.",
    ),
    Family(
        SUPER_FETCH,
        r"super_processes|queue:sq\|.*|.*:super_queues",
        "They hold the jobs that Ruby processes are running. Only Ruby recovers those of a dead process: when a "
        "process starts, and once an hour after that. Python neither reads nor changes them",
    ),
    Family(
        "Sidekiq Enterprise's leader",
        r"dear-leader",
        "Only that process enqueues periodic jobs. Enterprise also counts the threads of Python processes, because "
        "they are in `processes`",
        "Check the thread count of your licence. Python processes never stand for election.",
    ),
    Family(
        "Sidekiq Enterprise's periodic jobs",
        r"loops|loops:.*|loop-history:.*|periodic|periodic:.*",
        "Ruby's leader enqueues them; a Python process runs those whose class it declares",
    ),
    Family(
        "Sidekiq Enterprise's rate limiters",
        r"lmtr-.*",
        "They limit only Ruby's jobs; a rescheduled job carries `overrated`, which Python does not count",
        "Limit Python's jobs with its concurrency.",
    ),
    Family(
        "Sidekiq Enterprise's unique jobs",
        r"unique:(?!keys$).*",
        "Jobs pushed from Python take no lock, and for jobs that Python runs the lock stays until it expires",
        "Let Ruby run and push jobs with `unique_for`.",
    ),
    Family(
        "sidekiq-cron",
        r"cron_jobs|cron_jobs:.*|cron_job:.*",
        "They hold the periodic jobs of both languages; `sidekiq-py cron list` shows them",
    ),
    Family(
        "sidekiq-scheduler",
        r"schedules|schedules_changed|sidekiq-scheduler:.*",
        "Ruby processes enqueue its jobs; a Python process runs those whose class it declares",
    ),
    Family(
        "sidekiq-unique-jobs",
        r"uniquejobs:.*|unique:keys",
        "Jobs pushed from Python take no lock. If Python runs a job with `lock_digest`, its lock stays until "
        "the gem's reaper removes it or it expires",
        "Let Ruby run and push jobs with a `lock`.",
    ),
    Family(
        GITLAB,
        r"working:queue:.*|reliable-fetcher-.*",
        "They hold the jobs that Ruby processes are running, and only Ruby recovers those of a dead process",
    ),
    Family(
        "sidekiq-batch (not Sidekiq Pro's)",
        r"BID-.*|invalidated-bid-.*",
        "Python workers run and count its jobs; callbacks run only in Ruby",
        "Give each batch a callback_queue that only Ruby serves.",
    ),
    Family(
        "sidekiq-status",
        r"sidekiq:status:.*",
        "A job that Python runs updates its status if it is declared with status=True or calls progress(); others keep "
        "the status they were pushed with",
    ),
    Family(
        "sidekiq-throttled",
        r"throttled:.*",
        "Its limits apply only in Ruby processes",
    ),
    Family(
        "sidekiq-limit_fetch",
        r"limit_fetch:.*|limit:processes|limit:heartbeat:.*",
        "Its limits and pauses apply only in Ruby processes",
        "To pause a queue in Python as well: sidekiq-py queues pause NAME",
    ),
    Family(
        "sidekiq-grouping",
        r"batching:(?:batches|last_execution_time:.*|lock:.*)",
        f"Jobs pushed from Python are not grouped. {_LOSES_JOBS}",
        _DECLARE_THEM,
    ),
    Family(
        "sidekiq-debouncer",
        r"debouncer|debounce/v\d+/.*",
        f"Jobs pushed from Python are not debounced. {_LOSES_JOBS}",
        _DECLARE_THEM,
    ),
    Family(
        "sidekiq-fair_tenant",
        r"sidekiq-fair_tenant:.*",
        f"Jobs pushed from Python go to the queue that they name. {_LOSES_JOBS}",
        _DECLARE_THEM,
    ),
    Family(
        "activejob-uniqueness",
        r"activejob_uniqueness:.*",
        "Jobs pushed from Python take no lock, and for jobs that Python runs the lock stays until it expires",
        "Let Ruby run and push jobs that are `unique`.",
    ),
)


_NAMES = re.compile("|".join(f"(?P<f{number}>{family.pattern})" for number, family in enumerate(FAMILIES)), re.DOTALL)


def family_of(name: str) -> Family | None:
    """The family that a key belongs to; None for keys of Sidekiq, of sidekiq_py and of anything unknown."""
    match = _NAMES.fullmatch(name)
    return None if match is None or match.lastgroup is None else FAMILIES[int(match.lastgroup[1:])]


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Group key names by the title of their family, sorted."""
    found: dict[str, list[str]] = {}
    for name in names:
        family = family_of(name)
        if family is not None:
            found.setdefault(family.title, []).append(name)
    return {title: sorted(found[title]) for title in (family.title for family in FAMILIES) if title in found}
