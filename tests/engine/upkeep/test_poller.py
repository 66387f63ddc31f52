"""Due jobs to their queues: each once, none lost, none in another's way, whoever else polls."""

import json
import logging
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import Config
from sidekiq_py.engine.upkeep.poller import (
    INITIAL_WAIT_SECONDS,
    QUIET_SECONDS,
    REST_SECONDS,
    Poller,
    initial_wait_seconds,
    poll_interval_seconds,
)
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.payload import for_queue, prepare_repush
from tests.support.missing_tools import skip_or_fail
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

RUBY_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"
V6 = Dialect.pinned("6.4.1")
NOW = 1_700_000_000.5
LONG_AGO = 1_600_000_000


def job(jid: str, **changes: Any) -> bytes:
    """A scheduled payload in Ruby's spelling."""
    payload = {"retry": True, "queue": "default", "class": "Hard", "args": [], "jid": jid, "created_at": 1.5, **changes}
    return json.dumps(payload, separators=(",", ":")).encode()


def repush(payload: dict[str, Any]) -> Outgoing | None:
    """What a client without middleware makes of a stored payload."""
    ready = prepare_repush(payload, dialect=V6, now=NOW, jid="")
    return Outgoing(ready["jid"], ready["queue"], None, for_queue(ready, dialect=V6, now=NOW))


class Polling:
    """Makes pollers on one server, and keeps what they report."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reported: list[tuple[BaseException, dict[str, Any]]] = []
        self._made: list[tuple[Poller, Pool]] = []

    def poller(self, identity: str = "me", **options: Any) -> Poller:
        """One with a pool of its own."""
        options.setdefault("repush", repush)
        options.setdefault("config", Config())
        config = options.pop("config")
        links = Pool(RedisSettings(self.url, socket_timeout_seconds=2))
        poller = Poller(
            config,
            pool=links,
            identity=identity,
            dialect=lambda: V6,
            report=lambda error, context: self.reported.append((error, context)),
            **options,
        )
        self._made.append((poller, links))
        return poller

    def close(self) -> None:
        """End all."""
        for poller, links in self._made:
            poller.stop()
            links.close()


@pytest.fixture
def polling(redis_url: str) -> Iterator[Polling]:
    """Pollers on the emptied server."""
    made = Polling(redis_url)
    yield made
    made.close()


def contents(client: redis.Redis, name: str) -> list[Any]:
    """A queue, the job that runs next first."""
    members: Any = client.lrange(f"queue:{name}", 0, -1)
    return list(reversed(members))


def jids(members: Any) -> list[str]:
    """The jids of payloads."""
    return [json.loads(member)["jid"] for member in members]


# One look


def test_a_due_job_goes_to_its_queue_as_a_push_leaves_it(polling: Polling, redis_client: redis.Redis) -> None:
    """`retry` and `queue` in front, `enqueued_at` behind, other keys untouched; what is not due stays."""
    due = b'{"class":"Hard","args":[1e7],"jid":"a","x":9007199254740993,"queue":"low"}'
    redis_client.zadd("schedule", {due: NOW - 1})
    redis_client.zadd("schedule", {job("later"): NOW + 1})

    poller = polling.poller(now=lambda: NOW)
    poller.move_due()

    assert contents(redis_client, "low") == [
        b'{"retry":true,"queue":"low","class":"Hard","args":[10000000.0],"jid":"a","x":9007199254740993,'
        b'"created_at":1700000000.5,"enqueued_at":1700000000.5}'
    ]
    assert redis_client.smembers("queues") == {b"low"}
    assert jids(redis_client.zrange("schedule", 0, -1)) == ["later"]
    assert poller.moved == 1


def test_jobs_go_out_in_the_order_in_which_they_are_due(polling: Polling, redis_client: redis.Redis) -> None:
    """Over slices too, and those of `retry` before those of `schedule`."""
    redis_client.zadd("schedule", {job(f"s{n}"): LONG_AGO + n for n in range(250)})
    redis_client.zadd("retry", {job(f"r{n}"): LONG_AGO + 1000 + n for n in range(120)})

    polling.poller().move_due()

    assert jids(contents(redis_client, "default")) == [f"r{n}" for n in range(120)] + [f"s{n}" for n in range(250)]


def test_a_job_that_middleware_stops_is_removed_and_counted(polling: Polling, redis_client: redis.Redis) -> None:
    """As in Ruby; the next one goes out."""
    redis_client.zadd("schedule", {job("stopped"): LONG_AGO, job("moved"): LONG_AGO + 1})

    poller = polling.poller(repush=lambda payload: None if payload["jid"] == "stopped" else repush(payload))
    poller.move_due()

    assert jids(contents(redis_client, "default")) == ["moved"]
    assert redis_client.zcard("schedule") == 0
    assert (poller.stopped, poller.moved) == (1, 1)
    assert polling.reported == []


def test_lines_about_due_jobs_hide_what_the_policy_hides(
    polling: Polling, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the job that goes to its queue and of the one that a middleware stops; the rest of the payload is shown."""
    secret = [{"password": "hunter2", "plan": "gold"}]
    redis_client.zadd("schedule", {job("stopped", args=secret): LONG_AGO, job("moved", args=secret): LONG_AGO + 1})

    poller = polling.poller(repush=lambda payload: None if payload["jid"] == "stopped" else repush(payload))
    with caplog.at_level(logging.DEBUG, "sidekiq"):
        poller.move_due()

    lines = [line for line in caplog.messages if "password" in line]
    assert [("stopped" in line, "hunter2" in line, "gold" in line) for line in lines] == [
        (True, False, True),
        (False, False, True),
    ]


