"""Who settles the job of a frozen child, whoever answers first, late, or never."""

import math
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess, End, Limit, Reason, State, terminated_by
from sidekiq_py.engine.prefork.hard_limits import HardLimits
from sidekiq_py.engine.prefork.pipes import LinePipe, Outbox, readable
from tests.support.process_states import state_of
from tests.support.waiting import eventually

OWNER, JOB = "host:1:a", "1.0:a queue"


class Family:
    """Processes that do nothing, and the pipes between them and a parent; the test answers for them."""

    def __init__(self, exits: ExitStack) -> None:
        self._exits = exits
        self._downs: dict[int, LinePipe] = {}
        self.children: list[ChildProcess] = []
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.limits = HardLimits(self)

    @property
    def staying(self) -> list[ChildProcess]:
        """Those that are counted on."""
        return [child for child in self.children if child.is_staying]

    def add(self, state: State = State.READY) -> ChildProcess:
        """One more child."""
        process = subprocess.Popen(["sleep", "600"])
        self._exits.callback(process.wait)
        self._exits.callback(process.kill)
        up_read, up_write = os.pipe()
        down_read, down_write = os.pipe()
        for fd in (up_read, up_write, down_read, down_write):
            self._exits.callback(os.close, fd)
        child = ChildProcess(process.pid, LinePipe(up_read), Outbox(down_write), monotonic(), state)
        self._downs[child.pid], self.processes[child.pid] = LinePipe(down_read), process
        self.children.append(child)
        return child

    def start(self) -> ChildProcess:
        """One more, which still starts."""
        return self.add(State.STARTING)

    def stop(self, child: ChildProcess, reason: Reason) -> None:
        """Nobody is stopped here."""

    def was_asked(self, child: ChildProcess) -> bool:
        """It was told to settle the job, since this was called before; a job that is due has its child frozen first."""
        self.limits.step()
        if self.limits.involved and self.limits.involved[0].state is State.FREEZING:
            eventually(lambda: self.limits.step() or self.limits.involved[0].state is State.FROZEN)
        down = self._downs[child.pid]
        return bool(readable([down.fd], 0)) and [message.word for message in down.read() or ()] == ["KILLED"]

    def received_by(self, child: ChildProcess) -> list[str]:
        """What it is told."""
        return [" ".join((message.word, *message.details)) for message in self._downs[child.pid].read() or ()]

    def answer(self, child: ChildProcess, answer: str) -> None:
        """What it says about the job."""
        self.limits.note_settled(child, answer, OWNER, JOB)

    def state(self, child: ChildProcess) -> str:
        """Of its process, as ps shows it."""
        return state_of(child.pid)

    def is_killed(self, child: ChildProcess) -> bool:
        """By the parent."""
        return self.processes[child.pid].wait(60) == -signal.SIGKILL


@pytest.fixture
def family() -> Iterator[Family]:
    """One child whose job is past its limit."""
    with ExitStack() as exits:
        one = Family(exits)
        one.add().limit = Limit("1.0", OWNER, JOB, monotonic())
        yield one


def test_the_next_child_is_asked_where_one_does_not_answer(family: Family) -> None:
    """One that runs nothing itself; its answer counts, and the late one is passed over."""
    frozen, deaf = family.children[0], family.add()
    busy, idle = family.add(), family.add()
    busy.limit = Limit("60.0", "host:2:b", "2.0:a queue", monotonic() + 600)
    assert family.was_asked(deaf)
    assert family.state(frozen) == "T"

    eventually(lambda: family.was_asked(idle))
    family.answer(idle, "yes")
    assert family.is_killed(frozen)
    family.answer(deaf, "no")

    assert family.limits.involved == ()
    assert not family.was_asked(busy)


def test_a_child_is_started_where_no_other_is_left(family: Family) -> None:
    """It is told at once, and hears it when it is ready."""
    frozen, deaf = family.children[0], family.add()
    assert family.was_asked(deaf)

    [_, _, started] = eventually(lambda: family.limits.step() or (len(family.children) == 3 and family.children))

    assert family.was_asked(started)
    assert family.limits.involved == (frozen, deaf, started)


def test_a_job_that_survives_its_signal_is_ended_by_its_hard_limit(family: Family) -> None:
    """The child goes on with the signal for it; nobody is asked to settle the job a second time."""
    child, helper = family.children[0], family.add()
    child.limit = Limit("60.0", OWNER, JOB, monotonic() + 600)
    child.begin_order(Limit(terminated_by(signal.SIGTERM), OWNER, JOB, monotonic()))
    assert family.was_asked(helper)

    family.answer(helper, "yes")

    assert family.received_by(child) == ["SIGNAL 15"]
    assert (child.state, child.limit.seconds, child.limit.is_settled) == (State.READY, "60.0", True)
    eventually(lambda: family.state(child) == "S")
    child.limit.due = monotonic()
    family.limits.step()
    assert family.is_killed(child)
    assert not family.was_asked(helper)


