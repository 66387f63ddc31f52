"""
The books of a round: which jobs were lost, and for what reason a job ran more than once.

A repeat has to be explained by something that was done to the process of its first run, or to its Redis; what nothing
explains is counted as unexplained, and is as bad as a loss.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from kill_report.stalls import Stall
from tests.support.ledger import Run

RAN = "it ran when its process was killed"
JUST_ENDED = "it had ended within a second before its process was killed"
STOOD_STILL = "it had ended within a second before its process was killed, but for a time when the machine stood still"
UNEXPLAINED = "unexplained"
# A success is handed in within milliseconds; a process that is short of CPU takes longer.
JUST_BEFORE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Excuse:
    """
    Why jobs may run twice that ran at a time.

    Args:
        pid: Whose; None for every process.
        begin: Seconds on the ledger's clock.
        until: As long as that.
        why: As it stands on the page.
    """

    pid: int | None
    begin: float
    until: float
    why: str

    def covers(self, run: Run) -> bool:
        """The run was under way then, or had ended just before."""
        if self.pid is not None and self.pid != run.pid:
            return False
        return run.start <= self.until and (run.end is None or run.end >= self.begin - JUST_BEFORE_SECONDS)


@dataclass(slots=True)
class Troubles:
    """
    What was done to the processes of a round.

    Attributes:
        deaths: When each process that was killed was sent its death.
        excuses: What else may have a job run again.
        stalls: When the machine stood still.
    """

    deaths: dict[int, float] = field(default_factory=dict)
    excuses: list[Excuse] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)

    def stalled_seconds(self, begin: float, until: float) -> float:
        """For how long it stood still between these two."""
        return sum(max(0.0, min(until, end) - max(begin, start)) for start, end in self.stalls)


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What became of the jobs of a round.

    Attributes:
        lost: Neither ran to their end nor stand in Redis.
        repeats: Runs too many, by their reason.
        unended_in_dead: Never came to their end and stand in Redis: past a time limit, or as four processes were killed
            under them.
        recovery_seconds: For each process whose death cut off jobs: until the last of them had started again. Left out
            where another process was killed meanwhile: that one may have had the same job.
        together: Jobs of which two runs overlapped without an excuse.
    """

    lost: tuple[int, ...]
    repeats: Counter[str]
    unended_in_dead: int
    recovery_seconds: dict[int, float]
    together: tuple[int, ...]


def judge(runs: Iterable[Run], expected: Set[int], standing: Set[int], troubles: Troubles) -> Verdict:
    """
    Close the books.

    Args:
        runs: What the ledger holds, by the time of the start.
        expected: The numbers of all jobs that were enqueued.
        standing: The numbers of those that Redis has in the end.
    """
    by_number: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_number[run.number].append(run)
    repeats: Counter[str] = Counter()
    again_at: dict[int, float] = {}
    together = []
    for number, found in by_number.items():
        for first, second in itertools.pairwise(found):
            why = reason(first, second, troubles)
            repeats[why] += 1
            if why == RAN:
                again_at[first.pid] = max(again_at.get(first.pid, 0.0), second.start)
            if _overlap(first, second, troubles):
                together.append(number)
    ended = {number for number, found in by_number.items() if any(run.end is not None for run in found)}
    return Verdict(
        lost=tuple(sorted(expected - ended - standing)),
        repeats=repeats,
        unended_in_dead=len((expected & standing) - ended),
        recovery_seconds={
            pid: max(0.0, at - troubles.deaths[pid])
            for pid, at in again_at.items()
            if not any(troubles.deaths[pid] < death < at for death in troubles.deaths.values())
        },
        together=tuple(together),
    )


def reason(first: Run, second: Run, troubles: Troubles) -> str:
    """Why *second* followed *first*."""
    death = troubles.deaths.get(first.pid)
    if death is not None and first.end is None:
        return RAN
    if death is not None and first.end is not None:
        had_seconds = death - first.end
        if had_seconds < JUST_BEFORE_SECONDS:
            return JUST_ENDED
        if had_seconds - troubles.stalled_seconds(first.end, death) < JUST_BEFORE_SECONDS:
            return STOOD_STILL
    # A process that was cut off may also be the one that ran the job too late.
    for excuse in troubles.excuses:
        if excuse.covers(first) or excuse.covers(second):
            return excuse.why
    return UNEXPLAINED


def _overlap(first: Run, second: Run, troubles: Troubles) -> bool:
    end = first.end if first.end is not None else troubles.deaths.get(first.pid, first.seen)
    if second.start >= max(end, first.seen):
        return False
    return not any(excuse.covers(first) or excuse.covers(second) for excuse in troubles.excuses)