@pytest.mark.parametrize(
    "member",
    [
        b"{not json",
        b"\xff\xfe",
        b"[1]",
        b"null",
        b"{}",
        b'{"class":"Hard","args":{}}',
        b'{"class":"Hard","args":[1E400]}',
        b'{"class":' + b"9" * 5000 + b',"args":[]}',
        b'{"class":"Hard","args":{"a":[' + b"9" * 5000 + b"]}}",
    ],
    ids=lambda member: repr(member[:40]),
)
def test_what_is_no_job_goes_raw_to_dead(member: bytes, polling: Polling, redis_client: redis.Redis) -> None:
    """Ruby loses it and ends its look; here it is reported and the next one goes out."""
    redis_client.zadd("retry", {member: LONG_AGO, job("moved"): LONG_AGO + 1})

    poller = polling.poller(now=lambda: NOW)
    poller.move_due()

    assert redis_client.zrange("dead", 0, -1, withscores=True) == [(member, NOW)]
    assert jids(contents(redis_client, "default")) == ["moved"]
    assert poller.unusable == 1
    [(_, context)] = polling.reported
    assert context["jobstr"] == member


def test_a_job_whose_middleware_raises_stays_and_is_tried_again(polling: Polling, redis_client: redis.Redis) -> None:
    """Reported once, tried ever more slowly, and moved when it works."""
    clock, tries, is_broken = [1000.0], Counter[str](), [True]

    def failing(payload: dict[str, Any]) -> Outgoing | None:
        tries[payload["jid"]] += 1
        if payload["jid"] == "stuck" and is_broken[0]:
            raise ConnectionError("the database is down")
        return repush(payload)

    redis_client.zadd("schedule", {job("stuck"): LONG_AGO, job("moved"): LONG_AGO + 1})
    poller = polling.poller(repush=failing, monotonic=lambda: clock[0])
    for _ in range(100):
        poller.move_due()
        clock[0] += 0.1

    assert jids(contents(redis_client, "default")) == ["moved"]
    assert jids(redis_client.zrange("schedule", 0, -1)) == ["stuck"]
    assert tries == {"stuck": 4, "moved": 1}  # at 0, 1, 3 and 7 s
    assert [str(error) for error, _ in polling.reported] == ["the database is down"]

    is_broken[0] = False
    clock[0] += 60
    poller.move_due()
    assert jids(contents(redis_client, "default")) == ["moved", "stuck"]


