"""When due jobs are moved: by one process at once, by the others at Sidekiq's pace."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sidekiq_py.config import Config
from sidekiq_py.engine.upkeep.poller import (
    INITIAL_WAIT_SECONDS,
    LEASE_SECONDS,
    QUIET_SECONDS,
    Poller,
    initial_wait_seconds,
    poll_interval_seconds,
)
from sidekiq_py.redis_access.job_path import due_watch
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.wire.dialect import Dialect
from tests.engine.upkeep.polling import LONG_AGO, NOW, V6, Polling, contents, jids, job, repush
from tests.support.cutting_proxy import CuttingProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

# The thread


def test_the_holder_of_the_lease_moves_due_jobs_at_once(polling: Polling, redis_client: redis.Redis) -> None:
    """No initial wait, and a job that comes due later is moved within a fraction of a second."""
    redis_client.zadd("schedule", {job("due"): LONG_AGO})
    poller = polling.poller()

    poller.start()

    eventually(lambda: redis_client.llen("queue:default") == 1, within_seconds=INITIAL_WAIT_SECONDS - 2)
    assert poller.is_quick
    due_at = time.time() + 0.3
    redis_client.zadd("schedule", {job("later"): due_at})
    eventually(lambda: redis_client.llen("queue:default") == 2, every_seconds=0.002)
    assert time.time() >= due_at


@pytest.mark.parametrize(
    ("due_in", "pause"), [(None, 0.1), (0.3, 0.1), (0.05, 0.05), (-1, 0.05)], ids=["none", "later", "soon", "due"]
)
def test_the_holder_of_the_lease_looks_often_only_while_a_job_comes_due(
    polling: Polling, redis_client: redis.Redis, due_in: float | None, pause: float
) -> None:
    """Each look wakes Redis up, so it takes half as many where the next one comes early enough."""
    if due_in is not None:
        redis_client.zadd("schedule", {job("due"): NOW + due_in})
    poller = polling.poller(now=lambda: NOW, monotonic=lambda: 1000.0)
    poller.is_quick = True

    poller._look()

    assert poller._look_at == pytest.approx(1000 + pause)


def test_a_job_that_is_scheduled_after_a_long_rest_is_moved_within_100_ms(
    polling: Polling, redis_client: redis.Redis
) -> None:
    """It was pushed just behind a look, and the next one is not far away, however long nothing has come due."""
    clock = [1000.0]
    poller = polling.poller(now=lambda: NOW + clock[0], monotonic=lambda: clock[0])
    poller.is_quick = True
    for _ in range(100):
        clock[0] = poller._look_at
        poller._look()
    pause = poller._look_at - clock[0]
    redis_client.zadd("schedule", {job("near"): NOW + clock[0]})

    clock[0] += pause
    poller._look()

    assert redis_client.llen("queue:default") == 1
    assert pause == pytest.approx(0.1)


def holder(polling: Polling, redis_client: redis.Redis, **options: Any) -> Poller:
    """One that has the lease; its clock stands still, so that each look is one that renews it."""
    redis_client.set("sidekiq_py:poller", "me", ex=60)
    poller = polling.poller(monotonic=lambda: 1000.0, **options)
    poller.is_quick = True
    return poller


def look(poller: Poller) -> float:
    """Look now. Returns the seconds until the next look."""
    poller._look_at = poller._renew_at = 0.0
    poller._look()
    return poller._look_at - 1000


def at_rest(polling: Polling, redis_client: redis.Redis) -> Poller:
    """One that has the lease and nothing to do."""
    poller = holder(polling, redis_client)
    look(poller)
    assert poller._watch._notifications.wait_readable(10)
    assert look(poller) == QUIET_SECONDS
    return poller


def test_at_rest_it_looks_rarely_and_hears_of_a_job(polling: Polling, redis_client: redis.Redis) -> None:
    """Redis says that a set has changed, so a job that is scheduled does not wait for the next look."""
    poller = at_rest(polling, redis_client)

    redis_client.zadd("schedule", {job("due"): LONG_AGO})
    poller._waited(5)

    assert poller._look_at == pytest.approx(1000.1)


@pytest.mark.parametrize("obstacle", ["middleware", "queue", "set"])
def test_what_cannot_go_is_no_reason_to_look_often(polling: Polling, redis_client: redis.Redis, obstacle: str) -> None:
    """It may stay for days, and is due all that time: one such job cost Redis 180 commands a second."""

    def failing(payload: dict[str, Any]) -> Outgoing | None:
        raise ValueError("not now")

    redis_client.set("queue:odd", "a string")
    if obstacle == "set":
        redis_client.set("schedule", "a string")
    else:
        redis_client.zadd("schedule", {job("stuck", queue="odd" if obstacle == "queue" else "default"): LONG_AGO})
    promoter = polling.promoter(failing if obstacle == "middleware" else repush)
    poller = holder(polling, redis_client, promoter=promoter)
    look(poller)
    assert poller._watch._notifications.wait_readable(10)

    assert look(poller) == QUIET_SECONDS


@pytest.mark.parametrize(("due_in", "pause"), [(0.05, 0.05), (0.3, 0.1)], ids=["soon", "later"])
def test_what_comes_due_beside_a_job_that_cannot_go_is_looked_for_as_often_as_ever(
    polling: Polling, redis_client: redis.Redis, due_in: float, pause: float
) -> None:
    """Otherwise one bad job would make all others late."""
    redis_client.set("queue:odd", "a string")
    redis_client.zadd("schedule", {job("stuck", queue="odd"): LONG_AGO, job("comes due"): NOW + due_in})
    promoter = polling.promoter(now=lambda: NOW)
    poller = polling.poller(promoter=promoter, now=lambda: NOW, monotonic=lambda: 1000.0)
    poller.is_quick = True

    poller._look()

    assert poller._look_at == pytest.approx(1000 + pause)
    assert not poller._is_at_rest


def test_at_rest_it_does_not_look_because_of_its_own_lease(polling: Polling, redis_client: redis.Redis) -> None:
    """It hears of each renewal, and nothing has changed."""
    poller = at_rest(polling, redis_client)
    assert poller._watch._notifications.wait_readable(10)

    poller._waited(0.1)

    assert poller._look_at == 1000 + QUIET_SECONDS


def test_at_rest_one_packet_renews_the_lease_and_looks(polling: Polling, redis_client: redis.Redis) -> None:
    """An idle Redis wakes up for each packet, and a script costs it ten times as much as a plain command."""
    poller = at_rest(polling, redis_client)
    redis_client.expire("sidekiq_py:poller", 60)
    redis_client.config_resetstat()

    look(poller)

    stats = redis_client.info("all")
    assert 0 < redis_client.pttl("sidekiq_py:poller") <= LEASE_SECONDS * 1000
    assert stats["total_reads_processed"] == 2, "the look and this question"
    assert {"cmdstat_get", "cmdstat_expire", "cmdstat_zcount"} <= stats.keys()
    assert "cmdstat_evalsha" not in stats


@pytest.mark.parametrize("other", [b"another", None], ids=["taken", "lapsed"])
def test_a_look_that_finds_the_lease_lost_asks_for_it_at_once(
    polling: Polling, redis_client: redis.Redis, other: bytes | None
) -> None:
    """It was frozen for longer than the lease; only the script may take it, if nobody else has it."""
    poller = holder(polling, redis_client)
    redis_client.delete("sidekiq_py:poller")
    if other is not None:
        redis_client.set("sidekiq_py:poller", other, ex=2)

    look(poller)

    assert poller._lease_at == 1000.0
    assert redis_client.get("sidekiq_py:poller") == other


def test_where_redis_does_not_say_what_changes_it_looks_often(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    """As with a proxy, or a user, that may not use client-side caching."""
    server = new_redis_server()
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-client|tracking")
        polling = Polling(server.url)
        try:
            poller = holder(polling, admin)
            pauses = [look(poller) for _ in range(3)]
        finally:
            polling.close()

    assert pauses == pytest.approx([0.1, 0.1, 0.1])


def test_it_looks_often_until_it_has_heard_of_its_own_lease(polling: Polling, redis_client: redis.Redis) -> None:
    """A proxy may take the command and tell nothing: silence is rest only where Redis is known to speak."""
    poller = holder(polling, redis_client)
    redis_client.delete("sidekiq_py:poller")
    silent = [look(poller), look(poller)]

    redis_client.set("sidekiq_py:poller", "me")
    assert poller._watch._notifications.wait_readable(10)

    assert [*silent, look(poller)] == pytest.approx([0.1, 0.1, QUIET_SECONDS])


def test_a_connection_that_breaks_at_rest_is_opened_again(polling: Polling, redis_client: redis.Redis) -> None:
    """What changed meanwhile would never be heard of: it looks at once."""
    poller = at_rest(polling, redis_client)

    redis_client.client_kill_filter(_type="pubsub")
    poller._waited(5)
    assert poller._look_at == pytest.approx(1000.1)

    poller._look_at = 0.0
    poller._look()
    assert len(redis_client.client_list(_type="pubsub")) == 1


def test_a_proxy_that_breaks_the_connection_is_not_asked_for_notifications_at_each_look(
    polling: Polling, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """Some break it at commands that they do not know. Ten looks a second opened twenty connections."""
    with CuttingProxy(redis_server.port) as proxy:
        proxy.cut(b"TRACKING", "in request", times=1000)
        polling.url = proxy.url
        poller = holder(polling, redis_client)

        pauses = [look(poller) for _ in range(5)]

        assert pauses == pytest.approx([0.1] * 5)
        assert proxy.cuts.total() == 1


def test_a_connection_that_breaks_before_redis_notifies_it_is_soon_replaced(
    polling: Polling, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis refuses to notify one that is gone; that must not count for an hour, as with a user without the right."""
    watch = polling.poller()._watch
    ask = watch._asking.command

    def break_first(*words: Any) -> Any:
        redis_client.client_kill_filter(_type="pubsub")
        return ask(*words)

    monkeypatch.setattr(watch._asking, "command", break_first)
    watch.look(NOW, (0.0,))
    assert not redis_client.client_list(_type="pubsub")

    monkeypatch.setattr(watch._asking, "command", ask)
    monkeypatch.setattr(due_watch, "monotonic", lambda: time.monotonic() + 60)
    watch.look(NOW, (0.0,))

    assert len(redis_client.client_list(_type="pubsub")) == 1
    # Now a part of a cycle, it would be collected with an open socket.
    watch.close()