def test_a_second_signal_needs_no_settling(family: Family) -> None:
    """Whatever has become of the first; SIGKILL ends the child."""
    child, helper = family.children[0], family.add()
    child.limit = None
    child.begin_order(Limit(terminated_by(signal.SIGINT), OWNER, JOB, monotonic()))
    assert family.was_asked(helper)
    family.answer(helper, "yes")
    assert list(family.limits.moments()) == [math.inf]

    for number in (signal.SIGTERM, signal.SIGKILL):
        child.begin_order(Limit(terminated_by(number), OWNER, JOB, monotonic()))
        family.limits.step()

    assert family.received_by(child) == ["SIGNAL 2", "SIGNAL 15"]
    assert family.is_killed(child)
    assert child.note_end(-signal.SIGKILL) is End.CUT_SHORT


def test_who_finds_nothing_to_settle_may_have_come_second(family: Family) -> None:
    """The first one's answer is on its way; the frozen child must not go on with a job that is settled."""
    frozen, deaf, second = family.children[0], family.add(), family.add()
    assert family.was_asked(deaf)
    eventually(lambda: family.was_asked(second))

    family.answer(second, "no")
    family.answer(deaf, "yes")

    assert family.is_killed(frozen)


def test_who_was_asked_alone_and_finds_nothing_lets_it_go_on(family: Family) -> None:
    """The job had ended in that very moment, and the child says so next."""
    frozen, helper = family.children[0], family.add()
    assert family.was_asked(helper)

    family.answer(helper, "no")

    eventually(lambda: family.state(frozen) != "T")
    assert (frozen.state, family.limits.involved) == (State.READY, ())
    frozen.limit = None
    assert list(family.limits.moments()) == []


def test_a_job_that_goes_on_without_being_in_flight_is_ended(family: Family) -> None:
    """Redis has lost it, or another worker has it; nobody is asked a second time."""
    child, helper = family.children[0], family.add()
    assert family.was_asked(helper)
    family.answer(helper, "no")
    assert (child.state, child.limit is not None) == (State.READY, True)

    eventually(lambda: family.limits.step() or child.state is State.KILLED)

    assert family.is_killed(child)
    assert not family.was_asked(helper)


def test_a_helper_that_dies_is_no_answer(family: Family) -> None:
    """The next one is asked at once; the dead one may have settled the job."""
    frozen, dying, second = family.children[0], family.add(), family.add()
    assert family.was_asked(dying)

    family.children.remove(dying)
    family.limits.note_gone(dying)
    assert family.was_asked(second)
    family.answer(second, "no")

    assert family.is_killed(frozen)


def test_a_job_that_is_settled_after_it_was_let_go_on_is_ended(family: Family) -> None:
    """Redis was away for one helper, and the other one's answer comes late."""
    frozen, deaf, second = family.children[0], family.add(), family.add()
    assert family.was_asked(deaf)
    eventually(lambda: family.was_asked(second))
    family.answer(second, "later")
    assert family.state(frozen) == "T"
    family.answer(deaf, "later")
    eventually(lambda: family.state(frozen) != "T")

    family.answer(deaf, "yes")

    assert family.is_killed(frozen)


def test_an_answer_about_a_former_job_is_none_about_this_one(family: Family) -> None:
    """A helper may answer a question of some time ago."""
    frozen, helper = family.children[0], family.add()
    assert family.was_asked(helper)
    note: Callable[[str, str], None] = lambda answer, job: family.limits.note_settled(helper, answer, OWNER, job)  # noqa: E731

    note("no", "0.5:a queue")
    note("yes", "0.5:a queue")

    assert family.state(frozen) == "T"
    assert family.limits.involved == (frozen, helper)


def test_a_child_that_ends_just_as_its_job_is_overdue_ends_nobody_else(family: Family) -> None:
    """The system does not know it any more: there is nothing to wait for."""
    gone, helper = family.children[0], family.add()
    family.processes[gone.pid].kill()
    family.processes[gone.pid].wait()

    assert family.was_asked(helper)
    family.limits.note_gone(gone)

    assert family.limits.involved == ()


def test_a_job_that_ends_while_its_child_is_being_frozen_is_settled_by_nobody(family: Family) -> None:
    """What the child said until it stood still is read first."""
    child, helper = family.children[0], family.add()
    family.limits.step()
    assert child.state is State.FREEZING

    child.limit = None
    assert not family.was_asked(helper)

    eventually(lambda: family.state(child) != "T")
    assert (child.state, family.limits.involved) == (State.READY, ())


def test_a_child_that_was_told_to_stop_while_it_stood_still_leaves_when_it_goes_on(family: Family) -> None:
    """It does not count as one that takes jobs."""
    frozen, helper = family.children[0], family.add()
    assert family.was_asked(helper)

    frozen.stop(Reason.REPLACED, monotonic() + 60)
    assert frozen.state is State.FROZEN
    family.answer(helper, "no")

    assert frozen.state is State.LEAVING
    assert family.processes[frozen.pid].wait(60) == -signal.SIGTERM
