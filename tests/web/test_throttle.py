"""How fast passwords can be guessed, by a clock that the test sets."""

from threading import Barrier, Thread

import pytest

pytest.importorskip("starlette")

from sidekiq_py.web.throttle import Throttle


class Clock:
    """Shows the time that it is set to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the throttle."""
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    """A throttle that nobody has used."""
    return Throttle(clock)


def waits(throttle, clock, count, *keys):
    """Before each of *count* attempts, the wait that is asked for; it is waited for to the end."""
    asked = []
    for _ in range(count):
        wait = throttle.begin(*keys)
        asked.append(wait)
        if wait:
            clock.now += wait
            assert throttle.begin(*keys) == 0.0
    return asked


def test_five_attempts_are_free_and_each_further_failure_doubles_the_wait_up_to_a_minute(throttle, clock):
    """Each attempt is made as soon as it may be."""
    assert waits(throttle, clock, 14, "ada") == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_attempt_during_the_wait_is_refused_and_does_not_prolong_it(throttle, clock):
    """Otherwise anybody could keep a user out for ever by knocking."""
    waits(throttle, clock, 5, "ada")

    assert throttle.begin("ada") == 1.0
    clock.now += 0.25
    assert throttle.begin("ada") == 0.75
    clock.now += 0.75
    assert throttle.begin("ada") == 0.0


def test_a_success_makes_the_next_attempts_free_again(throttle, clock):
    """The right password after a slip of the hand leaves nothing behind."""
    waits(throttle, clock, 5, "ada")
    clock.now += 1

    assert throttle.begin("ada") == 0.0
    throttle.succeed("ada")

    assert waits(throttle, clock, 6, "ada") == [0, 0, 0, 0, 0, 1]


def test_failures_are_forgotten_an_hour_after_the_last(throttle, clock):
    """A second earlier they still count."""
    waits(throttle, clock, 8, "ada")
    clock.now += 3600
    assert throttle.begin("ada") == 0.0
    assert throttle.begin("ada") == 16.0

    clock.now += 3601

    assert waits(throttle, clock, 6, "ada") == [0, 0, 0, 0, 0, 1]


def test_keys_are_counted_each_for_itself_and_the_longest_wait_holds(throttle, clock):
    """One address cannot try many names, and many addresses cannot try one name."""
    for number in range(5):
        assert throttle.begin("address 192.0.2.7", f"name {number}") == 0.0

    assert throttle.begin("address 192.0.2.7", "name new") == 1.0
    assert throttle.begin("address 192.0.2.8", "name 0") == 0.0
    # The refused attempt was not counted for the other key.
    assert waits(throttle, clock, 6, "name new") == [0, 0, 0, 0, 0, 1]


def test_the_keys_that_failed_longest_ago_are_dropped_first(throttle, monkeypatch):
    """A flood of made-up names takes no more memory, and frees nobody who has just failed."""
    monkeypatch.setattr("sidekiq_py.web.throttle._MOST_KEPT", 3)
    for _ in range(5):
        throttle.begin("early")
    for _ in range(5):
        throttle.begin("late")

    throttle.begin("one")
    throttle.begin("two")

    assert throttle.begin("late") == 1.0
    assert throttle.begin("early") == 0.0


def test_threads_at_once_get_five_attempts_together(throttle):
    """An attempt counts before its password has been checked."""
    everybody, asked = Barrier(20), []

    def attempt():
        everybody.wait()
        asked.append(throttle.begin("ada"))

    threads = [Thread(target=attempt) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(asked) == [0.0] * 5 + [1.0] * 15