def test_a_connection_that_is_cut_once_it_is_subscribed_is_not_opened_again_at_each_look(
    polling: Polling, redis_client: redis.Redis
) -> None:
    """Each try opens two connections, and only a notification shows that they last."""
    watch = polling.poller()._watch
    for _ in range(5):
        watch.look(NOW, (0.0,))
        redis_client.client_kill_filter(_type="pubsub")

    assert watch._asking.generation == 1


def test_a_process_without_the_lease_asks_for_it_without_a_script(polling: Polling, redis_client: redis.Redis) -> None:
    """All but one ask in vain."""
    redis_client.set("sidekiq_py:poller", "somebody", ex=60)
    redis_client.config_resetstat()

    assert not polling.poller()._holds_lease()

    stats = redis_client.info("commandstats")
    assert "cmdstat_get" in stats
    assert not {"cmdstat_evalsha", "cmdstat_eval"} & stats.keys()


@pytest.mark.parametrize(("processes", "seconds"), [(2, 2.0), (20, 20.0), (1000, 30.0)], ids=["few", "some", "many"])
def test_the_more_processes_there_are_the_less_often_each_asks_for_the_lease(
    polling: Polling, redis_client: redis.Redis, processes: int, seconds: float
) -> None:
    """Asked by each every two seconds, Redis woke up ten times a second for twenty workers at rest."""
    redis_client.sadd("processes", *[f"host:{number}:x" for number in range(processes)])
    redis_client.set("sidekiq_py:poller", "somebody", ex=60)
    poller = polling.poller(draw=lambda: 0.5)

    assert not poller._holds_lease()

    assert poller._lease_try_seconds() == seconds