def test_jobs_that_cannot_go_do_not_block_those_behind_them(polling: Polling, redis_client: redis.Redis) -> None:
    """However many there are: a look gives up after a while, and the next one comes further. One error is reported."""

    def failing(payload: dict[str, Any]) -> Outgoing | None:
        if payload["jid"].startswith("stuck"):
            raise ValueError("not now")
        return repush(payload)

    redis_client.zadd("schedule", {job(f"stuck{n}"): LONG_AGO + n for n in range(350)})
    redis_client.zadd("schedule", {job("behind"): LONG_AGO + 1000})
    poller = polling.poller(repush=failing, monotonic=lambda: 0.0)

    for _ in range(5):
        poller.move_due()

    assert jids(contents(redis_client, "default")) == ["behind"]
    assert redis_client.zcard("schedule") == 350
    assert len(polling.reported) == 1


def test_a_queue_of_a_foreign_type_keeps_its_jobs_in_the_set(polling: Polling, redis_client: redis.Redis) -> None:
    """Reported once; others go out; it goes out when the key is put right."""
    clock = [0.0]
    redis_client.set("queue:odd", "a string")
    redis_client.zadd("schedule", {job("stuck", queue="odd"): LONG_AGO, job("moved"): LONG_AGO + 1})
    poller = polling.poller(monotonic=lambda: clock[0])

    for _ in range(3):
        poller.move_due()
    assert jids(contents(redis_client, "default")) == ["moved"]
    assert len(polling.reported) == 1

    redis_client.delete("queue:odd")
    clock[0] += 10
    poller.move_due()
    assert jids(contents(redis_client, "odd")) == ["stuck"]
    assert redis_client.zcard("schedule") == 0


def test_a_set_of_a_foreign_type_does_not_stop_the_other(polling: Polling, redis_client: redis.Redis) -> None:
    """Reported once, also where a process looks twenty times a second."""
    redis_client.set("schedule", "foreign")
    polling.poller().start()
    for jid in ("first", "second"):
        redis_client.zadd("retry", {job(jid): LONG_AGO})
        eventually(lambda jid=jid: jid in jids(contents(redis_client, "default")))

    assert [context["context"] for _, context in polling.reported] == [
        "schedule is not a sorted set: something else wrote to this key. Rename or delete it"
    ]
    redis_client.delete("schedule")
    redis_client.zadd("schedule", {job("third"): LONG_AGO})
    eventually(lambda: jids(contents(redis_client, "default")) == ["first", "second", "third"])


def test_a_moment_that_no_float_holds_stops_nothing(polling: Polling, redis_client: redis.Redis) -> None:
    """Redis would refuse it as a score: the due job goes out, as with any other `at` that cannot be used."""
    redis_client.zadd("retry", {job("odd", at=10**400): LONG_AGO, job("moved"): LONG_AGO + 1})

    polling.poller(repush=Client(pool=polling.url, sidekiq_version="6.4.1").repush).move_due()

    assert jids(contents(redis_client, "default")) == ["odd", "moved"]
    assert polling.reported == []


@pytest.fixture
def restricted(new_redis_server: Callable[..., RedisServer]) -> Iterator[tuple[Polling, redis.Redis]]:
    """Pollers of a Redis user who may not use the queue `forbidden`, and a client that may."""
    server = new_redis_server()
    client = server.client()
    words = "on >secret +@all ~retry ~schedule ~dead ~queues ~queue:default ~sidekiq_py:*"
    client.execute_command("ACL", "SETUSER", "worker", *words.split())
    polling = Polling(server.url.replace("redis://", "redis://worker:secret@"))
    yield polling, client
    polling.close()
    client.close()


