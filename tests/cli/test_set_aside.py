"""`set-aside` renames only keys that are in the way."""

import json

import pytest


@pytest.mark.parametrize("key", ["queue:low", "retry", "nothing", "session:1"])
def test_a_key_that_is_as_it_should_be_is_left_alone(run, redis_client, key):
    """Whether the key is right, missing, or not Sidekiq's."""
    redis_client.lpush("queue:low", "{}")
    redis_client.zadd("retry", {"{}": 1})
    redis_client.set("session:1", "x")

    result = run("set-aside", key, "--yes")

    assert (result.exit_code, "nothing was renamed" in result.output) == (2, True)
    assert redis_client.keys("misplaced:*") == []


def test_the_registry_itself_may_be_in_the_way(run, redis_client):
    """It is renamed together with its contents."""
    redis_client.set("processes", "x")

    result = run("set-aside", "processes", "--yes", "--json")

    assert json.loads(result.output) == {"key": "processes", "renamed_to": "misplaced:processes"}
    assert redis_client.get("misplaced:processes") == b"x"


def test_what_was_set_aside_before_is_not_overwritten(run, redis_client):
    """The second key stays until the first is deleted."""
    redis_client.mset({"queue:low": "x", "misplaced:queue:low": "y"})

    result = run("set-aside", "queue:low", "--yes")

    assert (result.exit_code, "misplaced:queue:low already exists" in result.output) == (1, True)
    assert redis_client.mget("queue:low", "misplaced:queue:low") == [b"x", b"y"]


def test_it_asks_first(run, redis_client):
    """Without a terminal it refuses."""
    redis_client.set("queue:low", "x")

    result = run("set-aside", "queue:low")

    assert (result.exit_code, "add --yes" in result.output) == (2, True)