def test_the_lease_passes_on_when_its_holder_stops(polling: Polling, redis_client: redis.Redis) -> None:
    """Given up at once; the other one takes it at its next try."""
    first, second = polling.poller("first"), polling.poller("second")
    first.start()
    eventually(lambda: redis_client.get("sidekiq_py:poller") == b"first")
    second.start()

    first.stop()

    assert redis_client.get("sidekiq_py:poller") is None or not first.is_quick
    eventually(lambda: redis_client.get("sidekiq_py:poller") == b"second")
    eventually(lambda: second.is_quick)


def test_a_process_that_loses_the_lease_goes_back_to_sidekiqs_pace(polling: Polling, redis_client: redis.Redis) -> None:
    """It was frozen, and another one holds it by now: two that look quickly, and listen, would be one too many."""
    poller = polling.poller(config=Config(poll_interval_average_seconds=1000), draw=lambda: 0.5)
    poller.start()
    eventually(lambda: poller._is_at_rest)

    redis_client.set("sidekiq_py:poller", "another", ex=60)

    eventually(lambda: not poller.is_quick and poller._look_at > time.monotonic() + 100)
    eventually(lambda: not redis_client.client_list(_type="pubsub"))
    assert not poller._is_at_rest


def test_without_the_lease_a_process_polls_at_sidekiqs_pace(polling: Polling, redis_client: redis.Redis) -> None:
    """The lease is another's: due jobs are moved all the same, after the interval."""
    redis_client.set("sidekiq_py:poller", "somebody", ex=60)
    redis_client.zadd("schedule", {job("due"): LONG_AGO})
    poller = polling.poller(config=Config(poll_interval_average_seconds=0.05), draw=lambda: 0.01)

    poller.start()

    eventually(lambda: redis_client.llen("queue:default") == 1)
    assert not poller.is_quick
    redis_client.zadd("schedule", {job("next"): LONG_AGO})
    eventually(lambda: redis_client.llen("queue:default") == 2)


