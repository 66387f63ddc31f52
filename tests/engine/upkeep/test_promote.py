"""The script that moves due jobs: all or nothing for each member, and no member in the way of another."""

from collections.abc import Callable

import pytest
import redis

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import promote
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits
from sidekiq_py.redis_access.job_path.promote import Move
from tests.support.redis_server import RedisServer

NOW = 1_700_000_000.5
LIMITS = DeadLimits(max_jobs=10_000, timeout_seconds=1000)


def to_queue(member: bytes, queue: str = "default") -> Move:
    """A move that pushes other bytes than the member's."""
    return Move(member, "queue", queue, b"pushed " + member)


def test_a_member_leaves_the_set_for_its_queue(pool: Pool, redis_client: redis.Redis) -> None:
    """The new bytes stand at the queue's head, and the queue is known."""
    redis_client.zadd("retry", {"a": 1})
    redis_client.lpush("queue:low", "older")

    [result] = promote.move(pool, "retry", [to_queue(b"a", "low")], now=NOW, limits=LIMITS)

    assert result.done
    assert redis_client.lrange("queue:low", 0, -1) == [b"pushed a", b"older"]
    assert redis_client.smembers("queues") == {b"low"}
    assert redis_client.zcard("retry") == 0


def test_a_member_that_is_gone_is_not_pushed(pool: Pool, redis_client: redis.Redis) -> None:
    """Whoever took it has pushed it already; not even the queue is entered."""
    [result] = promote.move(pool, "retry", [to_queue(b"a")], now=NOW, limits=LIMITS)

    assert (result.done, result.refusal) == (False, None)
    assert redis_client.keys() == []


def test_jobs_of_a_slice_run_in_the_order_of_the_slice(pool: Pool, redis_client: redis.Redis) -> None:
    """The first of the slice is the next to be fetched."""
    redis_client.zadd("schedule", {"a": 1, "b": 2, "c": 3})

    promote.move(pool, "schedule", [to_queue(m) for m in (b"a", b"b", b"c")], now=NOW, limits=LIMITS)

    assert redis_client.rpop("queue:default", 3) == [b"pushed a", b"pushed b", b"pushed c"]


def test_a_member_for_nowhere_is_removed(pool: Pool, redis_client: redis.Redis) -> None:
    """What middleware stopped leaves the set and enters nothing."""
    redis_client.zadd("schedule", {"a": 1})

    [result] = promote.move(pool, "schedule", [Move(b"a", "nowhere")], now=NOW, limits=LIMITS)

    assert result.done
    assert redis_client.keys() == []


def test_a_member_for_dead_keeps_its_bytes_and_dead_is_trimmed(pool: Pool, redis_client: redis.Redis) -> None:
    """It dies now; entries that are too old or too many make room for it."""
    redis_client.zadd("schedule", {b"\xff not json": 1})
    redis_client.zadd("dead", {"too old": NOW - 1001, "1": NOW - 3, "2": NOW - 2, "3": NOW - 1})

    promote.move(
        pool, "schedule", [Move(b"\xff not json", "dead")], now=NOW, limits=DeadLimits(max_jobs=4, timeout_seconds=1000)
    )

    assert redis_client.zrange("dead", 0, -1) == [b"2", b"3", b"\xff not json"]
    assert redis_client.zscore("dead", b"\xff not json") == NOW
    assert redis_client.zcard("schedule") == 0


def test_a_member_can_be_put_off(pool: Pool, redis_client: redis.Redis) -> None:
    """From another set, from the same one with other bytes, and with the same bytes, which then stay."""
    redis_client.zadd("retry", {"a": 1})
    redis_client.zadd("schedule", {"b": 1, "c": 1, "b, due": 1})
    later = str(NOW + 60)

    promote.move(pool, "retry", [Move(b"a", "schedule", "", b"a, later", later)], now=NOW, limits=LIMITS)
    moves = [Move(b"b", "schedule", "", b"b, later", later), Move(b"c", "schedule", "", b"c", later)]
    results = promote.move(pool, "schedule", moves, now=NOW, limits=LIMITS)

    assert [result.done for result in results] == [True, True]
    assert redis_client.zcard("retry") == 0
    assert redis_client.zrange("schedule", 0, -1, withscores=True) == [
        (b"b, due", 1),
        (b"a, later", NOW + 60),
        (b"b, later", NOW + 60),
        (b"c", NOW + 60),
    ]


