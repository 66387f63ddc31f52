"""The way back: from Sidekiq's queues to Celery's."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import kombu
import pytest
import redis
from sidekiq_celery import Celery, chain, chord
from sidekiq_celery.bridge import backward
from sidekiq_celery.bridge import publishing as publishing_module
from sidekiq_celery.bridge.fates import Found, Moved
from sidekiq_celery.bridge.layout import CeleryLayout
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.message_lists import WINDOW_MESSAGES, Side
from sidekiq_celery.bridge.publishing import Publishing
from sidekiq_celery.bridge.run import Bridge, BridgePlan
from sidekiq_celery.bridge.transfer import CLAIMED, Claim, Claims, TooLateError

from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.compat.bridge.conftest import Recorded, RunBridge, celery_side, jobs
from tests.support.child_process import tail
from tests.support.rabbitmq_server import RabbitServer
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS

# The first one starts a RabbitMQ.
pytestmark = pytest.mark.timeout(300)

_SECONDS = 60


@contextmanager
def _celery_worker(broker: str, results: str, log: Path) -> Iterator[None]:
    # It refuses to read pickle as root else.
    environment = {**os.environ, "C_FORCE_ROOT": "1"}
    environment.pop("PYTHONPATH", None)
    with log.open("wb") as output:
        worker = subprocess.Popen(celery_side(broker, results, "work"), env=environment, stdout=output, stderr=output)
        try:
            yield
        except BaseException:
            print(tail(log))
            raise
        finally:
            worker.kill()
            worker.wait()


@pytest.fixture(params=["within", "across", "rabbit"])
def celery_url(request: pytest.FixtureRequest, redis_url: str) -> str:
    """The broker that the jobs go back to."""
    if request.param == "within":
        return redis_url
    if request.param == "across":
        return str(request.getfixturevalue("other_redis").url)
    return str(request.getfixturevalue("rabbit_url"))


def test_what_was_moved_back_is_run_by_a_real_celery_worker(
    celery_url: str,
    app: Celery,
    redis_url: str,
    redis_client: redis.Redis,
    run_bridge: RunBridge,
    tmp_path: Path,
    other_redis: RedisServer,
) -> None:
    """With arguments, links, times and the rest of its chain; each once."""
    note = app.tasks["side.note"]
    note.delay("plain")
    note.apply_async(("kwargs",), {"n": 1}, queue="high", priority=3)
    note.apply_async(("soon",), countdown=1)
    note.apply_async(("linked",), link=note.s("link"), link_error=note.si("errback"))
    chain(note.s("first"), note.si("second"), note.si("third")).apply_async()
    redis_client.zadd("retry", {_retry_of("again"): time.time() + 1})
    note.apply_async(("much later",), countdown=3600)
    redis_client.lpush("queue:celery", b'{"class":"HardWorker","args":[1],"jid":"ruby"}')

    ledger = run_bridge(celery_url=celery_url, is_reverse=True)

    assert (ledger.count_moved, ledger.left["celery"]) == (7, {backward.NO_TASK: 1})
    assert list(jobs(redis_client)) == ["ruby"]
    assert redis_client.zcard("retry") == redis_client.zcard("schedule") == 0
    expected = ["again", "first", "kwargs", "linked", "linked", "plain", "second", "soon", "third"]
    with _celery_worker(celery_url, other_redis.url, tmp_path / "log"), other_redis.client() as noted:
        found = eventually(lambda: _noted_if(noted, len(expected)), within_seconds=_SECONDS)
    assert sorted(args[0] for args, _ in found) == expected
    assert [kwargs for args, kwargs in found if args[0] == "kwargs"] == [{"n": 1}]


def test_the_last_step_of_a_chain_keeps_its_empty_chain(
    app: Celery, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Celery gives it to the task as `request.chain`, to which the task may append a step."""
    chain(app.tasks["side.note"].s("last")).apply_async()

    run_bridge(is_reverse=True)

    [message] = redis_client.lrange("celery", 0, -1)
    _, _, embedded = json.loads(b64decode(json.loads(message)["body"]))
    assert embedded["chain"] == []


def _retry_of(text: str) -> bytes:
    return json.dumps(
        {
            "class": "side.note",
            "args": [text],
            "jid": "retried",
            "queue": "celery",
            "retry": 3,
            "celery": {"retries": 1},
            "retry_count": 0,
        }
    ).encode()