def test_a_queue_that_may_not_be_written_keeps_its_own_jobs_only(restricted: tuple[Polling, redis.Redis]) -> None:
    """Redis refuses the whole script for one such key; the other jobs of the slice go out all the same."""
    polling, client = restricted
    client.zadd("retry", {job("stuck", queue="forbidden"): LONG_AGO})
    client.zadd("schedule", {job(f"s{n}"): LONG_AGO + n for n in range(150)})
    client.zadd("schedule", {job("stuck too", queue="forbidden"): LONG_AGO + 0.5})

    polling.poller().move_due()

    assert jids(contents(client, "default")) == [f"s{n}" for n in range(150)]
    assert jids(client.zrange("retry", 0, -1) + client.zrange("schedule", 0, -1)) == ["stuck", "stuck too"]
    assert [(type(error), error.code) for error, _ in polling.reported] == [(RedisReplyError, "NOPERM")] * 2


def test_without_the_right_to_zrem_no_job_is_pushed_again_and_again(restricted: tuple[Polling, redis.Redis]) -> None:
    """It could not leave the set, and each pass would push it once more."""
    polling, client = restricted
    client.execute_command("ACL", "SETUSER", "worker", "-zrem")
    client.zadd("schedule", {job("stays"): LONG_AGO})

    polling.poller().move_due()

    assert contents(client, "default") == []
    assert jids(client.zrange("schedule", 0, -1)) == ["stays"]
    assert [type(error) for error, _ in polling.reported] == [RedisReplyError]


def test_a_set_that_may_not_be_read_does_not_stop_the_other(restricted: tuple[Polling, redis.Redis]) -> None:
    """Reported once."""
    polling, client = restricted
    client.execute_command("ACL", "SETUSER", "worker", "resetkeys", "~schedule", "~dead", "~queues", "~queue:default")
    client.zadd("retry", {job("stuck"): LONG_AGO})
    client.zadd("schedule", {job("moved"): LONG_AGO})
    poller = polling.poller()

    poller.move_due()
    poller.move_due()

    assert jids(contents(client, "default")) == ["moved"]
    [(_, context)] = polling.reported
    assert context["context"].startswith("retry cannot be read")


def test_middleware_that_redis_refuses_something_holds_up_its_own_job_only(
    polling: Polling, redis_client: redis.Redis
) -> None:
    """A lock key of a foreign type, say: that is no trouble of the server's."""

    def locking(payload: dict[str, Any]) -> Outgoing | None:
        if payload["jid"] == "stuck":
            raise RedisReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return repush(payload)

    redis_client.zadd("retry", {job("stuck"): LONG_AGO, job("moved"): LONG_AGO + 1})

    polling.poller(repush=locking).move_due()

    assert jids(contents(redis_client, "default")) == ["moved"]
    assert jids(redis_client.zrange("retry", 0, -1)) == ["stuck"]


# Many that cannot move


class Stuck:
    """A poller before whom 5,000 jobs of `schedule` and of `retry` cannot move."""

    def __init__(self, polling: Polling, client: redis.Redis) -> None:
        self.at, self.tries = 0.0, Counter[str]()
        for name in ("schedule", "retry"):
            client.zadd(name, {job(f"stuck {name} {n}"): LONG_AGO + n for n in range(5000)})
        self.poller = polling.poller(repush=self._repush, now=lambda: NOW + self.at, monotonic=lambda: self.at)

    def _repush(self, payload: dict[str, Any]) -> Outgoing | None:
        self.tries[payload["jid"]] += 1
        if payload["jid"].startswith("stuck"):
            raise ValueError("not now")
        return repush(payload)

    def look(self, *, after_seconds: float) -> None:
        """One more look."""
        self.at += after_seconds
        self.poller.move_due()


@pytest.fixture
def stuck(polling: Polling, redis_client: redis.Redis) -> Stuck:
    """All of them due."""
    return Stuck(polling, redis_client)


