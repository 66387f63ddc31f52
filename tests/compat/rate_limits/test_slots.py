"""The script that keeps a rate."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import redis
from sidekiq_celery._admission import slots

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings

KEY = "sidekiq_py:rate:x"


@pytest.fixture
def pool(redis_url: str, redis_client: redis.Redis) -> Iterator[Pool]:
    """Connections to the tests' Redis."""
    one = Pool(RedisSettings(redis_url))
    yield one
    one.close()


def ask(pool: Pool, per_second: float, *, patience: float = 0.0, is_expected: bool = False) -> slots.Slot:
    """Ask for a start."""
    return slots.take(pool, KEY, per_second, patience_seconds=patience, is_expected=is_expected)


def test_the_first_starts_and_the_next_get_appointments(pool: Pool) -> None:
    """One after the other, as far apart as the rate says."""
    assert ask(pool, 1 / 3600) == slots.Slot(0.0, None)
    appointments = [ask(pool, 1 / 3600).at or 0.0 for _ in range(3)]

    assert [round(b - a) for a, b in pairwise(appointments)] == [3600, 3600]


def test_who_comes_too_early_for_an_appointment_gets_another(pool: Pool) -> None:
    """As where its clock is ahead: no start is given away twice."""
    ask(pool, 1 / 3600)
    first = ask(pool, 1 / 3600).at

    again = ask(pool, 1 / 3600, is_expected=True).at

    assert first is not None
    assert again is not None
    assert again <= first


def test_a_short_wait_is_spent_on_the_spot(pool: Pool) -> None:
    """By whoever has the patience; nobody has to come back for some milliseconds."""
    slots = [ask(pool, 1, patience=600.0) for _ in range(100)]

    assert all(slot.at is None for slot in slots)
    assert slots[0].wait_seconds == 0.0
    assert 30.0 < slots[-1].wait_seconds <= 99.0


def test_nobody_passes_those_who_wait(pool: Pool) -> None:
    """Who comes without an appointment goes behind them, though a start may be free."""
    [ask(pool, 1 / 3600) for _ in range(20)]
    last = ask(pool, 1 / 3600).at

    newcomer = ask(pool, 1 / 3600, patience=4000).at

    assert last is not None
    assert newcomer is not None
    assert newcomer > last


def test_a_clock_that_was_set_back_does_not_hold_up_the_next_start(pool: Pool, redis_client: redis.Redis) -> None:
    """Times that it gave while it was a day ahead count no more."""
    [ask(pool, 1 / 3600) for _ in range(3)]
    day_us = 86_400 * 1_000_000
    ahead = {field: int(us) + day_us for field, us in redis_client.hgetall(KEY).items()}
    redis_client.hset(KEY, mapping=ahead)

    assert ask(pool, 1 / 3600) == slots.Slot(0.0, None)
    second, third = (ask(pool, 1 / 3600).at or 0.0 for _ in range(2))
    assert round(third - second) == 3600
    assert second * 1_000_000 < ahead[b"next"]


def test_nothing_is_kept_of_a_rate_that_nobody_uses(pool: Pool, redis_client: redis.Redis) -> None:
    """It goes with time."""
    ask(pool, 1 / 3600)

    assert 3600 < redis_client.ttl(KEY) < 8000
