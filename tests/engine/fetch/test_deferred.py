"""The ends of jobs that Redis refuses for now: all are written in the end, and meanwhile they cost little."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sidekiq_py.engine.fetch import deferred as module
from sidekiq_py.engine.fetch.deferred import Deferred
from sidekiq_py.errors import RedisReplyError

REFUSAL = RedisReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deferred]:
    """Its thread does nothing: the test calls each turn."""
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 3600.0)
    made = Deferred(lambda: False)
    yield made
    made.stop()


@pytest.fixture
def tries(deferred: Deferred) -> Counter[int]:
    """How often each of 100 ends has been tried; all are refused until the counter's key -1 is set."""
    tries = Counter[int]()

    def end(number: int) -> Callable[[], None]:
        def write() -> None:
            tries[number] += 1
            if not tries[-1]:
                raise REFUSAL

        return write

    for number in range(100):
        deferred.add(end(number), REFUSAL)
    return tries


def test_a_turn_stops_after_some_refusals(deferred: Deferred, tries: Counter[int]) -> None:
    """Every job that fails meanwhile adds one, so a turn over all of them would take ever longer."""
    deferred._turn()

    assert tries.total() == 20
    assert len(deferred) == 100


def test_each_end_gets_its_turn(deferred: Deferred, tries: Counter[int]) -> None:
    """The cause may have been removed for one of them only, such as a right to one queue."""
    for _ in range(5):
        deferred._turn()

    assert set(tries) == set(range(100))


def test_all_ends_are_written_in_one_turn_once_redis_accepts_them(deferred: Deferred, tries: Counter[int]) -> None:
    """A stop waits for them."""
    deferred._turn()
    tries[-1] = 1

    deferred._turn()

    assert len(deferred) == 0


def test_an_end_whose_refusal_passes_does_not_wait_behind_the_others(deferred: Deferred, tries: Counter[int]) -> None:
    """A stop waits for it, and not for long; the failover that it was refused for may be over by now."""
    written: list[str] = []
    deferred.add(
        lambda: written.append("late"), RedisReplyError("READONLY You can't write against a read only replica.")
    )

    deferred._turn()

    assert written == ["late"]
    assert tries.total() == 20


def test_the_ends_are_there_at_each_moment_of_a_turn(deferred: Deferred, tries: Counter[int]) -> None:
    """A stop asks for them meanwhile, from another thread, and would not wait if there seemed to be none."""
    counts: set[int] = set()
    sys.setprofile(lambda *_call: counts.add(len(deferred)))
    try:
        deferred._turn()
    finally:
        sys.setprofile(None)

    assert counts == {100}