def test_without_the_lease_a_poll_that_finds_nothing_due_is_one_round_trip(
    polling: Polling, redis_client: redis.Redis
) -> None:
    """Each one wakes an idle Redis; with twenty processes at rest, these polls are a tenth of what it does."""
    redis_client.zadd("schedule", {job("later"): NOW + 1})
    poller = polling.poller(now=lambda: NOW)
    redis_client.config_resetstat()

    poller._look()

    commands = redis_client.info("commandstats").keys() - {"cmdstat_config|resetstat", "cmdstat_client|setinfo"}
    assert commands == {"cmdstat_zcount", "cmdstat_scard"}


@pytest.mark.parametrize("is_quick", [True, False], ids=["with the lease", "without it"])
def test_a_pass_whose_rest_others_have_moved_is_over(
    polling: Polling, redis_client: redis.Redis, is_quick: bool
) -> None:
    """Middleware was slow, so that the pass ended early. It would be gone on with at once, again and again."""
    clock = [1000.0]

    def slow(payload: dict[str, Any]) -> Outgoing | None:
        clock[0] += 2
        return repush(payload)

    redis_client.zadd("schedule", {job(f"{n}"): LONG_AGO + n for n in range(3)})
    promoter = polling.promoter(slow, monotonic=lambda: clock[0])
    poller = polling.poller(promoter=promoter, monotonic=lambda: clock[0])
    poller.is_quick = is_quick
    poller._look()
    assert (redis_client.zcard("schedule"), poller._look_at) == (2, clock[0])

    redis_client.delete("schedule")
    poller._look()

    assert poller._look_at > clock[0]


@pytest.mark.parametrize("left_seconds", [None, 3600])
def test_a_lease_without_an_end_is_taken(polling: Polling, redis_client: redis.Redis, left_seconds: int | None) -> None:
    """
    A copy of Redis may have lost it, or the clock of Redis was set back when the holder died. If no process took the
    lease, no periodic job would fire, and nothing would say so.
    """
    redis_client.set("sidekiq_py:poller", "somebody", ex=left_seconds)
    poller = polling.poller()

    poller.start()

    eventually(lambda: poller.is_quick)
    assert redis_client.get("sidekiq_py:poller") == b"me"
    assert redis_client.pttl("sidekiq_py:poller") > 0


def test_a_user_who_may_not_see_when_the_lease_ends_respects_and_takes_it(
    restricted: tuple[Polling, redis.Redis],
) -> None:
    """Such as one with the rights that an earlier release needed."""
    polling, client = restricted
    client.execute_command("ACL", "SETUSER", "worker", "~processes", "-pttl")
    client.set("sidekiq_py:poller", "somebody", ex=60)

    poller = polling.poller()

    assert not poller._holds_lease()
    # As if the other process had just taken it.
    poller.is_quick = True
    assert not poller._holds_lease()
    client.delete("sidekiq_py:poller")
    assert poller._holds_lease()
    assert polling.reported == []


def test_a_user_who_may_not_use_expire_keeps_the_lease(restricted: tuple[Polling, redis.Redis]) -> None:
    """The script that takes it renews it, too. The heartbeat reports the right that is missing."""
    polling, client = restricted
    client.execute_command("ACL", "SETUSER", "worker", "~processes", "-expire")
    poller = polling.poller()

    poller.start()

    eventually(lambda: client.info("commandstats").get("cmdstat_expire", {}).get("rejected_calls", 0) > 2)
    assert poller.is_quick
    assert polling.reported == []