def test_a_queue_of_a_foreign_type_holds_up_its_own_jobs_only(pool: Pool, redis_client: redis.Redis) -> None:
    """The job stays in the set, with the error told, and the next one goes out."""
    redis_client.set("queue:bad", "a string")
    redis_client.zadd("retry", {"a": 1, "b": 2})

    stuck, moved = promote.move(pool, "retry", [to_queue(b"a", "bad"), to_queue(b"b")], now=NOW, limits=LIMITS)

    assert not stuck.done
    assert stuck.refusal is not None
    assert stuck.refusal.code == "WRONGTYPE"
    assert moved.done
    assert redis_client.zrange("retry", 0, -1) == [b"a"]
    assert redis_client.lrange("queue:default", 0, -1) == [b"pushed b"]


def test_a_queue_that_may_not_be_used_holds_up_its_own_jobs_only(pool: Pool, redis_client: redis.Redis) -> None:
    """Redis refuses the whole script because of that one key."""
    redis_client.zadd("retry", {"a": 1, "b": 2, "c": 3})
    moves = [to_queue(b"a"), to_queue(b"b", "billing"), to_queue(b"c")]
    may = ("resetkeys", "~queue:default", "~queues", "~retry", "~dead", "~schedule", "~sidekiq_py:*")
    redis_client.execute_command("ACL", "SETUSER", "clerk", "on", ">pw", "+@all", *may)
    restricted = Pool(RedisSettings(pool.settings.url.replace("redis://", "redis://clerk:pw@")))
    try:
        results = promote.move(restricted, "retry", moves, now=NOW, limits=LIMITS)
    finally:
        restricted.close()
        redis_client.acl_deluser("clerk")

    assert [result.done for result in results] == [True, False, True]
    assert results[1].refusal is not None
    assert redis_client.zrange("retry", 0, -1) == [b"b"]
    assert redis_client.lrange("queue:default", 0, -1) == [b"pushed c", b"pushed a"]


def test_a_score_that_redis_refuses_holds_up_its_own_job_only(pool: Pool, redis_client: redis.Redis) -> None:
    """The job stays in the set, with the error told, and the next one goes out."""
    redis_client.zadd("retry", {"a": 1, "b": 2})
    moves = [Move(b"a", "schedule", "", b"a, later", "1" + "0" * 400), to_queue(b"b")]

    stuck, moved = promote.move(pool, "retry", moves, now=NOW, limits=LIMITS)

    assert "not a valid float" in str(stuck.refusal)
    assert moved.done
    assert redis_client.zrange("retry", 0, -1) == [b"a"]


def test_nothing_is_lost_when_redis_is_out_of_memory(new_redis_server: Callable[..., RedisServer]) -> None:
    """The refusal is raised, the members stay, and go out once there is room."""
    server = new_redis_server()
    client, pool = server.client(), Pool(RedisSettings(server.url))
    client.zadd("retry", {f"job {n}": n for n in range(200)})
    moves = [to_queue(b"job %d" % n) for n in range(200)]
    client.config_set("maxmemory", 1)

    with pytest.raises(RedisReplyError, match="OOM"):
        promote.move(pool, "retry", moves, now=NOW, limits=LIMITS)
    left = client.zcard("retry")
    client.config_set("maxmemory", 0)
    promote.move(pool, "retry", moves, now=NOW, limits=LIMITS)

    assert left == 200
    assert sorted(client.lrange("queue:default", 0, -1)) == sorted(b"pushed job %d" % n for n in range(200))
    assert client.zcard("retry") == 0
    pool.close()
    client.close()


def test_a_full_redis_leaves_the_lease_to_be_taken_and_renewed(new_redis_server: Callable[..., RedisServer]) -> None:
    """Else nobody would be the lookout, and the jobs of dead workers would wait until somebody frees memory."""
    server = new_redis_server()
    client, pool = server.client(), Pool(RedisSettings(server.url))
    client.config_set("maxmemory", 1)

    assert promote.hold_poller(pool, "one", 5000)
    assert promote.hold_poller(pool, "one", 9000)
    assert 5000 < client.pttl("sidekiq_py:poller") <= 9000
    assert not promote.hold_poller(pool, "two", 5000)

    pool.close()
    client.close()


def test_a_lease_of_a_foreign_type_is_named(pool: Pool, redis_client: redis.Redis) -> None:
    """Redis itself would not say which of a hundred keys it means, and no process could move due jobs."""
    redis_client.rpush("sidekiq_py:poller", "x")

    with pytest.raises(RedisReplyError, match=r"sidekiq_py:poller is not a string.* Rename or delete it"):
        promote.hold_poller(pool, "one", 5000)