def test_thousands_that_cannot_go_do_not_starve_one_behind_them(stuck: Stuck, redis_client: redis.Redis) -> None:
    """A look goes on where the last one ended, though those before are due for another try by then."""
    redis_client.zadd("schedule", {job("behind"): LONG_AGO + 6000})

    for _ in range(6):
        stuck.look(after_seconds=REST_SECONDS)

    assert jids(contents(redis_client, "default")) == ["behind"]
    assert (redis_client.zcard("schedule"), redis_client.zcard("retry")) == (5000, 5000)
    assert all(tries <= 2 for tries in stuck.tries.values())


def test_what_comes_due_waits_for_none_that_cannot_go(stuck: Stuck, redis_client: redis.Redis) -> None:
    """Nor does `schedule` for `retry`: it is moved by the next look, however far the round has come."""
    stuck.look(after_seconds=0)
    redis_client.zadd("schedule", {job("comes due"): NOW + 0.02})

    stuck.look(after_seconds=0.05)

    assert jids(contents(redis_client, "default")) == ["comes due"]


def test_those_that_cannot_go_are_not_read_at_every_look(stuck: Stuck, redis_client: redis.Redis) -> None:
    """Twenty looks a second, each with thousands of payloads, would be all that Redis does."""
    stuck.look(after_seconds=0)
    tries = stuck.tries.total()

    for _ in range(20):
        stuck.look(after_seconds=0.05)

    assert stuck.tries.total() == tries


def test_schedule_does_not_wait_for_middleware_that_takes_its_time(polling: Polling, redis_client: redis.Redis) -> None:
    """A pass over `retry` ends after a second, also in the middle of a slice."""
    clock = [0.0]

    def slow(payload: dict[str, Any]) -> Outgoing | None:
        if payload["jid"].startswith("stuck"):
            clock[0] += 5
            raise TimeoutError("the database is down")
        return repush(payload)

    redis_client.zadd("retry", {job(f"stuck {n}"): LONG_AGO + n for n in range(100)})
    redis_client.zadd("schedule", {job("moved"): LONG_AGO})

    polling.poller(repush=slow, monotonic=lambda: clock[0]).move_due()

    assert jids(contents(redis_client, "default")) == ["moved"]
    assert clock[0] <= 5


def test_each_is_tried_more_and_more_rarely_however_many_there_are(stuck: Stuck) -> None:
    """Its pauses double, however many looks there are meanwhile; three minutes of them cost each nine tries at most."""
    for _ in range(90):
        stuck.look(after_seconds=REST_SECONDS)

    assert 5 <= min(stuck.tries.values()) <= max(stuck.tries.values()) <= 9


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


def holder(polling: Polling, redis_client: redis.Redis) -> Poller:
    """One that has the lease; its clock stands still, so that each look is one that renews it."""
    redis_client.set("sidekiq_py:poller", "me", ex=1)
    poller = polling.poller(monotonic=lambda: 1000.0)
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


def test_at_rest_it_does_not_look_because_of_its_own_lease(polling: Polling, redis_client: redis.Redis) -> None:
    """It hears of each renewal, and nothing has changed."""
    poller = at_rest(polling, redis_client)
    assert poller._watch._notifications.wait_readable(10)

    poller._waited(0.1)

    assert poller._look_at == 1000 + QUIET_SECONDS


def test_at_rest_one_packet_renews_the_lease_and_looks(polling: Polling, redis_client: redis.Redis) -> None:
    """An idle Redis wakes up for each packet, and a script costs it ten times as much as a plain command."""
    poller = at_rest(polling, redis_client)
    redis_client.pexpire("sidekiq_py:poller", 500)
    redis_client.config_resetstat()

    look(poller)

    stats = redis_client.info("all")
    assert redis_client.pttl("sidekiq_py:poller") > 1000
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
    eventually(lambda: redis_client.get("sidekiq_py:poller") == b"second", within_seconds=5)
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
    poller = polling.poller(repush=slow, monotonic=lambda: clock[0])
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

    eventually(lambda: client.llen("queue:default") == 1, within_seconds=10)
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


