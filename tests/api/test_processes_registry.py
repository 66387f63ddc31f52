"""Taking dead processes out of the registry."""

from itertools import groupby, takewhile

from sidekiq_py.redis_access.processes import process_set


def test_a_process_without_a_heartbeat_is_pruned_and_one_with_it_stays(pool, redis_client):
    """The hash of a dead process has expired, its name in the set has not."""
    redis_client.sadd("processes", "alive:1:a", "dead:2:b")
    redis_client.hset("alive:1:a", "info", "{}")

    assert process_set.prune(pool) == 1
    assert process_set.identities(pool) == ["alive:1:a"]


def test_thousands_of_processes_are_pruned_in_short_scripts(pool, redis_client):
    """As after a loss of power. Redis does nothing else while a script runs."""
    redis_client.sadd("processes", *(f"host:{number}:dead" for number in range(1200)))

    with redis_client.monitor() as monitor:
        assert process_set.prune(pool) == 1200
        redis_client.ping()
        commands = [one["command"] for one in takewhile(lambda one: one["command"] != "PING", monitor.listen())]

    removed = [command.startswith("SREM") for command in commands if command.startswith(("EVAL", "SREM"))]
    runs = [len(list(run)) for is_removal, run in groupby(removed) if is_removal]
    assert process_set.count(pool) == 0
    assert sum(runs) == 1200
    assert max(runs) <= 500


def test_pruning_happens_at_most_once_a_minute_over_all_processes(pool, redis_client):
    """Ruby's lock is Ruby's and ours."""
    redis_client.set("process_cleanup", "1")
    redis_client.sadd("processes", "dead:2:b")

    assert process_set.prune(pool) == 0
    assert process_set.count(pool) == 1


def test_the_lock_expires_by_itself(pool, redis_client):
    """A process that dies while pruning must not stop pruning for good."""
    process_set.prune(pool)

    assert 0 < redis_client.ttl("process_cleanup") <= 60