def test_large_payloads_go_in_several_calls(pool: Pool, redis_client: redis.Redis) -> None:
    """No script has more than some megabytes to chew on, and all members arrive in order."""
    members = [b"%d" % n + b"x" * 1_500_000 for n in range(5)]
    redis_client.zadd("schedule", {member: n for n, member in enumerate(members)})
    redis_client.config_resetstat()

    results = promote.move(pool, "schedule", [Move(m, "queue", "big", m) for m in members], now=NOW, limits=LIMITS)

    assert all(result.done for result in results)
    assert redis_client.rpop("queue:big", 5) == members
    calls = redis_client.info("commandstats")
    assert sum(calls.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval")) >= 5


def test_what_is_due_is_counted_and_read_by_time(pool: Pool, redis_client: redis.Redis) -> None:
    """Due is what has its time now or before; the earliest comes first."""
    redis_client.zadd("retry", {"late": NOW + 0.001})
    redis_client.zadd("schedule", {"b": NOW, "a": NOW - 5, "c": NOW + 1})

    replies = pool.run(lambda link: link.batch(promote.due_commands(NOW, (0.0, 0.1, -6.0, -4.0))))
    assert promote.noted_due(replies) == [2, 3, 0, 1]
    assert promote.due_members(pool, "schedule", NOW) == ([b"a", b"b"], False)
    assert promote.due_members(pool, "schedule", NOW, skip=1) == ([b"b"], False)
    assert promote.due_members(pool, "schedule", NOW, after=NOW - 5) == ([b"b"], False)
    assert promote.due_members(pool, "schedule", NOW, after=NOW - 6, skip=1) == ([b"b"], False)
    assert promote.due_members(pool, "schedule", NOW, skip=3) == ([], False)


def test_due_members_are_read_by_their_bytes(pool: Pool, redis_client: redis.Redis) -> None:
    """As many as fit into some megabytes, and one that does not fit comes alone; a hundred at most."""
    small = [b"small %03d" % n for n in range(120)]
    large = [b"large %d" % n + b"x" * 3_000_000 for n in range(3)]
    vast = b"vast" + b"x" * 5_000_000
    in_order = [*small, *large, vast]
    redis_client.zadd("retry", {member: n for n, member in enumerate(in_order)})
    slices = []

    skip = 0
    is_more = True
    while is_more:
        members, is_more = promote.due_members(pool, "retry", NOW, skip=skip)
        skip += len(members)
        slices.append(members)

    assert slices == [small[:100], [*small[100:], large[0]], large[1:2], large[2:], [vast]]


def test_one_process_at_a_time_has_the_pollers_lease(pool: Pool, redis_client: redis.Redis) -> None:
    """The holder renews it, others are refused until it gives it up; nobody can give up another's."""
    assert promote.hold_poller(pool, "one", 5000)
    assert not promote.hold_poller(pool, "two", 5000)
    redis_client.pexpire("sidekiq_py:poller", 100)
    assert promote.hold_poller(pool, "one", 5000)
    assert redis_client.pttl("sidekiq_py:poller") > 1000

    promote.leave_poller(pool, "two")
    assert redis_client.get("sidekiq_py:poller") == b"one"
    promote.leave_poller(pool, "one")
    assert promote.hold_poller(pool, "two", 5000)


def test_a_server_in_trouble_is_no_refusal_of_a_job(pool: Pool, redis_client: redis.Redis) -> None:
    """Also for jobs whose extensions write something: whoever moves thousands of them stops at the first slice."""
    redis_client.zadd("schedule", {"a": 1, "b": 2})
    moves = [Move(member, "nowhere", effects=(("INCR", "left"),)) for member in (b"a", b"b")]
    redis_client.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(RedisReplyError, match="NOREPLICAS"):
            promote.move(pool, "schedule", moves, now=NOW, limits=LIMITS)
    finally:
        redis_client.config_set("min-replicas-to-write", 0)

    assert [moved.done for moved in promote.move(pool, "schedule", moves, now=NOW, limits=LIMITS)] == [True, True]
    assert redis_client.get("left") == b"2"


def test_a_dead_job_that_is_too_old_goes_though_there_is_room(pool: Pool, redis_client: redis.Redis) -> None:
    """As at each death."""
    redis_client.zadd("schedule", {"a": 1})
    redis_client.zadd("dead", {"too old": NOW - 1001, "young": NOW - 999})

    promote.move(pool, "schedule", [Move(b"a", "dead")], now=NOW, limits=LIMITS)

    assert redis_client.zrange("dead", 0, -1) == [b"young", b"a"]


def test_a_user_who_may_not_ask_for_the_end_of_a_lease_respects_it(pool: Pool, redis_client: redis.Redis) -> None:
    """Rights that were granted for an earlier release lack PTTL."""
    assert promote.hold_poller(pool, "one", 60_000)
    redis_client.execute_command("ACL", "SETUSER", "default", "-pttl")
    try:
        assert not promote.hold_poller(pool, "another", 60_000)
        assert promote.hold_poller(pool, "one", 60_000)
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+pttl")
