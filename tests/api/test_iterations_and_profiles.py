"""What iterable jobs and profiles leave in Redis."""

import time

import pytest

from sidekiq_py.api import IterableJobQuery, ProfileSet


def test_the_states_of_iterable_jobs_are_read(pool, redis_client):
    """A job that was cancelled before its first run has no cursor."""
    redis_client.hset("it-a", mapping={"ex": 3, "c": '[10,"x"]', "rt": 12.5})
    redis_client.hset("it-b", mapping={"cancelled": 1_700_000_000})

    query = IterableJobQuery(["a", "b", "c"])

    assert (query["a"].executions, query["a"].cursor, query["a"].runtime) == (3, [10, "x"], 12.5)
    assert query["a"].cancelled_at is None
    assert (query["b"].cursor, query["b"].cancelled_at.timestamp()) == (None, 1_700_000_000)
    assert ("c" in query, query.get("c")) == (False, None)


def test_one_id_is_no_list_of_ids(pool):
    """Its characters would be looked for, and none of them found."""
    with pytest.raises(TypeError, match="jids is 'abc'; give a list of ids"):
        IterableJobQuery("abc")


def test_a_state_that_another_program_has_overwritten_hides_no_other(pool, redis_client):
    """What cannot be read counts as missing."""
    redis_client.hset("it-a", mapping={"ex": b"\xff", "rt": b"caf\xe9", "c": b"\xff", "cancelled": b"caf\xe9"})
    redis_client.hset("it-b", mapping={"ex": 1, "rt": 2})

    query = IterableJobQuery(["a", "b"])

    assert (query["a"].executions, query["a"].runtime, query["a"].cursor, query["a"].cancelled_at) == (0, 0, None, None)
    assert (query["b"].executions, query["b"].runtime) == (1, 2)


def test_profiles_are_listed_latest_first_and_expired_ones_go(pool, redis_client):
    """Sidekiq 8 keeps them for a day."""
    now = time.time()
    redis_client.zadd("profiles", {"t-old": now - 1, "t-a": now + 100, "t-b": now + 200, "t-lost": now + 300})
    for jid in ("a", "b"):
        fields = {"started_at": 1_700_000_000, "jid": jid, "type": "HardJob", "token": "t", "size": 4, "elapsed": 1.5}
        redis_client.hset(f"t-{jid}", mapping={**fields, "data": b"gzip"})

    profiles = ProfileSet()

    assert [(p.key, p.jid, p.type, p.size, p.elapsed) for p in profiles] == [
        ("t-b", "b", "HardJob", 4, 1.5),
        ("t-a", "a", "HardJob", 4, 1.5),
    ]
    assert (profiles.size, profiles.data("t-a"), profiles.data("t-x")) == (3, b"gzip", None)


@pytest.mark.parametrize("value", ["1e999", "1e300", "nan", "x", b"\xff", "9" * 5000])
def test_a_profile_that_another_program_has_overwritten_hides_no_other(pool, redis_client, value):
    """What is no number counts as 0; a key of another type as no profile."""
    now = time.time()
    redis_client.zadd("profiles", {"t-a": now + 100, "t-b": now + 200, "t-c": now + 300})
    redis_client.hset("t-a", mapping={"jid": "a", "size": 4, "elapsed": 1.5})
    redis_client.hset("t-b", mapping={"jid": "b", "size": value, "elapsed": value, "started_at": value})
    redis_client.set("t-c", "a string")

    assert [profile.jid for profile in ProfileSet()] == ["b", "a"]