def _noted_if(client: redis.Redis, count: int) -> list[Any] | None:
    texts = client.lrange("noted", 0, -1)
    return [json.loads(text) for text in texts] if len(texts) >= count else None


def test_a_chord_in_flight_is_finished_by_celery(
    recorded: Recorded, redis_url: str, redis_client: redis.Redis, run_bridge: RunBridge, tmp_path: Path
) -> None:
    """Its parts were left in their queue."""
    recorded.replay(redis_client)

    run_bridge()

    size_key = f"celery-taskset-meta-{_chord_of(redis_client)}.s"
    redis_client.set(size_key, 2)
    with _celery_worker(redis_url, redis_url, tmp_path / "log"):
        found = eventually(lambda: _noted_if(redis_client, 5), within_seconds=_SECONDS)
    assert sorted(str(args[0]) for args, _ in found) == [
        *("['part 1', 'part 2']", "part 1", "part 2", "pickled member", "protocol 1 pickled"),
    ]


def _chord_of(client: redis.Redis) -> str:
    """The group's id of the parts that wait."""
    messages = [json.loads(text) for text in client.lrange("celery", 0, -1)]
    return next(one["headers"]["group"] for one in messages if b'"body"' in b64decode(one["body"]))


def test_there_and_back_again_a_message_is_the_same(
    recorded: Recorded, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """But for what a delivery adds; opened or not."""
    recorded.replay(redis_client)
    before = _by_id(recorded.lists)

    run_bridge()
    run_bridge(is_reverse=True)

    names = [name for name in redis_client.scan_iter() if name in recorded.lists]
    after = _by_id({name: redis_client.lrange(name, 0, -1) for name in names})
    # What was of protocol 1 comes back in protocol 2.
    assert set(after) - set(before) == {recorded.ids["protocol 1"]}
    for task_id, message in before.items():
        again = after[task_id]
        assert _body(again) == _body(message)
        kept = {name: value for name, value in message["headers"].items() if value not in (None, {})}
        assert {name: again["headers"].get(name) for name in kept} == kept
        for name in ("correlation_id", "reply_to", "priority"):
            assert again["properties"][name] == message["properties"][name]


def _body(message: dict[str, Any]) -> Any:
    """As written where it was not opened; JSON may be spelled otherwise."""
    is_open = message["content-type"] == "application/json" and not message["headers"].get("compression")
    return repr(json.loads(b64decode(message["body"]))) if is_open else message["body"]


def _by_id(lists: dict[bytes, list[bytes]]) -> dict[str, Any]:
    """Messages of protocol 2."""
    found = [json.loads(text) for texts in lists.values() for text in texts]
    return {one["headers"]["id"]: one for one in found if "id" in one["headers"]}


def test_what_only_sidekiq_celery_can_finish_stays(
    app: Celery, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Parts of its chords, its own tasks, what it wrote in another serializer, and chains that were overwritten."""
    note = app.tasks["side.note"]
    for begin in ("overwritten", "circle"):
        chain(note.s(1).set(task_id=begin), note.s(2).set(task_id="step"), app=app).apply_async()
    redis_client.hset("sidekiq_py:flow:overwritten", "step", b"foreign")
    redis_client.hset("sidekiq_py:flow:circle", "step", b'{"s":{"task":"a"},"n":{"id":"circle","next":"step"}}')
    chord([note.s("a"), note.s("b")], note.s("body"), app=app).apply_async()
    note.apply_async(("yaml",), serializer="yaml")
    app.send_task("celery.chord_start", ([1], {}))
    redis_client.lpush("queue:celery", b"rubbish", b'{"class":"side.note","args":[1],"jid":"j","celery":7}')

    ledger = run_bridge(is_reverse=True)

    assert ledger.count_moved == 0
    assert ledger.left["celery"] == {backward.OURS: 5, backward.SEALED: 1, backward.NO_TASK: 2}
    assert redis_client.llen("queue:celery") == 8


def test_a_job_that_no_message_can_hold_stays_and_holds_up_no_other(
    app: Celery, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Sidekiq takes integers of any length; Python's json writes and reads those of 4,300 digits at most."""
    number = b"7" * 5000
    app.tasks["side.note"].delay("plain")
    redis_client.rpush(
        "queue:celery",
        b'{"class":"side.note","jid":"a","args":[' + number + b"]}",
        b'{"class":"side.note","jid":"b","args":[],"celery":' + number + b"}",
    )
    redis_client.zadd("schedule", {b'{"class":"side.note","jid":"c","args":[],"queue":' + number + b"}": 2**33})

    ledger = run_bridge(is_reverse=True)

    assert (ledger.count_moved, redis_client.llen("celery")) == (1, 1)
    assert ledger.left["celery"] == {backward.UNSENDABLE: 1, backward.NO_TASK: 1}
    assert (redis_client.llen("queue:celery"), redis_client.zcard("schedule")) == (2, 1)


def test_a_job_that_amqp_cannot_hold_stays_and_holds_up_no_other(
    app: Celery, rabbit_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """RabbitMQ would close the connection each time, and the bridge has claimed it by then."""
    unfit = [
        {"priority": 300},
        {"retries": 2**70},
        {"reply_to": "x" * 300},
        {"headers": {"CC": "another"}},
        {"argsrepr": "x" * 200_000},
        {"properties": {"correlation_id": 5}, "headers": {"x": {"y" * 300: 1}}},
    ]
    jobs_there = [{"class": "side.note", "jid": str(at), "args": [1], "celery": one} for at, one in enumerate(unfit)]
    # Names of the publisher's own arguments, and what only the original sender may name.
    properties = {"headers": 1, "delivery_mode": 1, "user_id": "another", "expiration": "3600000"}
    jobs_there.append({"class": "side.note", "jid": "fit", "args": [1], "celery": {"properties": properties}})
    redis_client.lpush("queue:celery", *(json.dumps(one) for one in jobs_there))

    ledger = run_bridge(celery_url=rabbit_url, is_reverse=True)

    assert ledger.moved["celery"] == {"moved": 1}
    assert ledger.left["celery"] == {publishing_module.UNSENDABLE: len(unfit)}
    assert redis_client.llen("queue:celery") == len(unfit)
    with kombu.Connection(rabbit_url) as connection:
        message = connection.channel().basic_get("celery")
        assert (message.headers["id"], message.properties["expiration"]) == ("fit", "3600000")


def test_a_full_queue_is_waited_for(
    app: Celery, rabbit_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """RabbitMQ then refuses what is published."""
    with kombu.Connection(rabbit_url) as connection:
        channel = connection.channel()
        channel.queue_delete("celery")
        limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
        kombu.Queue("celery", queue_arguments=limits)(channel).declare()
        for number in range(3):
            app.tasks["side.note"].delay(number)
        with pytest.raises(ConnectionError, match="which may be full"):
            run_bridge(celery_url=rabbit_url, is_reverse=True)

        bridge = Bridge(app, BridgePlan(queues=["celery"], celery_url=rabbit_url, is_reverse=True))
        thread = Thread(target=bridge.run)
        thread.start()
        read: list[str] = []
        try:
            eventually(lambda: _read_one(channel, read) and len(read) == 3, within_seconds=_SECONDS)
        finally:
            bridge.stop()
            thread.join(_SECONDS)

    assert len(set(read)) == 3


def test_a_full_queue_holds_up_no_other(
    app: Celery, full_queue: str, redis_client: redis.Redis, run_bridge: RunBridge, caplog: pytest.LogCaptureFixture
) -> None:
    """Its messages wait in Redis, whether they are due or not; there is one warning."""
    note = app.tasks["side.note"]
    for queue in ("celery", "high"):
        for number in range(2):
            note.apply_async((number,), queue=queue)
            note.apply_async((number,), queue=queue, countdown=3600)

    with pytest.raises(ConnectionError, match="'celery', which may be full"):
        run_bridge(celery_url=full_queue, is_reverse=True)

    with kombu.Connection(full_queue) as connection:
        assert connection.channel().queue_declare("high", passive=True).message_count == 4
    assert redis_client.llen("queue:high") == 0
    claimed = redis_client.hlen(f"{CLAIMED}backward")
    assert redis_client.llen("queue:celery") + redis_client.zcard("schedule") + claimed == 4
    assert sum("refuses messages" in record.message for record in caplog.records) == 1


def test_little_of_a_full_queue_is_read(
    app: Celery, full_queue: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """It may have a million messages, which would hold up the other queues, too."""
    app.tasks["side.note"].delay(1)
    redis_client.lpush("queue:celery", *(redis_client.lrange("queue:celery", 0, -1) * 5000))
    redis_client.config_resetstat()

    with pytest.raises(ConnectionError, match="may be full"):
        run_bridge(celery_url=full_queue, is_reverse=True)

    assert redis_client.hlen(f"{CLAIMED}backward") <= WINDOW_MESSAGES
    assert redis_client.info("commandstats")["cmdstat_lindex"]["calls"] < 2500


@pytest.fixture
def full_queue(rabbit_url: str) -> str:
    """A RabbitMQ whose queue `celery` takes no more messages."""
    with kombu.Connection(rabbit_url) as connection:
        channel = connection.channel()
        channel.queue_delete("celery")
        kombu.Queue("celery", queue_arguments={"x-max-length": 0, "x-overflow": "reject-publish"})(channel).declare()
    return rabbit_url


@pytest.mark.usefixtures("rabbit")  # Which says how to install it.
def test_the_log_says_that_the_broker_takes_no_messages(app: Celery, redis_url: str, redis_client: redis.Redis) -> None:
    """A RabbitMQ that is short of memory confirms nothing, for as long as that lasts."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
    command = [
        sys.executable,
        "-m",
        "sidekiq_celery",
        "bridge",
        "--reverse",
        "--from",
        redis_url,
        "-Q",
        "celery",
        "--to",
    ]
    app.tasks["side.note"].delay(1)
    with (
        RabbitServer("vm_memory_high_watermark.absolute = 1MB") as full,
        subprocess.Popen([*command, full.url()], env=environment, stderr=subprocess.PIPE, text=True) as bridge,
    ):
        try:
            assert bridge.stderr is not None
            line = bridge.stderr.readline()
        finally:
            bridge.kill()

    assert "takes no messages from anyone" in line
    assert redis_client.hlen(f"{CLAIMED}backward") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_bridge_that_waits_for_a_confirmation(
    app: Celery,
    rabbit: RabbitServer,
    rabbit_url: str,
    redis_url: str,
    redis_client: redis.Redis,
    number: signal.Signals,
) -> None:
    """RabbitMQ confirms nothing while it is short of memory; here it stands still."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
    command = [sys.executable, "-m", "sidekiq_celery", "bridge", "--reverse", "--from", redis_url, "--to", rabbit_url]
    send = app.tasks["side.note"].delay
    node = rabbit._processes[-1]
    with subprocess.Popen([*command, "-Q", "celery"], env=environment) as bridge:
        try:
            send(1)
            eventually(lambda: not redis_client.exists("queue:celery", f"{CLAIMED}backward"), within_seconds=_SECONDS)
            node.send_signal(signal.SIGSTOP)
            send(2)
            eventually(lambda: redis_client.exists(f"{CLAIMED}backward"), within_seconds=_SECONDS)
            bridge.send_signal(number)
            eventually(lambda: not _is_caught(bridge.pid, number), within_seconds=_SECONDS)
            bridge.send_signal(number)
            bridge.wait(_SECONDS)
        finally:
            node.send_signal(signal.SIGCONT)
            bridge.kill()

    assert bridge.returncode == -number


def _is_caught(pid: int, number: signal.Signals) -> bool:
    """True if the process has a handler for the signal."""
    [caught] = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> number - 1 & 1)


def _read_one(channel: Any, read: list[str]) -> bool:
    message = channel.basic_get("celery", no_ack=True)
    if message is not None:
        read.append(message.headers["id"])
    return True


def test_numbers_that_a_workflow_hands_on_go_bare(
    app: Celery, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """Celery's json has them, and no type by the name of our mark."""
    marked = {"__type__": "float", "__value__": "inf"}
    redis_client.lpush("queue:celery", json.dumps({"class": "side.note", "args": [[marked]], "jid": "j"}))

    assert run_bridge(is_reverse=True).count_moved == 1
    [message] = [json.loads(text) for text in redis_client.lrange("celery", 0, -1)]
    assert json.loads(b64decode(message["body"]))[0] == [[float("inf")]]


def test_jobs_of_other_queues_stay_in_the_sets(app: Celery, redis_client: redis.Redis, run_bridge: RunBridge) -> None:
    """However many there are."""
    note = app.tasks["side.note"]
    for number in range(3):
        note.apply_async((number,), countdown=1000 + number, queue="other" if number != 1 else "celery")
    redis_client.zadd("schedule", {b"rubbish": 1})

    ledger = run_bridge(is_reverse=True)

    assert (ledger.count_moved, redis_client.zcard("schedule")) == (1, 3)
    [message] = [json.loads(text) for text in redis_client.lrange("celery", 0, -1)]
    assert message["headers"]["eta"].endswith("+00:00")


def waiting(redis_client: redis.Redis) -> list[Found]:
    """The jobs in the queue, as a bridge finds them."""
    texts = redis_client.lrange("queue:celery", 0, -1)
    return [Found("celery", text, ("LREM", "queue:celery", text)) for text in texts]


def test_what_a_dead_bridge_had_claimed_is_published_when_it_is_known_to_be_dead(
    app: Celery, rabbit_url: str, redis_url: str, redis_client: redis.Redis, run_bridge: RunBridge
) -> None:
    """RabbitMQ keeps no task headers, so a living bridge's claims are its own."""
    source = Side(Pool(RedisSettings(redis_url)), "")
    claims, others = Claims("backward", source), Claims("backward", source)
    app.tasks["side.note"].delay("a")
    found = waiting(redis_client)
    claims.stay_alive(again=False)
    [claim] = claims.make([(one, Moved("moved", "a", (), "celery")) for one in found])

    assert others.orphans(others.ids()) == []
    redis_client.delete(*redis_client.scan_iter("sidekiq_py:bridge:alive:*"))
    assert others.orphans(others.ids()) == [claim.claim_id]
    assert not claims.stay_alive(again=True)
    ledger = run_bridge(celery_url=rabbit_url, is_reverse=True)

    assert ledger.moved["celery"] == {"moved": 1}
    assert others.ids() == []


def test_what_a_dead_bridge_had_claimed_is_published_by_one_of_those_that_find_it(
    app: Celery, rabbit_url: str, redis_url: str, redis_client: redis.Redis
) -> None:
    """Each of them may have read all its claims before another begins."""
    source = Side(Pool(RedisSettings(redis_url)), "")
    for number in range(3):
        app.tasks["side.note"].delay(number)
    judge = backward.Backward(app, {}, CeleryLayout()).judge
    found = waiting(redis_client)
    orphans = Claims("backward", source).make([(one, judge(one)) for one in found])  # type: ignore[misc]
    ledgers = Ledger(), Ledger()

    for ledger in ledgers:
        publishing = Publishing(app, lambda: kombu.Connection(rabbit_url), Claims("backward", source))
        publishing.finish(lambda: orphans, ledger)
        publishing.close()

    assert [ledger.count_moved for ledger in ledgers] == [3, 0]
    assert Claims("backward", source).ids() == []


@pytest.mark.parametrize("is_owner_first", [True, False])
def test_claims_of_a_bridge_that_stood_still_have_one_owner(
    app: Celery, redis_url: str, redis_client: redis.Redis, is_owner_first: bool
) -> None:
    """Another bridge found them before this one went on with them."""
    source = Side(Pool(RedisSettings(redis_url)), "")
    owner, other = Claims("backward", source), Claims("backward", source)
    app.tasks["side.note"].delay("a")
    found = waiting(redis_client)
    made = owner.make([(one, Moved("moved", "a", (), "celery")) for one in found])

    adopted = [claims.adopt(made) for claims in ((owner, other) if is_owner_first else (other, owner))]

    assert list(map(len, adopted)) == [1, 0]
    assert other.ids() == [adopted[0][0].claim_id]


def test_a_bridge_that_stood_still_publishes_nothing_more(
    app: Celery, redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have begun with what it had claimed."""
    claims = Claims("backward", Side(Pool(RedisSettings(redis_url)), ""))
    publishing = Publishing(app, lambda: None, claims)
    moved = Moved("moved", "a", (), "celery")

    def claim_and_stand_still() -> list[Claim]:
        redis_client.delete(*redis_client.scan_iter("sidekiq_py:bridge:alive:*"))
        monkeypatch.setattr(publishing_module, "monotonic", lambda: time.monotonic() + 60)
        return [Claim("x:1:a", Found("celery", b""), moved)]

    with pytest.raises(TooLateError):
        publishing._publish_all(claim_and_stand_still, Ledger())
