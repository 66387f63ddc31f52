"""The books of the reliability report: they find losses and repeats that nothing explains."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from kill_report.books import (
    CUT_OFF,
    HAD_NO_CPU,
    JUST_ENDED,
    OUTLASTED_LEASE,
    RAN,
    STOOD_STILL,
    UNEXPLAINED,
    Excuse,
    Incidents,
    judge,
)
from kill_report.stalls import seconds_of, stalls, stalls_noted, waits
from tests.support.ledger import Run
from tests.support.process_states import state_of
from tests.support.waiting import eventually


def ran(number: int, pid: int, start: float, end: float | None = None) -> Run:
    """A run in thread 1."""
    return Run(number, pid, 1, start, end if end is not None else start, end)


def test_a_job_that_never_ended_and_stands_nowhere_is_lost() -> None:
    """Neither a start alone nor silence is enough; what Redis still has is not lost."""
    verdict = judge([ran(0, 7, 1.0, 2.0), ran(1, 7, 1.0)], {0, 1, 2, 3}, {3}, Incidents())

    assert verdict.lost == (1, 2)
    assert verdict.unended_in_dead == 1


def test_a_repeat_is_explained_by_the_death_of_its_process() -> None:
    """It ran when its process died, or had ended within a second before; the time until it ran again is counted."""
    runs = [ran(0, 7, 9.0), ran(1, 7, 9.0, 9.5), ran(0, 8, 12.0, 12.1), ran(1, 8, 13.0, 13.1)]

    verdict = judge(runs, {0, 1}, set(), Incidents({7: 10.0}))

    assert verdict.repeats == {RAN: 1, JUST_ENDED: 1}
    assert verdict.recovery_seconds == {7: 2.0}
    assert verdict.lost == verdict.together == ()


def test_a_repeat_without_a_death_is_unexplained() -> None:
    """Also one whose process died long after its end, and one that another process ran at the same time."""
    runs = [ran(0, 7, 1.0, 2.0), ran(0, 8, 5.0, 6.0), ran(1, 8, 1.0, 9.0), ran(1, 9, 2.0, 3.0)]

    verdict = judge(runs, {0, 1}, set(), Incidents({7: 10.0}))

    assert verdict.repeats == {UNEXPLAINED: 2}
    assert verdict.together == (1,)


def test_an_excuse_covers_its_process_and_its_time_alone() -> None:
    """A machine that was cut off explains what its workers ran then, and nothing that ran before."""
    incidents = Incidents(excuses=[Excuse(7, 10.0, 20.0, "cut off")])
    runs = [ran(0, 7, 11.0, 12.0), ran(0, 8, 15.0, 16.0), ran(1, 7, 1.0, 2.0), ran(1, 8, 15.0, 16.0)]

    verdict = judge(runs, {0, 1}, set(), incidents)

    assert verdict.repeats == {"cut off": 1, UNEXPLAINED: 1}


@pytest.mark.parametrize(
    ("stall", "why"),
    [((8.5, 9.2), UNEXPLAINED), ((8.5, 9.7), STOOD_STILL), ((1.0, 8.3), UNEXPLAINED), ((8.9, 20.0), STOOD_STILL)],
    ids=["too short", "long enough", "before its end", "until after its death"],
)
def test_a_time_when_the_machine_stood_still_is_left_out(stall: tuple[float, float], why: str) -> None:
    """Whoever is killed a second and more after a job's end has handed it in, unless no process could do anything."""
    runs = [ran(0, 7, 8.0, 8.0), ran(0, 8, 15.0, 16.0)]

    verdict = judge(runs, {0}, set(), Incidents({7: 10.0}, stalls=[stall]))

    assert verdict.repeats == {why: 1}


