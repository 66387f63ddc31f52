"""The script that keeps a rate."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import redis
from sidekiq_celery._admission import slots

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.redis_server import RedisServer

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


def now_us(client: redis.Redis) -> int:
    """The clock of Redis."""
    seconds, microseconds = client.time()
    return seconds * 1_000_000 + microseconds


def kept(client: redis.Redis, field: str) -> int:
    """A time that the script has kept."""
    return int(client.hget(KEY, field))


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


def test_times_that_are_as_far_ahead_as_they_can_be_count(pool: Pool, redis_client: redis.Redis) -> None:
    """The clock that an earlier run saw may differ by a moment."""
    in_ms = now_us(redis_client) + 3_600_500_000
    redis_client.hset(KEY, "next", in_ms)

    assert ask(pool, 1 / 3600).at == in_ms / 1_000_000


def test_a_run_that_is_late_for_its_appointment_makes_up_for_the_slack(pool: Pool, redis_client: redis.Redis) -> None:
    """It starts at once, and counts as if it had started then. One without an appointment does not."""
    redis_client.hset(KEY, "next", now_us(redis_client) - 10_000_000)
    before = now_us(redis_client)

    assert ask(pool, 1, is_expected=True) == slots.Slot(0.0, None)
    after = now_us(redis_client)
    assert before + 750_000 <= kept(redis_client, "next") <= after + 750_000
    redis_client.hset(KEY, "next", now_us(redis_client) - 10_000_000)
    came_at = now_us(redis_client)
    assert ask(pool, 1) == slots.Slot(0.0, None)

    assert kept(redis_client, "next") >= came_at + 1_000_000


def test_a_run_with_an_appointment_passes_those_who_wait(pool: Pool, redis_client: redis.Redis) -> None:
    """It has waited for longer than they have."""
    redis_client.hset(KEY, "line", now_us(redis_client) + 3_600_000_000)

    assert ask(pool, 1, is_expected=True) == slots.Slot(0.0, None)


def test_a_run_with_patience_waits_for_the_end_of_the_line(pool: Pool, redis_client: redis.Redis) -> None:
    """If that comes within the time that it has."""
    redis_client.hset(KEY, "line", now_us(redis_client) + 5_000_000)

    assert ask(pool, 1).at is not None
    assert ask(pool, 1, patience=60.0).at is None


@pytest.mark.parametrize("is_expected", [False, True])
def test_a_start_that_is_due_after_the_patience_is_an_appointment(
    pool: Pool, redis_client: redis.Redis, *, is_expected: bool
) -> None:
    """Waiting for it on the spot would keep a thread from other tasks for longer than it may be kept."""
    in_us = now_us(redis_client) + 60_000_000
    redis_client.hset(KEY, "next", in_us)

    assert ask(pool, 1 / 3600, patience=50.0, is_expected=is_expected).at == in_us / 1_000_000


def test_a_missed_appointment_does_not_lengthen_the_line(pool: Pool, redis_client: redis.Redis) -> None:
    """Those who wait for the first time keep theirs."""
    in_us = now_us(redis_client) + 5_000_000
    redis_client.hset(KEY, mapping={"next": in_us, "line": in_us})

    assert ask(pool, 1 / 10, is_expected=True).at == in_us / 1_000_000

    assert kept(redis_client, "line") == in_us
    assert kept(redis_client, "late") == in_us + 10_000_000


@pytest.mark.parametrize("field", ["line", "late"])
def test_what_is_kept_lives_until_the_last_appointment(pool: Pool, redis_client: redis.Redis, field: str) -> None:
    """A start does not shorten it."""
    redis_client.hset(KEY, field, now_us(redis_client) + 3_600_000_000)

    ask(pool, 1, is_expected=True)

    assert 3590 < redis_client.ttl(KEY) <= 3601


def test_a_start_is_kept_until_its_slack_is_over(pool: Pool, redis_client: redis.Redis) -> None:
    """Else a run that is late would make up for a start that was used."""
    ask(pool, 1)

    with redis_client.pipeline() as pipe:
        (seconds, microseconds), left_ms, next_us = pipe.time().pttl(KEY).hget(KEY, "next").execute()
    kept_until_us = seconds * 1_000_000 + microseconds + left_ms * 1000
    assert left_ms <= 2000
    assert kept_until_us > int(next_us) + 250_000


def test_runs_start_while_redis_is_full(new_redis_server: Callable[..., RedisServer]) -> None:
    """They are what drains it."""
    server = new_redis_server()
    pool, client = Pool(RedisSettings(server.url)), server.client()
    ask(pool, 1 / 3600)
    client.config_set("maxmemory", 1)

    assert ask(pool, 1 / 3600).at is not None

    pool.close()
    client.close()


def test_nothing_is_kept_of_a_rate_that_nobody_uses(pool: Pool, redis_client: redis.Redis) -> None:
    """It goes with time."""
    ask(pool, 1 / 3600)

    assert 3590 < redis_client.ttl(KEY) <= 3601
