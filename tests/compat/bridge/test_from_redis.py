"""From Celery's queues in a Redis to Sidekiq's: what becomes of each kind of message, and what is left."""

import json
import pickle
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from threading import Thread
from typing import Any
from uuid import UUID

import kombu
import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery._wire.payload import KEY
from sidekiq_celery.bridge import forward, moves, run
from sidekiq_celery.bridge.fates import Found, Moved
from sidekiq_celery.bridge.layout import CeleryLayout
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.message_lists import Side
from sidekiq_celery.bridge.redis_source import CLAIMED_ELSEWHERE
from sidekiq_celery.bridge.run import Bridge, BridgePlan
from sidekiq_celery.bridge.transfer import TOTALS, AcrossServers, Claim, Claims, TooLateError

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.compat.bridge.conftest import Recorded, RunBridge, job_set, jobs, send_calls
from tests.compat.tasks.worker import TaskWorker
from tests.support.cutting_proxy import CuttingProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

_LEFT = {
    forward.CHORD: 2,
    forward.MAYBE_CHORD: 1,
    forward.SEALED: 1,
}


@pytest.fixture(params=["within", "across"])
def end(
    request: pytest.FixtureRequest, redis_client: redis.Redis, run_bridge: RunBridge
) -> tuple[redis.Redis, Callable[..., Ledger]]:
    """Celery's Redis, which is Sidekiq's too or another one; and a run of the bridge from there."""
    if request.param == "within":
        return redis_client, run_bridge
    other: RedisServer = request.getfixturevalue("other_redis")
    return other.client(), lambda **plan: run_bridge(celery_url=other.url, **plan)


def message(task_id: Any = "an-id", queue: str = "celery", **changes: Any) -> bytes:
    """A message as kombu keeps it."""
    body = b64encode(json.dumps([[1], {}, {}]).encode()).decode()
    whole = {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "side.note", "id": task_id, **changes.pop("headers", {})},
        "properties": {"body_encoding": "base64", "delivery_info": {"exchange": "", "routing_key": queue}},
    }
    return json.dumps({**whole, **changes}).encode()


def test_each_kind_of_call_becomes_a_job(
    end: tuple[redis.Redis, Callable[..., Ledger]], recorded: Recorded, redis_client: redis.Redis
) -> None:
    """With all that a worker has to know of it; and its place in the queue."""
    celery, bridge = end
    recorded.replay(celery)
    ids = recorded.ids

    ledger = bridge()

    moved = jobs(redis_client)
    assert moved[ids["plain"]]["args"] == ["plain", 1, None]
    assert (moved[ids["plain"]]["class"], moved[ids["plain"]]["retry"]) == ("side.note", 3)
    args, kwargs = moved[ids["kwargs"]]["args"]
    assert (args, kwargs["é"], moved[ids["kwargs"]][KEY]["kw"]) == ("kwargs", "ü", True)
    assert kwargs["when"]["__type__"] == "datetime"
    assert moved[ids["urgent"]][KEY]["priority"] == 6
    assert "expires" in moved[ids["expired"]][KEY]
    assert moved[ids["linked"]][KEY]["callbacks"][0]["args"] == ["link"]
    assert moved[ids["linked"]][KEY]["errbacks"][0]["args"] == ["errback"]
    task_headers = moved[ids["headers"]][KEY]
    assert (task_headers["headers"], task_headers["shadow"], task_headers["timelimit"]) == (
        {"tenant": "a"},
        "shadow",
        [9, None],
    )
    assert [job for job in moved.values() if len(job[KEY].get("chain", ())) == 2]
    assert len([job for job in moved.values() if job[KEY].get("group")]) == 2
    assert list(jobs(redis_client, "high")) == [ids["high"]]
    assert redis_client.smembers("queues") == {b"celery", b"high"}
    order = [json.loads(text)["jid"] for text in redis_client.lrange("queue:celery", 0, -1)]
    assert order.index(ids["kwargs"]) < order.index(ids["plain"])
    assert ledger.left["celery"] == _LEFT
    assert celery.llen("celery") == 4
    assert celery.llen("celery\x06\x166") == 0


