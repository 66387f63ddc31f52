"""
Keys and payload keys that are not open-source Sidekiq's: whose they are, and what that means for a Python process.

Source: wiki and change logs of Sidekiq Pro and Enterprise (no code of theirs is public); sidekiq-cron 1.12 and 2.3,
sidekiq-scheduler 6.0, sidekiq-unique-jobs 8.0, gitlab-sidekiq-fetcher 0.9, sidekiq-status 4.0, sidekiq-throttled 1.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """
    Keys of one feature.

    Args:
        title: Whose.
        pattern: Of the whole name of a key.
        means: A sentence.
        advice: What a team with Python processes does about it.
    """

    title: str
    pattern: str
    means: str
    advice: str = ""


SUPER_FETCH = "Sidekiq Pro's super_fetch"
GITLAB = "GitLab's reliable fetcher"

FAMILIES = (
    Family(
        "Sidekiq Pro's batches",
        r"batches|b-[\w-]{14}(?:-\w+)?",
        "A job with `bid` belongs to one, and only Ruby can count it there",
        "Leave queues with such jobs to Ruby.",
    ),
    Family(
        SUPER_FETCH,
        r"super_processes|queue:sq\|.*|.*:super_queues",
        "Jobs that Ruby processes run stand there, and only Ruby brings back those of a dead process: when a process "
        "starts, then once an hour. Python neither reads nor changes them",
    ),
    Family(
        "Sidekiq Enterprise's leader",
        r"dear-leader",
        "Only that process enqueues periodic jobs. Enterprise counts the threads of Python processes too, as they "
        "stand in `processes`",
        "Mind the thread count of the licence. Python processes never stand for election.",
    ),
    Family(
        "Sidekiq Enterprise's periodic jobs",
        r"loops|loops:.*|loop-history:.*|periodic|periodic:.*",
        "They are enqueued by Ruby's leader; a Python process runs those whose class it declares",
    ),
    Family(
        "Sidekiq Enterprise's rate limiters",
        r"lmtr-.*",
        "They limit Ruby's jobs alone; a job that was put off has `overrated`, which Python does not count",
        "Limit what Python runs by its concurrency.",
    ),
    Family(
        "Sidekiq Enterprise's unique jobs",
        r"unique:.*",
        "What is pushed from Python takes no lock, and what Python runs releases none before it expires",
        "Let Ruby run and push jobs with `unique_for`.",
    ),
    Family(
        "sidekiq-cron",
        r"cron_jobs|cron_jobs:.*|cron_job:.*",
        "The periodic jobs of both languages stand there; `sidekiq-py cron list` shows them",
    ),
    Family(
        "sidekiq-scheduler",
        r"schedules|schedules_changed|sidekiq-scheduler:.*",
        "Ruby processes enqueue its jobs; a Python process runs those whose class it declares",
    ),
    Family(
        "sidekiq-unique-jobs",
        r"uniquejobs:.*",
        "What is pushed from Python takes no lock, and a job with `lock_digest` that Python runs leaves its lock to "
        "the gem's reaper or to its expiry",
        "Let Ruby run and push jobs with a `lock`.",
    ),
    Family(
        GITLAB,
        r"working:queue:.*|reliable-fetcher-.*",
        "Jobs that Ruby processes run stand there, and only Ruby brings back those of a dead process",
    ),
    Family(
        "sidekiq-batch (not Sidekiq Pro's)",
        r"BID-.*|invalidated-bid-.*",
        "Python workers run and count its jobs; callbacks run in Ruby alone",
        "Give each batch a callback_queue that only Ruby serves.",
    ),
    Family(
        "sidekiq-status",
        r"sidekiq:status:.*",
        "Jobs that Python runs write theirs if they are declared with status=True or call progress(); the others keep "
        "the status that they were pushed with",
    ),
    Family(
        "sidekiq-throttled",
        r"throttled:.*",
        "Its limits hold in Ruby's processes alone",
    ),
)


_NAMES = re.compile("|".join(f"(?P<f{number}>{family.pattern})" for number, family in enumerate(FAMILIES)), re.DOTALL)


def family_of(name: str) -> Family | None:
    """Whose key it is; None for Sidekiq's, ours and everybody else's."""
    match = _NAMES.fullmatch(name)
    return None if match is None or match.lastgroup is None else FAMILIES[int(match.lastgroup[1:])]


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of keys by the title of their family, sorted."""
    found: dict[str, list[str]] = {}
    for name in names:
        family = family_of(name)
        if family is not None:
            found.setdefault(family.title, []).append(name)
    return {title: sorted(found[title]) for title in (family.title for family in FAMILIES) if title in found}