@pytest.mark.parametrize(("until", "why"), [(39.0, UNEXPLAINED), (41.0, OUTLASTED_LEASE)])
def test_a_machine_that_stood_still_for_longer_than_a_lease_explains_what_ran_then(until: float, why: str) -> None:
    """Others take such a job, although its process goes on with it. What ran before is not explained by that."""
    runs = [ran(0, 7, 9.0, until + 1), ran(0, 8, until + 0.5, until + 2), ran(1, 7, 1.0, 2.0), ran(1, 8, 3.0, 4.0)]

    verdict = judge(runs, {0, 1}, set(), Incidents(stalls=[(10.0, until)]))

    assert verdict.repeats == Counter([UNEXPLAINED, why])


def test_a_time_when_the_process_had_no_cpu_is_left_out() -> None:
    """Only the time of that process counts, and no moment counts twice."""
    runs = [ran(0, 7, 8.0, 8.0), ran(0, 9, 15.0, 16.0), ran(1, 8, 8.0, 8.0), ran(1, 9, 15.0, 16.0)]
    incidents = Incidents({7: 10.0, 8: 10.0}, waits={7: [(8.2, 9.0), (8.5, 9.4)], 8: [(8.2, 8.8), (8.3, 8.9)]})

    verdict = judge(runs, {0, 1}, set(), incidents)

    assert verdict.repeats == {HAD_NO_CPU: 1, UNEXPLAINED: 1}


def test_a_time_when_nothing_that_the_process_sent_arrived_is_left_out() -> None:
    """A kill soon after a short cut: the acknowledgement was still to be sent again. Others have no such time."""
    runs = [ran(0, 7, 8.0, 8.0), ran(0, 9, 15.0, 16.0), ran(1, 8, 8.0, 8.0), ran(1, 9, 15.0, 16.0)]
    incidents = Incidents({7: 10.0, 8: 10.0}, cuts={7: [(8.1, 9.9)]})

    verdict = judge(runs, {0, 1}, set(), incidents)

    assert verdict.repeats == {CUT_OFF: 1, UNEXPLAINED: 1}


def test_it_is_noted_when_a_process_waits_for_a_cpu(tmp_path: Path) -> None:
    """Here others have the same core and more weight; a process that sleeps waits for nothing."""
    noted = tmp_path / "stalls"
    core = min(os.sched_getaffinity(0))
    with stalls_noted(noted), ExitStack() as exits:
        before = time.monotonic()
        for _ in range(2):
            _run_python(f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass", exits)
        lesser = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"
        waiting = _run_python(f"import os; os.sched_setaffinity(0, {{{core}}}); {lesser}\nwhile True: pass", exits)
        sleeping = _run_python("import time; time.sleep(3600)", exits)
        eventually(lambda: seconds_of(waits(noted).get(waiting, []), before, time.monotonic()) > 0.5)

        found = waits(noted)

    assert seconds_of(found.get(sleeping, []), before, time.monotonic()) < 0.5


def _run_python(code: str, exits: ExitStack) -> int:
    process = exits.enter_context(subprocess.Popen([sys.executable, "-S", "-c", code]))
    exits.callback(process.kill)
    return process.pid


def test_it_is_noted_when_the_machine_stands_still(tmp_path: Path) -> None:
    """Here only the processes that watch do; and one alone may have waited for its turn."""
    noted = tmp_path / "stalls"
    with stalls_noted(noted) as watching:
        # They sleep between two looks.
        eventually(lambda: all(map(_sleeps, watching)))
        _stop_for(watching[:1], 0.4)
        before = time.monotonic()
        _stop_for(watching, 0.6)
        found = eventually(lambda: [stall for stall in stalls(noted) if stall[1] > before + 0.5])
        # On a busy machine, the other one may wait for a while at the same time.
        alone = [stall for stall in stalls(noted) if stall[1] < before and stall[1] - stall[0] > 0.35]

    [(begin, until)] = found
    assert until - begin > 0.5
    assert begin < before + 0.3
    assert len(watching) == len(os.sched_getaffinity(0))
    assert not (alone and len(watching) > 1)


def _stop_for(pids: list[int], seconds: float) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _sleeps(pid: int) -> bool:
    return state_of(pid) == "S"
