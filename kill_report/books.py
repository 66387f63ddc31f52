"""
The accounts of a round: which jobs were lost, and why a job ran more than once.

A repeat must be explained by a fault in the process of its first run, or in its Redis. A repeat without an explanation
counts as unexplained, and is as bad as a loss.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from kill_report.stalls import Stall, seconds_of
from tests.support.ledger import Run

RAN = "it ran when its process was killed"
JUST_ENDED = "it had ended within a second before its process was killed"
STOOD_STILL = "it had ended within a second before its process was killed, but for a time when the machine stood still"
HAD_NO_CPU = "it had ended within a second before its process was killed, but for a time when the process had no CPU"
CUT_OFF = "it had ended within a second before its process was killed, but for a time when its machine was cut off"
OUTLASTED_LEASE = "the machine stood still for longer than a lease"
UNEXPLAINED = "unexplained"
# The default, which is the longest of any campaign.
LEASE_SECONDS = 30.0
# A success is acknowledged within milliseconds; a process that is short of CPU takes longer.
JUST_BEFORE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Excuse:
    """
    A reason why jobs that ran at some time may run twice.

    Args:
        pid: The process it applies to; None for every process.
        begin: When it begins, in seconds on the ledger's clock.
        until: When it ends.
        why: The text for the page.
    """

    pid: int | None
    begin: float
    until: float
    why: str

    def covers(self, run: Run) -> bool:
        """True if the run was in progress at that time, or had ended just before."""
        if self.pid is not None and self.pid != run.pid:
            return False
        return run.start <= self.until and (run.end is None or run.end >= self.begin - JUST_BEFORE_SECONDS)


@dataclass(slots=True)
class Incidents:
    """
    The faults that the processes of a round suffered.

    Attributes:
        deaths: When each killed process was sent SIGKILL.
        excuses: Other reasons why a job may run again.
        stalls: When the machine was stalled.
        waits: When a thread of a process waited for a CPU, by process id.
        cuts: When nothing that a process sent arrived, by process id.
    """

    deaths: dict[int, float] = field(default_factory=dict)
    excuses: list[Excuse] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    waits: dict[int, list[Stall]] = field(default_factory=dict)
    cuts: dict[int, list[Stall]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What happened to the jobs of a round.

    Attributes:
        lost: The jobs that neither finished nor are in Redis.
        repeats: The number of surplus runs, by reason.
        unended_in_dead: The number of jobs that never finished and are in Redis: they exceeded a time limit, or four
            processes were killed while running them.
        recovery_seconds: For each process whose death cut off jobs, the time until the last of them had started again.
            Omitted if another process was killed in the meantime, as that one may have had the same job.
        together: The jobs with two runs that overlapped without an excuse.
    """

    lost: tuple[int, ...]
    repeats: Counter[str]
    unended_in_dead: int
    recovery_seconds: dict[int, float]
    together: tuple[int, ...]


def judge(runs: Iterable[Run], expected: Set[int], standing: Set[int], incidents: Incidents) -> Verdict:
    """
    Settle the accounts.

    Args:
        runs: The runs in the ledger, ordered by start time.
        expected: The numbers of all jobs that were enqueued.
        standing: The numbers of the jobs that are in Redis at the end.
    """
    by_number: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_number[run.number].append(run)
    repeats: Counter[str] = Counter()
    again_at: dict[int, float] = {}
    together = []
    for number, found in by_number.items():
        for first, second in itertools.pairwise(found):
            why = reason(first, second, incidents)
            repeats[why] += 1
            if why == RAN:
                again_at[first.pid] = max(again_at.get(first.pid, 0.0), second.start)
            if _overlap(first, second, incidents):
                together.append(number)
    ended = {number for number, found in by_number.items() if any(run.end is not None for run in found)}
    return Verdict(
        lost=tuple(sorted(expected - ended - standing)),
        repeats=repeats,
        unended_in_dead=len((expected & standing) - ended),
        recovery_seconds={
            pid: max(0.0, at - incidents.deaths[pid])
            for pid, at in again_at.items()
            if not any(incidents.deaths[pid] < death < at for death in incidents.deaths.values())
        },
        together=tuple(together),
    )


def reason(first: Run, second: Run, incidents: Incidents) -> str:
    """The reason why *second* followed *first*."""
    death = incidents.deaths.get(first.pid)
    if death is not None and first.end is None:
        return RAN
    if death is not None and first.end is not None:
        had_seconds = death - first.end
        if had_seconds < JUST_BEFORE_SECONDS:
            return JUST_ENDED
        if had_seconds - seconds_of(incidents.stalls, first.end, death) < JUST_BEFORE_SECONDS:
            return STOOD_STILL
        if had_seconds - seconds_of(incidents.waits.get(first.pid, ()), first.end, death) < JUST_BEFORE_SECONDS:
            return HAD_NO_CPU
        if had_seconds - seconds_of(incidents.cuts.get(first.pid, ()), first.end, death) < JUST_BEFORE_SECONDS:
            return CUT_OFF
    # The process that was cut off may also be the one with the later run.
    for excuse in _excuses(incidents):
        if excuse.covers(first) or excuse.covers(second):
            return excuse.why
    return UNEXPLAINED


def _excuses(incidents: Incidents) -> list[Excuse]:
    """All excuses. While the machine stands still, no process can renew its lease."""
    stalls = [(begin, until) for begin, until in incidents.stalls if until - begin > LEASE_SECONDS]
    return [*incidents.excuses, *(Excuse(None, begin, until, OUTLASTED_LEASE) for begin, until in stalls)]


def _overlap(first: Run, second: Run, incidents: Incidents) -> bool:
    end = first.end if first.end is not None else incidents.deaths.get(first.pid, first.seen)
    if second.start >= max(end, first.seen):
        return False
    return not any(excuse.covers(first) or excuse.covers(second) for excuse in _excuses(incidents))
