"""
How many jobs are fetched ahead: what will start within the buffer's time, and nothing while jobs are slow.

Jobs are slow compared with a round trip.
"""

import pytest

from sidekiq_py.engine.fetch.batch_size import BatchSize


def test_nothing_is_fetched_ahead_before_jobs_are_known() -> None:
    """The first batch is what idle processors ask for, however long it takes."""
    assert BatchSize(0.010).refilled(10, 0.001) == 0

    size = BatchSize(0.010)
    for _ in range(10):
        size.fetched(0.1, is_full=False)
    assert size.refilled(10, 0.001) == 0
    # Thirty processors have started a job each, and none has ended.
    assert size.refilled(20, 0.1) == 0


def test_short_jobs_are_fetched_as_fast_as_they_go() -> None:
    """At 20,000 a second, 200 start within 10 ms."""
    size = BatchSize(0.010)
    for _ in range(200):
        size.ran(0.00002)

    assert size.refilled(200, 0.010) == 200


def test_the_number_grows_by_steps_and_has_an_end() -> None:
    """One quick refill must not bring thousands."""
    size = BatchSize(0.010)
    for _ in range(200):
        size.ran(0.00001)

    assert size.refilled(10, 0.00001) == 40
    assert size.refilled(100_000, 0.001) == 1000


def test_one_slow_job_in_twenty_ends_fetching_ahead() -> None:
    """What is fetched behind it would wait."""
    size = BatchSize(0.010)
    for round_ in range(400):
        size.ran(5.0 if round_ % 20 == 0 else 0.001)

    assert size.refilled(100, 0.010) == 0


def test_a_rare_slow_job_is_forgotten() -> None:
    """Some hundred short ones after it."""
    size = BatchSize(0.010)
    size.ran(60.0)
    assert size.high_seconds <= 0.020

    for _ in range(100):
        size.ran(0.0001)
    assert size.refilled(100, 0.010) == 100


def test_jobs_of_a_few_round_trips_are_fetched_ahead() -> None:
    """Without the buffer, each would wait for a fetch as well."""
    size = BatchSize(0.010)
    for _ in range(100):
        size.ran(0.030)
        size.fetched(0.020, is_full=False)

    assert size.stretch == pytest.approx(8, rel=0.05)
    # 100 a second, and four round trips of 20 ms.
    assert size.refilled(20, 0.200) in (7, 8)


def test_jobs_that_are_not_short_are_fetched_ahead_from_a_backlog() -> None:
    """Elsewhere another process may start them sooner."""
    size = BatchSize(0.010)
    for _ in range(100):
        size.ran(0.008)
    assert size.refilled(5, 0.008) == 0

    for _ in range(50):
        size.fetched(0.0002, is_full=True)
    # 5 of 8 ms on five threads: six start within 10 ms.
    assert size.refilled(5, 0.008) == 6

    # The queue was empty.
    size.fetched(0.0002, is_full=False)
    assert size.refilled(5, 0.008) == 0


def test_jobs_longer_than_the_buffer_s_time_are_not_fetched_ahead() -> None:
    """Not from a backlog either."""
    size = BatchSize(0.010)
    for _ in range(100):
        size.ran(0.011)
        size.fetched(0.0002, is_full=True)

    assert size.refilled(5, 0.011) == 0


def test_a_single_late_reply_changes_little() -> None:
    """A hundred quick ones later, nothing is left of it."""
    size = BatchSize(0.010)
    size.fetched(30.0, is_full=False)
    assert size.stretch == 2

    for _ in range(100):
        size.fetched(0.0002, is_full=False)
    assert size.stretch == 1


def test_the_time_in_the_buffer_has_an_end() -> None:
    """However slow Redis is: another process may have a better connection."""
    size = BatchSize(0.010)
    for _ in range(100):
        size.fetched(2.0, is_full=False)

    assert size.stretch == 50


@pytest.mark.parametrize(("consumed", "seconds"), [(0, 1.0), (0, 0.0), (5, 0.0)])
def test_odd_measures_give_no_odd_numbers(consumed: int, seconds: float) -> None:
    """Two refills may come at the same instant."""
    size = BatchSize(0.010)
    for _ in range(200):
        size.ran(0.0)

    assert 0 <= size.refilled(consumed, seconds) <= 20