# Races


def test_several_pollers_and_rubys_move_each_job_once(polling: Polling, redis_client: redis.Redis) -> None:
    """Two thousand due jobs, three of ours and a real Ruby poller: each is in its queue once."""
    ruby = ruby_poller(polling.url)
    members = {job(f"{n:04}", queue=f"q{n % 3}"): LONG_AGO + n % 7 for n in range(2000)}
    redis_client.zadd("schedule", members)
    pollers = [polling.poller(str(n)) for n in range(3)]
    threads = [threading.Thread(target=poller.move_due) for poller in pollers]

    tell(ruby)
    eventually(lambda: redis_client.zcard("schedule") < 2000, every_seconds=0.001)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_ruby = int(ruby.communicate(timeout=30)[0].split()[-1])

    arrived = [member for queue in range(3) for member in contents(redis_client, f"q{queue}")]
    assert sorted(jids(arrived)) == [f"{n:04}" for n in range(2000)]
    assert redis_client.zcard("schedule") == 0
    assert sum(poller.moved for poller in pollers) + by_ruby == 2000
    assert by_ruby > 0
    assert polling.reported == []


def beside_another(polling: Polling, redis_client: redis.Redis) -> Poller:
    """A poller; while it prepares its first slice of many due jobs, another takes all of that slice that it can."""
    asked: list[str] = []

    def prepare(payload: dict[str, Any]) -> Outgoing | None:
        asked.append(payload["jid"])
        if payload["jid"] == "stays":
            raise ValueError("not this one")
        if len(asked) < 3:
            redis_client.zrem("schedule", *(job(f"{n:03}") for n in range(100)))
        return repush(payload)

    redis_client.zadd("schedule", {job(f"{n:03}"): LONG_AGO + n for n in range(300)})
    return polling.poller(repush=prepare)


def test_a_poller_whose_slice_another_has_taken_leaves_the_next_to_it(
    polling: Polling, redis_client: redis.Redis
) -> None:
    """Otherwise all that poll at once do the same work. It goes on at its next look, in case the other has ended."""
    poller = beside_another(polling, redis_client)

    poller.move_due()
    assert (poller.moved, redis_client.zcard("schedule")) == (0, 200)

    poller.move_due()
    assert (poller.moved, redis_client.zcard("schedule")) == (200, 0)


def test_a_poller_goes_on_if_a_job_of_its_slice_stays(polling: Polling, redis_client: redis.Redis) -> None:
    """Otherwise it would read the job that stays again, before those behind it."""
    redis_client.zadd("schedule", {job("stays"): LONG_AGO - 1})
    poller = beside_another(polling, redis_client)

    poller.move_due()

    assert jids(redis_client.zrange("schedule", 0, -1)) == ["stays"]


def ruby_poller(url: str) -> subprocess.Popen[str]:
    """Sidekiq's own poller, loaded and waiting for a line; it prints how many jobs it moved."""
    program = """
        require "sidekiq"
        require "sidekiq/scheduled"
        Sidekiq.redis = {url: ARGV[0]}
        Sidekiq.logger.level = Logger::WARN
        pushed = 0
        Sidekiq::Client.prepend(Module.new { define_method(:push) { |item| pushed += 1; super(item) } })
        Sidekiq.redis(&:ping)
        puts "ready"
        $stdout.flush
        $stdin.gets
        Sidekiq::Scheduled::Enq.new.enqueue_jobs
        puts pushed
    """
    try:
        process = subprocess.Popen(
            ["ruby", "-W0", "-e", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    except OSError as error:
        skip_or_fail(f"no Ruby ({error}); on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        process.communicate()
        skip_or_fail("no Ruby with Sidekiq 6.4.1; on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
    return process


def tell(process: subprocess.Popen[str]) -> None:
    """Let the Ruby poller go."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


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