def test_messages_with_a_time_are_scheduled(
    end: tuple[redis.Redis, Callable[..., Ledger]], recorded: Recorded, redis_client: redis.Redis
) -> None:
    """Retries keep their number; a time that is past is no time; in protocol 1 it is UTC."""
    celery, bridge = end
    recorded.replay(celery)

    ledger = bridge()

    scheduled = job_set(redis_client, "schedule")
    ids = recorded.ids
    assert set(scheduled) == {ids["later"], ids["retried"], ids["protocol 1"]}
    assert all(abs(score - time.time() - 3600) < 900 for _, score in scheduled.values())
    assert scheduled[ids["retried"]][0][KEY]["retries"] == 2
    assert scheduled[ids["protocol 1"]][0]["args"] == ["protocol 1", {"k": 1}]
    assert ids["soon"] in jobs(redis_client)
    assert ledger.moved["celery"]["scheduled"] == 3


def test_bodies_that_are_not_plain_json_are_passed_along_unopened(
    recorded: Recorded, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Pickle is never loaded, nothing is unpacked; the worker reads them."""
    recorded.replay(redis_client)

    ledger = run_bridge()

    moved = jobs(redis_client)
    pickled, packed, nan = (moved[recorded.ids[kind]][KEY] for kind in ("pickled", "packed", "nan"))
    assert pickled["content_type"] == "application/x-python-serialize"
    assert b64decode(pickled["body"]).startswith(b"\x80")
    assert packed["compression"] == "application/x-gzip"
    assert b"NaN" in b64decode(nan["body"])
    assert ledger.notes["passed along unopened: application/x-python-serialize"] == 1


def test_the_tasks_run(
    app: Celery, recorded: Recorded, redis_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Each once, with its arguments, its links and the rest of its chain, whatever its body was written in."""
    app.conf.accept_content = ["json", "pickle"]
    recorded.replay(redis_client)
    worker = TaskWorker(app, redis_url, ["celery", "high"])

    run_bridge()
    worker.start()
    try:
        eventually(lambda: len(app.noted) >= 17, within_seconds=60)
        eventually(lambda: not redis_client.llen("queue:celery"))
    finally:
        worker.stop()

    assert sorted(one for one in app.noted if isinstance(one, str)) == sorted(
        [
            *("plain", "kwargs", "high", "urgent", "soon", "linked", "linked", "headers", "first", "second", "third"),
            *("member 1", "member 2", "pickled", "packed", "packed"),
        ]
    )
    assert len(app.noted) == 17


def test_the_last_step_of_a_chain_may_add_another(
    app: Celery, redis_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Celery has an empty chain in its message, and None in any other, whatever the body was written in."""
    app.conf.accept_content = ["json", "pickle"]
    chains: dict[str, Any] = {}

    @app.task(name="side.look", bind=True, shared=False)
    def look(self: Any, *args: Any) -> None:
        chains[self.request.id] = self.request.chain

    for name, rest in (("alone", None), ("last", [])):
        call = ([1], {}, {"callbacks": None, "errbacks": None, "chain": rest, "chord": None})
        plain = {"body": b64encode(json.dumps(call).encode()).decode()}
        pickled = {
            "body": b64encode(pickle.dumps(call)).decode(),
            "content-type": "application/x-python-serialize",
            "content-encoding": "binary",
        }
        for task_id, body in ((name, plain), (f"{name}, pickled", pickled)):
            redis_client.lpush("celery", message(task_id, headers={"task": "side.look"}, **body))
    worker = TaskWorker(app, redis_url)

    run_bridge()
    worker.start()
    try:
        eventually(lambda: len(chains) == 4, within_seconds=60)
    finally:
        worker.stop()

    assert chains == {"alone": None, "alone, pickled": None, "last": [], "last, pickled": []}


def test_ids_may_be_uuids_or_numbers(
    app: Celery, redis_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Celery's workers run such tasks; here they have the text that their results are stored under."""
    send_calls(redis_url, redis_url, "ids")

    run_bridge()
    moved = jobs(redis_client)
    worker = TaskWorker(app, redis_url)
    worker.start()
    try:
        eventually(lambda: len(app.noted) == 3, within_seconds=60)
    finally:
        worker.stop()

    named = {job["args"][0]: (jid, job[KEY].get("root_id")) for jid, job in moved.items()}
    assert (named["uuid"], named["number"]) == ((str(UUID(int=5)), None), ("5", None))
    assert moved[named["numbers"][0]][KEY].items() >= {"root_id": 7, "parent_id": 8, "correlation_id": 9}.items()
    assert sorted(app.noted) == ["number", "numbers", "uuid"]
    assert redis_client.zcard("dead") == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"rubbish", "the message is not valid JSON"),
        (b"[1]", "the message is not a JSON object"),
        (b'{"headers": [1]}', "headers or properties are not a JSON object"),
        (message(body=7), "body is int"),
        (message(body="%"), "not valid base64"),
        (message(body=b64encode(b"{").decode()), "the body is not valid JSON"),
        (message(body=b64encode(b"[1]").decode()), "not a list of arguments"),
        (message(body=b64encode(b"[1, {}, {}]").decode()), "arguments are not a list"),
        (message(body=b64encode(b"[" * 100_000).decode()), "the body is not valid JSON"),
        (message(task_id=None), "id is None"),
        (message(task_id=["x"]), "id is ['x']"),
        (message(task_id="\ud800"), "lone surrogate"),
        (message(task_id="@").replace(b'"@"', b"7" * 5000), "integer"),
        (message(headers={"task": 7}), "task is 7"),
        (message(headers={"task": "\ud800"}), "lone surrogate"),
        (message(headers={"eta": "tomorrow"}), "tomorrow"),
        (message(headers={"expires": "soon"}), "soon"),
        (message(headers={"timelimit": 7}), "int"),
    ],
)
def test_what_nobody_can_read_is_kept_in_the_dead_set(
    text: bytes, reason: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """As a job that says why, and holds the message byte for byte."""
    redis_client.lpush("celery", text)

    ledger = run_bridge()

    [(job, _)] = job_set(redis_client, "dead").values()
    assert reason in job["error_message"]
    assert b64decode(job[KEY]["message"]) == text
    assert (ledger.moved["celery"]["unreadable"], redis_client.llen("celery")) == (1, 0)


def test_the_dead_set_is_not_flooded(redis_client: redis.Redis, app: Celery, run_bridge: RunBridge) -> None:
    """What is beyond the number of failed tasks that an app keeps there stays where it is."""
    app.conf.task_keep_failed = 2
    redis_client.lpush("celery", b"1", b"2", b"3", message())

    ledger = run_bridge()

    assert (redis_client.zcard("dead"), redis_client.lrange("celery", 0, -1)) == (2, [b"3"])
    assert ledger.left["celery"] == {forward.UNREADABLE: 1}
    assert list(jobs(redis_client)) == ["an-id"]


def test_large_messages_stay(redis_client: redis.Redis, run_bridge: RunBridge) -> None:
    """They are not even read; what lies behind them is moved."""
    large = message("large", padding="x" * 5000)
    redis_client.lpush("celery", large, message("small"))

    ledger = run_bridge(most_bytes=4000)

    assert list(jobs(redis_client)) == ["small"]
    assert redis_client.lrange("celery", 0, -1) == [large]
    assert ledger.count_left == 1


def test_what_stays_keeps_nobody_behind_it_waiting(redis_client: redis.Redis, run_bridge: RunBridge) -> None:
    """However much of it there is."""
    chord = b64encode(json.dumps([[1], {}, {"chord": {"task": "side.note"}}]).encode()).decode()
    redis_client.lpush("celery", *(message(f"part {number}", body=chord) for number in range(1200)))
    redis_client.lpush("celery", *(message(f"free {number}") for number in range(700)))

    ledger = run_bridge()

    assert len(jobs(redis_client)) == 700
    assert (redis_client.llen("celery"), ledger.count_left) == (1200, 1200)


def test_two_messages_that_are_the_same_are_two_jobs(
    end: tuple[redis.Redis, Callable[..., Ledger]], redis_client: redis.Redis
) -> None:
    """As Celery would run both."""
    celery, bridge = end
    celery.lpush("celery", message(), message())

    ledger = bridge()

    assert redis_client.llen("queue:celery") == 2
    assert ledger.moved["celery"] == {"moved": 2}


def test_a_queue_can_be_renamed(end: tuple[redis.Redis, Callable[..., Ledger]], redis_client: redis.Redis) -> None:
    """And priorities come to queues of their own where the app orders them."""
    celery, bridge = end
    celery.lpush("celery", message())

    bridge(renames={"celery": "python"})

    assert list(jobs(redis_client, "python")) == ["an-id"]


def test_priorities_are_ordered_where_the_app_orders_them(
    app: Celery, redis_client: redis.Redis, run_bridge: RunBridge, recorded: Recorded
) -> None:
    """In a queue of their own."""
    app.conf.broker_transport_options = {"queue_order_strategy": "priority"}
    recorded.replay(redis_client)

    run_bridge()

    assert recorded.ids["urgent"] in jobs(redis_client, "celery:6")


def test_a_dry_run_counts_and_changes_nothing(
    end: tuple[redis.Redis, Callable[..., Ledger]], recorded: Recorded, redis_client: redis.Redis
) -> None:
    """The account is that of the real run."""
    celery, bridge = end
    recorded.replay(celery)
    before = {key: celery.type(key) for key in celery.scan_iter()}

    dry, again = bridge(is_dry=True), bridge(is_dry=True)

    assert {key: celery.type(key) for key in celery.scan_iter()} == before
    assert redis_client.llen("queue:celery") == 0
    real = bridge()
    assert dry.as_dict() == again.as_dict() == real.as_dict()
    assert "moved, 4 left" in real.as_text()


def test_messages_of_celery_s_workers_are_left_to_them(
    end: tuple[redis.Redis, Callable[..., Ledger]], redis_client: redis.Redis
) -> None:
    """The account tells how many there are; those that were taken long ago come along when that is asked for."""
    celery, bridge = end
    take(celery, "new", taken_at=time.time())
    take(celery, "old", taken_at=time.time() - 4000)
    take(celery, "bound", exchange="high", routing_key="key", taken_at=1)
    take(celery, "other", routing_key="other", taken_at=1)
    celery.sadd("_kombu.binding.high", "key\x06\x16\x06\x16high")
    celery.hset("unacked", "odd", b"rubbish")
    celery.hset("unacked", "bent", b'[{}, "\\ud800", "celery"]')
    celery.zadd("unacked_index", {"odd": 1, "bent": 1, "gone": 1})

    left = bridge()
    bridge(unacked_after_seconds=3600)

    assert left.count_moved == 0
    assert sorted(left.notes.values()) == [6, 7]
    assert (list(jobs(redis_client)), list(jobs(redis_client, "high"))) == (["old"], ["bound"])
    assert set(celery.hkeys("unacked")) == {b"tag new", b"tag other", b"odd", b"bent"}
    assert celery.zcard("unacked_index") == 5


def take(
    client: redis.Redis, task_id: str, *, taken_at: float, exchange: str = "", routing_key: str = "celery"
) -> None:
    record = json.dumps([json.loads(message(task_id)), exchange, routing_key])
    client.hset("unacked", f"tag {task_id}", record)
    client.zadd("unacked_index", {f"tag {task_id}": taken_at})


def test_exchanges_of_kombu_s_lead_to_their_queues(redis_url: str, redis_client: redis.Redis) -> None:
    """By the bindings that kombu has written; a pattern that is none matches nothing."""
    with kombu.Connection(redis_url) as connection:
        topics = kombu.Exchange("news", "topic")
        kombu.Queue("sports", topics, "news.*.sports")(connection.channel()).declare()
    redis_client.sadd("_kombu.binding.news", "x\x06\x16(\x06\x16broken")
    layout = CeleryLayout()
    members = sorted(redis_client.smembers(layout.binding_key("news")))

    assert layout.bound_queue(members, "news.local.sports") == "sports"
    assert layout.bound_queue(members, "weather") is None


def test_keys_under_a_prefix_are_found(
    other_redis: RedisServer, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """And other names that the transport's options give."""
    with other_redis.client() as celery:
        celery.lpush("mine:celery:2", message("a"))
        options = {"global_keyprefix": "mine:", "sep": ":", "priority_steps": [0, 2]}

        run_bridge(celery_url=other_redis.url, transport_options=options)

    assert list(jobs(redis_client)) == ["a"]


def test_both_ends_may_be_under_prefixes(redis_url: str, redis_client: redis.Redis, run_bridge: RunBridge) -> None:
    """Of one Redis, and in one step."""
    app = Celery("ours", broker=redis_url, set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": "site:"}
    redis_client.lpush("old:celery", message("a"))

    run_bridge(app=app, celery_url=redis_url, transport_options={"global_keyprefix": "old:"})

    assert redis_client.llen("site:queue:celery") == 1
    assert not [key for key in redis_client.scan_iter() if b"claimed" in key or b"written" in key]
    app.close()


def test_what_another_bridge_has_claimed_is_finished_once(
    app: Celery, other_redis: RedisServer, redis_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Whether or not that one had written it before it died."""
    source = Side(Pool(RedisSettings(other_redis.url)), "")
    target = Side(Pool(RedisSettings(redis_url)), "")
    claims = Claims("forward", source)
    across = AcrossServers("forward", claims, target)
    judge = forward.Forward(app, {}).judge
    with other_redis.client() as celery:
        celery.lpush("celery", message("written"), message("claimed"))
        found = [Found("celery", text, ("LREM", "celery", text)) for text in celery.lrange("celery", 0, -1)]
        made = claims.make([(one, judge(one)) for one in found])  # type: ignore[misc]
        across.finish(lambda: [one for one in made if one.moved.task_id == "written"], Ledger())
        # As if it had died before it forgot that.
        [written] = [one for one in made if one.moved.task_id == "written"]
        celery.hset("sidekiq_py:bridge:claimed:forward", written.claim_id, b'["celery", null]\n' + written.found.text)
        celery.hset("sidekiq_py:bridge:claimed:forward", mapping={"a stranger's": b"rubbish", b"caf\xe9": b"rubbish"})
        celery.hset("sidekiq_py:bridge:claimed:forward", mapping={"deep": b"[" * 5000, "odd": b"[5, []]\nx"})

        ledger = run_bridge(celery_url=other_redis.url)

        assert sorted(jobs(redis_client)) == ["claimed", "written"]
        assert ledger.moved["celery"] == {"moved": 1, "duplicates": 1}
        # Names that are not ours may be any bytes.
        assert set(celery.hkeys("sidekiq_py:bridge:claimed:forward")) == {
            *(b"a stranger's", b"caf\xe9"),
            *(b"deep", b"odd"),
        }
    assert redis_client.hgetall(TOTALS) == {b"forward:celery:moved": b"2"}


def test_what_was_claimed_before_a_reply_was_lost_is_moved(
    other_redis: RedisServer, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """A run that ends by itself may find nothing else to move."""
    with CuttingProxy(other_redis.port) as proxy, other_redis.client() as celery:
        # So that Redis knows the scripts.
        celery.lpush("celery", message("before"))
        run_bridge(celery_url=other_redis.url)
        celery.lpush("celery", message("a"), message("b"))
        proxy.cut(b"LREM", "before reply")

        ledger = run_bridge(celery_url=proxy.url)

        assert proxy.cuts["before reply"] == 1
        assert ledger.moved["celery"] == {"moved": 2}
        assert not celery.exists("sidekiq_py:bridge:claimed:forward")
    assert sorted(jobs(redis_client)) == ["a", "b", "before"]


def test_claims_of_other_queues_are_left_to_their_bridge(
    app: Celery, other_redis: RedisServer, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """It may move them to another server, and names their queue there as it was told."""
    claims = Claims("forward", Side(Pool(RedisSettings(other_redis.url)), ""))
    with other_redis.client() as celery:
        celery.lpush("high", message("a"))
        [text] = celery.lrange("high", 0, -1)
        claims.make([(Found("high", text, ("LREM", "high", text)), Moved("moved", "a", (), "high"))])

    others = run_bridge(celery_url=other_redis.url, queues=["celery"])
    own = run_bridge(celery_url=other_redis.url, queues=["high"], renames={"high": "urgent"})

    assert (others.count_moved, dict(others.left["high"])) == (0, {CLAIMED_ELSEWHERE: 1})
    assert (own.moved["high"], list(jobs(redis_client, "urgent"))) == ({"moved": 1}, ["a"])
    assert claims.ids() == []


def test_a_bridge_that_stood_still_writes_nothing_more(
    other_redis: RedisServer, redis_url: str, redis_client: redis.Redis
) -> None:
    """Marks may be gone by then."""
    target = Side(Pool(RedisSettings(redis_url)), "")
    across = AcrossServers("forward", Claims("forward", Side(Pool(RedisSettings(other_redis.url)), "")), target)
    moved = Moved("moved", "an-id", ("LPUSH", "queue:celery", b"{}"), "celery")

    with pytest.raises(TooLateError):
        across.write([Claim("a:1:an-id", Found("celery", b""), moved)], Ledger(), int(time.time()) - 700)

    assert redis_client.keys() == []


@pytest.mark.parametrize("key", ["queue:celery", "queues", "celery", TOTALS])
def test_a_key_of_another_type_is_told_and_nothing_is_lost(
    key: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Before anything is written."""
    redis_client.lpush("high" if key == "celery" else "celery", message("a"))
    redis_client.set(key, "in the way")

    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        run_bridge()

    assert redis_client.llen("queue:high") == 0
    assert redis_client.llen("high" if key == "celery" else "celery") == 1


def test_a_full_redis_can_be_worked_empty(redis_client: redis.Redis, run_bridge: RunBridge) -> None:
    """Within one Redis a move adds nothing."""
    redis_client.lpush("celery", *(message(f"{number}") for number in range(10)))
    redis_client.config_set("maxmemory", 1)
    try:
        run_bridge()
    finally:
        redis_client.config_set("maxmemory", 0)

    assert (len(jobs(redis_client)), redis_client.smembers("queues")) == (10, {b"celery"})


def test_a_full_destination_is_waited_for(
    app: Celery,
    other_redis: RedisServer,
    redis_client: redis.Redis,
    run_bridge: RunBridge,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was claimed meanwhile is brought over then; a run that is to end says what is wrong."""
    monkeypatch.setattr(run, "_RETRY_SECONDS", 0.1)
    bridge = Bridge(app, BridgePlan(queues=["celery"], celery_url=other_redis.url))
    running = Thread(target=bridge.run)
    with other_redis.client() as source:
        source.lpush("celery", message("before"))
        running.start()
        try:
            eventually(lambda: redis_client.llen("queue:celery") == 1, within_seconds=60)
            redis_client.config_set("maxmemory", 1)
            source.lpush("celery", *(message(f"{number}") for number in range(10)))
            eventually(lambda: "trying again" in caplog.text, within_seconds=60)
            assert source.hlen("sidekiq_py:bridge:claimed:forward") == 10
            with pytest.raises(RedisReplyError, match="OOM"):
                run_bridge(celery_url=other_redis.url)
            redis_client.config_set("maxmemory", 0)
            eventually(lambda: len(jobs(redis_client)) == 11, within_seconds=60)
        finally:
            redis_client.config_set("maxmemory", 0)
            bridge.stop()
            running.join()


def test_an_outage_is_logged_once_however_long_it_lasts(
    app: Celery,
    new_redis_server: Callable[..., RedisServer],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A line at each try would be 40,000 a day."""
    caplog.set_level("INFO")
    monkeypatch.setattr(run, "_RETRY_SECONDS", 0.01)
    server = new_redis_server()
    bridge = Bridge(app, BridgePlan(queues=["celery"], celery_url=server.url))
    bridge._look()
    server.stop()
    # The first one finds its connection closed.
    bridge._look()
    caplog.clear()

    looks = [bridge._look() for _ in range(5)]
    server.start()
    bridge._look()

    assert looks == [None] * 5
    assert caplog.text.count("trying again") <= 1
    assert caplog.text.count("bridge: it works again") == 1


def test_counts_that_stay_the_same_are_logged_once(
    app: Celery, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line every ten seconds, for months after the last message, is a log that nobody reads."""
    caplog.set_level("INFO")
    monkeypatch.setattr(run, "_LOG_SECONDS", 0.0)
    monkeypatch.setattr(run, "_LEAST_PAUSE_SECONDS", 0.001)
    scans: list[None] = []
    look = Bridge._look

    def look_and_count(bridge: Bridge) -> bool | None:
        scans.append(None)
        return look(bridge)

    monkeypatch.setattr(Bridge, "_look", look_and_count)
    bridge = Bridge(app, BridgePlan(queues=["celery"]))
    runs = Thread(target=bridge.run)
    runs.start()
    try:
        eventually(lambda: "0 moved, 0 left" in caplog.text)
        redis_client.lpush("celery", message())
        eventually(lambda: "1 moved, 0 left" in caplog.text)
        begun = len(scans)
        eventually(lambda: len(scans) > begun + 3)
    finally:
        bridge.stop()
        runs.join()

    assert [caplog.text.count(f"bridge: {moved} moved, 0 left") for moved in (0, 1)] == [1, 1]


def test_a_message_that_middleware_stops_goes_nowhere(
    app: Celery, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """As one that is pushed; it is counted."""
    from sidekiq_py import program

    def stop(job: Any, payload: Any, queue: str, call_next: Any) -> Any:
        return None

    program.client_middleware.add(stop)
    try:
        redis_client.lpush("celery", message())
        ledger = run_bridge()
    finally:
        program.client_middleware.remove(stop)

    assert ledger.moved["celery"] == {"stopped": 1}
    assert redis_client.llen("celery") == redis_client.llen("queue:celery") == 0


def test_a_window_ends_at_its_size(redis_url: str, redis_client: redis.Redis) -> None:
    """One text is always read, however long."""
    redis_client.rpush("list", b"x" * 10, b"y" * 10, b"z" * 100)

    def read(behind: int, **limits: int) -> list[bytes | int]:
        given = {"count": 10, "most_bytes": 15, "most_bytes_each": 1000, **limits}
        return moves.read_tail(Pool(RedisSettings(redis_url)), "list", behind=behind, **given)

    assert read(0) == [b"z" * 100]
    assert read(1) == [b"y" * 10]
    assert read(1, most_bytes=20) == [b"y" * 10, b"x" * 10]
    assert read(0, most_bytes_each=50) == [100, b"y" * 10]
    assert read(3) == []
