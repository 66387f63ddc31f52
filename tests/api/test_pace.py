"""Bulk actions at a pace."""

import pytest

from sidekiq_py.api import RetrySet
from sidekiq_py.api.bulk import slices


def test_a_pace_comes_in_small_slices_with_pauses_between_them():
    """No pause before the first and none behind the last."""
    pauses = []

    sizes = [len(part) for part in slices(range(25), 100, sleep=pauses.append)]

    assert sizes == [10, 10, 5]
    assert [round(pause, 1) for pause in pauses] == [0.1, 0.2]


def test_a_long_pause_ends_when_it_is_to_stop():
    """At ten an hour a Ctrl-C would else be heard six minutes later."""
    pauses = []

    sizes = [len(part) for part in slices(range(25), 10 / 3600, lambda: len(pauses) == 3, sleep=pauses.append)]

    assert (sizes, pauses) == ([1], [0.2, 0.2, 0.2])


def test_without_a_pace_a_round_trip_carries_a_hundred():
    """And nothing waits."""
    pauses = []

    sizes = [len(part) for part in slices(range(250), None, sleep=pauses.append)]

    assert (sizes, pauses) == ([100, 100, 50], [])


@pytest.mark.parametrize("action", ["retry_all", "add_all_to_queue", "kill_all"])
def test_every_bulk_action_takes_a_pace(pool, redis_client, payload, action):
    """One that is fast enough not to be felt."""
    redis_client.zadd("retry", {payload(str(n)): n for n in range(5)})

    assert getattr(RetrySet(), action)(per_second=1_000_000).moved == 5


def test_a_pace_that_is_none_is_refused(pool, redis_client, payload):
    """Before anything is done."""
    redis_client.zadd("retry", {payload("a"): 1})

    with pytest.raises(ValueError, match="more than 0"):
        RetrySet().delete_many(RetrySet(), per_second=0)
    assert RetrySet().size == 1
