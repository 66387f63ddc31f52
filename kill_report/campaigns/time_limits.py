"""Jobs that end around the time of their hard or soft limit: each one either finishes or fails, exactly once."""

from collections.abc import Callable

from kill_report.campaigns.process_kills import QUEUES
from kill_report.stage import PATIENCE_SECONDS, Stage
from tests.support.ledger import job_text, push_jobs
from tests.support.process_states import children_of

HARD_SECONDS = 0.3
SOFT_SECONDS = 0.02
HARD_JOBS = 120
SOFT_JOBS = 4000


def hard_limits(stage: Stage) -> set[int]:
    """A parent kills the child whose job is past its limit; in addition, some children are killed from outside."""
    fleet = stage.fleet()
    parent = fleet.start(wait=False, processes=3, concurrency=1, hard_timeout_seconds=HARD_SECONDS, queues=QUEUES)
    parent.wait_until_ready(processes=3, within_seconds=PATIENCE_SECONDS)
    jobs = stage.scaled(HARD_JOBS)
    for turn in range(stage.scaled(4)):
        first = len(stage.expected)
        durations = [HARD_SECONDS * stage.draw.uniform(0.5, 1.5) for _ in range(max(1, jobs // 4))]
        texts = [job_text(first + n, "endless", [seconds], retry=0) for n, seconds in enumerate(durations)]
        push_jobs(fleet.client, texts)
        stage.expected |= set(range(first, first + len(texts)))
        stage.push(fleet, 500)
        if turn % 2 and (family := children_of(parent.pid)):
            stage.kill(stage.draw.choice(family), "child of --processes beside hard limits")
    stage.wait_until_done(fleet)
    stage.faults["hard limit"] += int(fleet.client.zcount("dead", "-inf", "inf")) - _booms(stage)
    return stage.standing(fleet.client)


def _booms(stage: Stage) -> int:
    """The number of jobs in `dead` that failed on their own; these have finished."""
    ended = stage.tail.look().ended
    return sum(1 for number in stage.booms if number in ended)


def soft_limits(stage: Stage) -> set[int]:
    """The exception is raised in its own job, or nowhere."""
    fleet = stage.fleet()
    fleet.start(wait=False, concurrency=4, timeout_seconds=SOFT_SECONDS, queues=QUEUES)
    jobs = stage.scaled(SOFT_JOBS)
    durations = [SOFT_SECONDS * stage.draw.uniform(0, 2) if number % 2 else 0.0 for number in range(jobs)]
    first = len(stage.expected)
    texts = [job_text(first + n, "limited" if n % 2 else "tick", [s], retry=0) for n, s in enumerate(durations)]
    push_jobs(fleet.client, texts)
    stage.expected |= set(range(first, first + jobs))
    stage.wait_until_done(fleet)
    stage.faults["soft limit"] += fleet.client.zcard("dead")
    return stage.standing(fleet.client)


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("hard-limits", "Hard time limits", hard_limits, 4),
    ("soft-limits", "Soft time limits", soft_limits, 2),
]
