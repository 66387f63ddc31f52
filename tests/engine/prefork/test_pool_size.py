"""How many children a family has, and which of them go."""

import os
from collections.abc import Callable, Iterator

import pytest

from sidekiq_py.engine.prefork.child_process import ChildProcess, State
from sidekiq_py.engine.prefork.pipes import LinePipe, Message, Outbox
from sidekiq_py.engine.prefork.pool_size import PoolSize
from sidekiq_py.engine.prefork.scaling import ScalingPolicy

NewChild = Callable[..., ChildProcess]


@pytest.fixture
def asked() -> dict[int, LinePipe]:
    """By pid, where a child hears what it is asked."""
    return {}


@pytest.fixture
def new_child(asked: dict[int, LinePipe]) -> Iterator[NewChild]:
    """`new_child(3)` makes a child with that number for a pid."""
    fds: list[int] = []

    def make(pid: int, *, is_ready: bool = True, born_at: float = 0.0) -> ChildProcess:
        pipes = [os.pipe() for _ in range(2)]
        fds.extend(fd for pair in pipes for fd in pair)
        asked[pid] = LinePipe(pipes[1][0])
        state = State.READY if is_ready else State.STARTING
        return ChildProcess(pid, LinePipe(pipes[0][0]), Outbox(pipes[1][1]), born_at, state)

    yield make
    for fd in fds:
        os.close(fd)


def test_of_too_many_children_the_idle_go_first(new_child: NewChild) -> None:
    """When all have said what they run."""
    size = PoolSize(2)
    children = [new_child(pid) for pid in range(1, 5)]
    assert size.step(children, now=0) == []

    for child, running in zip(children, (1, 0, 1, 0), strict=True):
        size.note_load(child, running)

    assert [child.pid for child in size.step(children, now=0.1)] == [2, 4]


def test_a_child_that_does_not_answer_counts_as_busy(new_child: NewChild) -> None:
    """It may be deep in C code; a second is enough to wait."""
    size = PoolSize(1)
    children = [new_child(1), new_child(2)]
    size.step(children, now=0)
    size.note_load(children[1], 0)

    assert size.step(children, now=0.9) == []
    assert size.due_at(children) == 1.0
    assert size.step(children, now=1) == [children[1]]


def test_a_child_that_has_not_started_goes_before_all_others(new_child: NewChild) -> None:
    """It has no job."""
    size = PoolSize(1)
    children = [new_child(1), new_child(2, is_ready=False)]
    size.step(children, now=0)
    size.note_load(children[0], 0)

    assert size.step(children, now=0) == [children[1]]


def test_a_child_that_started_during_the_question_goes_before_a_busy_one(new_child: NewChild) -> None:
    """It was not asked. The busy one would finish its job first, which may have handlers for the signal to stop."""
    size = PoolSize(1)
    children = [new_child(1), new_child(2, is_ready=False, born_at=1.0)]
    size.step(children, now=0)
    children[1].note_ready()
    size.note_load(children[0], 1)

    assert size.step(children, now=0) == [children[1]]


def test_busy_children_go_if_there_are_no_others(new_child: NewChild) -> None:
    """They finish what they run."""
    size = PoolSize(1)
    children = [new_child(1), new_child(2)]
    size.step(children, now=0)
    for child in children:
        size.note_load(child, 1)

    assert len(size.step(children, now=0)) == 1


def test_a_family_never_has_less_than_one() -> None:
    """Nor more than a machine bears."""
    size = PoolSize(2)

    assert size.resize(-3) == 1
    assert size.resize(10**9) == 1000


def test_a_policy_is_asked_once_a_second(new_child: NewChild) -> None:
    """One child says how many jobs wait."""
    size = PoolSize(2, ScalingPolicy(5, 1))
    children = [new_child(1), new_child(2)]
    size.step(children, now=0)
    size.note_load(children[0], 1)
    size.note_load(children[1], 1, 2)

    assert size.step(children, now=0) == []
    assert size.wanted == 4
    assert size.due_at(children) == 1.0


def test_only_one_child_counts_what_waits(new_child: NewChild, asked: dict[int, LinePipe]) -> None:
    """Redis is asked once; and not at all where the family cannot grow."""
    size = PoolSize(2, ScalingPolicy(3, 1))
    children = [new_child(1), new_child(2)]

    size.step(children, now=0)

    messages = [message for pid in (1, 2) for message in asked[pid].read() or ()]
    assert sorted(messages, key=repr) == [Message("LOAD", ("waiting",)), Message("LOAD")]


def test_nothing_is_scaled_while_the_family_is_quiet(new_child: NewChild) -> None:
    """Jobs that wait are meant to."""
    size = PoolSize(1, ScalingPolicy(3, 1))
    children = [new_child(1)]

    assert size.due_at(children, may_scale=False) is None
    assert size.step(children, now=0, may_scale=False) == []


def test_a_child_that_was_stopped_on_purpose_stays_away() -> None:
    """Also where a policy could want more."""
    size = PoolSize(2, ScalingPolicy(2, 2))

    size.note_stopped()

    assert size.wanted == 1
    assert (size.policy and size.policy.most) == 1
    size.note_stopped()
    assert size.due_at([]) is None


def test_children_that_were_stopped_on_purpose_are_wanted_again_after_a_restart() -> None:
    """As many as before, and as many as the policy could want before."""
    size = PoolSize(3, ScalingPolicy(3, 2))
    for _ in range(3):
        size.note_stopped()

    size.restore()

    assert size.wanted == 3
    assert (size.policy and (size.policy.most, size.policy.least)) == (3, 2)


def test_a_number_that_is_asked_for_stays_after_a_restart() -> None:
    """It was chosen in the knowledge of who was stopped."""
    size = PoolSize(3, ScalingPolicy(3, 1))
    size.note_stopped()

    size.resize(4)
    size.rescale(most=6, least=1)
    size.restore()

    assert (size.wanted, size.policy and size.policy.most) == (4, 6)