def test_where_the_lease_is_a_foreign_key_due_jobs_are_moved_at_sidekiqs_pace(
    polling: Polling, redis_client: redis.Redis
) -> None:
    """Otherwise nobody would move them. The report names the key."""
    redis_client.rpush("sidekiq_py:poller", "x")
    redis_client.zadd("schedule", {job("due"): LONG_AGO})
    poller = polling.poller(config=Config(poll_interval_average_seconds=0.05), draw=lambda: 0.01)

    poller.start()

    eventually(lambda: redis_client.llen("queue:default") == 1)
    [(_, context)] = polling.reported
    assert "sidekiq_py:poller cannot hold the lease" in context["context"]
    redis_client.delete("sidekiq_py:poller")
    eventually(lambda: poller.is_quick)


def test_what_the_holder_of_the_lease_may_not_move_others_move_at_sidekiqs_pace(
    restricted: tuple[Polling, redis.Redis],
) -> None:
    """A worker may be confined to the queues that it serves."""
    polling, client = restricted
    client.execute_command("ACL", "SETUSER", "worker", "~processes")
    holder = polling.poller("holder")
    holder.start()
    eventually(lambda: holder.is_quick)
    client.zadd("schedule", {job("of another queue", queue="forbidden"): LONG_AGO})
    eventually(lambda: polling.reported)
    polling.url = polling.url.replace("worker:secret@", "")

    other = polling.poller("other", config=Config(poll_interval_average_seconds=0.05), draw=lambda: 0.01)
    other.start()

    eventually(lambda: jids(contents(client, "forbidden")) == ["of another queue"])
    assert holder.is_quick
    assert not other.is_quick


def test_dead_processes_are_forgotten_after_the_initial_wait(polling: Polling, redis_client: redis.Redis) -> None:
    """Once, and by one process a minute."""
    redis_client.sadd("processes", "dead:1:x", "alive:2:y")
    redis_client.hset("alive:2:y", "info", "{}")
    poller = polling.poller(config=Config(poll_interval_average_seconds=5), draw=lambda: 0.0)

    poller.start()

    eventually(lambda: redis_client.smembers("processes") == {b"alive:2:y"})
    assert 0 < redis_client.ttl("process_cleanup") <= 60


def test_a_redis_that_goes_away_is_reported_once_and_waited_for(
    new_redis_server: Callable[..., RedisServer],
) -> None:
    """Nothing is lost meanwhile; when it is back, due jobs go out."""
    server = new_redis_server(appendonly=True)
    polling = Polling(server.url)
    poller = polling.poller()
    poller.start()
    eventually(lambda: poller.is_quick)

    server.stop()
    eventually(lambda: len(polling.reported) == 1)
    server.start()
    client = server.client()
    client.zadd("schedule", {job("due"): LONG_AGO})

    eventually(lambda: client.llen("queue:default") == 1)
    assert len(polling.reported) == 1
    assert polling.reported[0][1]["context"] == "Error moving due jobs"
    polling.close()
    client.close()


def test_stopping_is_quick_and_may_come_twice_or_before_the_start(polling: Polling) -> None:
    """Also in the middle of a long wait."""
    poller = polling.poller()
    poller.stop()
    poller = polling.poller()
    poller.start()
    eventually(lambda: poller.is_quick)

    began = time.monotonic()
    poller.stop()
    poller.stop()

    assert time.monotonic() - began < 10
    assert not poller.is_quick


# Intervals


def test_the_first_look_of_a_slow_process_waits_as_rubys() -> None:
    """Ten to fifteen seconds; at most five where the interval is given."""
    assert initial_wait_seconds(Config(), 0.5) == 12.5
    assert initial_wait_seconds(Config(poll_interval_average_seconds=3), 0.5) == 2.5


@pytest.mark.parametrize(
    ("release", "processes", "draw", "seconds"),
    [
        ("6.4.1", 1, 0.0, 2.5),
        ("6.4.1", 9, 0.5, 45.0),
        ("6.4.1", 10, 0.5, 25.0),
        ("7.3.2", 10, 0.9, 45.0),
        ("8.0.9", 20, 0.5, 50.0),
        ("8.1.7", 20, 0.5, 100.0),
        ("8.1.7", 9, 0.5, 45.0),
    ],
)
def test_the_interval_grows_with_the_processes(release: str, processes: int, draw: float, seconds: float) -> None:
    """So that all together look about every five seconds."""
    dialect = Dialect.pinned(release)

    assert poll_interval_seconds(processes, draw, config=Config(), dialect=dialect) == pytest.approx(seconds)


def test_a_given_interval_does_not_grow() -> None:
    """It is the average for each process."""
    config = Config(poll_interval_average_seconds=2)

    assert poll_interval_seconds(5, 0.5, config=config, dialect=V6) == 2.0
