"""`Client.push` and `perform_async`: what goes in, what is refused, what middleware may do."""

import json
import logging
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.client import outgoing
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError, ConfigError, PayloadError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.client.conftest import Pushed

pytestmark = pytest.mark.usefixtures("configured")


def test_a_pushed_job_stands_in_its_queue_and_the_queue_is_known(pushed: Pushed) -> None:
    """SADD and LPUSH, as any Sidekiq does."""
    jid = sidekiq.Client().push({"class": "HardWorker", "args": ["bob", 5], "queue": "critical"})

    [raw] = pushed.queue("critical")
    assert json.loads(raw)["jid"] == jid
    assert pushed.queues() == {b"critical"}


def test_the_first_job_pushed_runs_first(pushed: Pushed) -> None:
    """Jobs enter at the head and leave at the tail."""
    jids = [sidekiq.Client().push({"class": "A", "args": [n]}) for n in range(3)]

    assert [json.loads(raw)["jid"] for raw in pushed.queue()] == jids


def test_milliseconds_are_written_for_sidekiq_8(redis_url: str, pushed: Pushed) -> None:
    """Type decides there: an integer is milliseconds."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8")

    sidekiq.ruby_job("A").perform_async()

    [raw] = pushed.queue()
    assert type(json.loads(raw)["created_at"]) is int


def test_an_aware_datetime_is_a_moment(pushed: Pushed) -> None:
    """Its epoch seconds are the score."""
    when = datetime(2100, 1, 1, tzinfo=UTC)

    sidekiq.Client().push({"class": "A", "args": [], "at": when})
    sidekiq.ruby_job("A").perform_at(when)

    assert [score for _, score in pushed.schedule()] == [when.timestamp()] * 2


def test_a_datetime_of_the_last_century_is_past_and_no_interval(pushed: Pushed) -> None:
    """Its epoch seconds are below a thousand million, which Ruby would take for an interval."""
    sidekiq.ruby_job("A").perform_at(datetime(1999, 1, 1, tzinfo=UTC))

    assert (len(pushed.queue()), pushed.schedule()) == (1, [])


def test_a_naive_datetime_is_refused() -> None:
    """Nobody knows which moment it means."""
    with pytest.raises(PayloadError, match="no time zone"):
        sidekiq.ruby_job("A").perform_at(datetime(2100, 1, 1))


def test_a_timedelta_is_an_interval(pushed: Pushed) -> None:
    """As are seconds."""
    before = datetime.now(UTC).timestamp()

    sidekiq.ruby_job("A").perform_in(timedelta(minutes=5))

    [(_, score)] = pushed.schedule()
    assert before + 300 <= score <= datetime.now(UTC).timestamp() + 300


@pytest.mark.parametrize("wait", ["5", None, True])
def test_what_is_no_interval_is_refused(wait: Any) -> None:
    """Neither text nor a truth value."""
    with pytest.raises(PayloadError, match="seconds or a timedelta"):
        sidekiq.ruby_job("A").perform_in(wait)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"args": []}, "no 'class'"),
        ({"class": "A"}, "no 'args'"),
        ({"class": "A", "args": "x"}, "give a list"),
        ({"class": int, "args": []}, "give the name"),
        ({"class": "A", "args": [], "queue": ""}, "queue"),
        ({"class": "A", "args": [], "at": "tomorrow"}, "at is"),
        ({"class": "A", "args": [], "tags": "x"}, "list of strings"),
        ({":class": "A", "args": []}, "Ruby symbol"),
        ({b"class": "A", "args": []}, "keys must be strings"),
        (["A", []], "a dict"),
    ],
)
def test_an_unusable_item_is_refused_with_what_to_do(item: Any, said: str, pushed: Pushed) -> None:
    """Nothing of it reaches Redis."""
    with pytest.raises(PayloadError, match=said):
        sidekiq.Client().push(item)

    assert pushed.queue() == []


NO_MOMENTS = [float("nan"), float("inf"), -float("inf"), 10**400, -(10**400), 10**5000]


@pytest.mark.parametrize("at", NO_MOMENTS, ids=lambda at: f"{float(at)}" if isinstance(at, float) else "long")
def test_a_moment_that_redis_cannot_keep_is_refused(at: Any, pushed: Pushed) -> None:
    """A sorted set has floats for scores; no way of a push leaves a job that no poller could move."""
    job = sidekiq.ruby_job("A")
    client = sidekiq.Client()
    ways: list[Callable[[], Any]] = [
        lambda: client.push({"class": "A", "args": [], "at": at}),
        lambda: client.push_bulk({"class": "A", "args": [[1]], "at": at}),
        lambda: client.push_bulk({"class": "A", "args": [[1]], "at": [at]}),
        lambda: client.push_bulk({"class": "A", "args": [[1]], "spread_interval": at}),
        lambda: job.perform_in(at),
        lambda: job.perform_at(at),
        lambda: job.set(at=at).perform_async(),
        lambda: job.set(wait=at).perform_async(),
        lambda: job.set(wait_until=at).perform_async(),
        lambda: job.perform_bulk([[1]], at=at),
    ]

    for push in ways:
        with pytest.raises(PayloadError, match=r"give (epoch )?seconds"):
            push()

    assert (pushed.queue(), pushed.schedule()) == ([], [])


class Colour(Enum):
    """For arguments that are no JSON."""

    RED = "red"


@pytest.mark.parametrize("value", [(1, 2), {1}, datetime(2020, 1, 1, tzinfo=UTC), Colour.RED, b"x", {1: 2}])
def test_an_argument_that_is_no_json_is_refused_by_its_place(value: Any) -> None:
    """Both ways of a push say which argument it is."""
    with pytest.raises(ArgumentTypeError, match=r"args\[1\]"):
        sidekiq.ruby_job("A").perform_async(1, value)
    with pytest.raises(ArgumentTypeError, match=r"args\[1\]"):
        sidekiq.Client().push({"class": "A", "args": [1, value]})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_a_value_that_json_cannot_carry_is_refused_in_every_mode(value: Any) -> None:
    """Also where types are let through."""
    for mode in ("raise", "warn", "off"):
        sidekiq.configure(strict_args=mode)
        with pytest.raises(ArgumentValueError, match=r"args\[0\]"):
            sidekiq.ruby_job("A").perform_async(value)


def test_without_the_strict_check_arguments_become_what_ruby_would_write(pushed: Pushed) -> None:
    """Text for what JSON lacks, lists for other sequences."""
    sidekiq.configure(strict_args=False)

    sidekiq.ruby_job("A").perform_async((1, 2), {1: True, None: 3})

    [raw] = pushed.queue()
    assert json.loads(raw)["args"] == [[1, 2], {"1": True, "": 3}]


def test_the_mode_warn_warns_and_pushes(pushed: Pushed, caplog: pytest.LogCaptureFixture) -> None:
    """As Sidekiq 6.4 does by itself."""
    sidekiq.configure(strict_args="warn")

    with caplog.at_level(logging.WARNING, logger="sidekiq"):
        sidekiq.ruby_job("A").perform_async((1,))

    assert "not native JSON" in caplog.text
    assert len(pushed.queue()) == 1


def test_a_jid_and_a_created_at_that_are_given_are_kept(pushed: Pushed) -> None:
    """A caller may know the jid before."""
    jid = sidekiq.Client().push({"class": "A", "args": [], "jid": "mine", "created_at": 5.5})

    [raw] = pushed.queue()
    assert (jid, json.loads(raw)["created_at"]) == ("mine", 5.5)


def test_middleware_sees_the_declared_job_or_the_name(pushed: Pushed) -> None:
    """A name is all there is of a job that is not declared here."""
    seen: list[Any] = []

    def look(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        seen.append((job, queue))
        return call_next()

    sidekiq.client_middleware.add(look)
    declared = sidekiq.job(name="A", queue="q")(lambda: None)

    declared.perform_async()
    sidekiq.Client().push({"class": "B", "args": []})
    sidekiq.Client().push({"class": declared, "args": []})

    assert seen == [(declared, "q"), ("B", "default"), (declared, "q")]


def test_middleware_that_does_not_go_on_stops_the_push(pushed: Pushed) -> None:
    """None is returned instead of a jid."""
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: None)

    assert sidekiq.ruby_job("A").perform_async() is None
    assert pushed.queue() == []


def test_middleware_that_forgets_to_return_is_named_once_in_the_log(
    pushed: Pushed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops every push, as in Ruby; one that stops a push on purpose does not go on."""
    monkeypatch.setattr(outgoing, "_has_warned", False)
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: None)
    sidekiq.ruby_job("A").perform_async()
    sidekiq.client_middleware.clear()
    assert caplog.messages == []

    @sidekiq.client_middleware.add
    def forgetful(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        call_next()

    assert [sidekiq.ruby_job("A").perform_async() for _ in range(2)] == [None, None]

    [message] = caplog.messages
    assert message.startswith("A client middleware called call_next() and then returned None, so A was not enqueued.")
    assert pushed.queue() == []


def test_middleware_may_change_queue_and_arguments(pushed: Pushed) -> None:
    """The payload is live."""

    def reroute(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        payload["queue"], payload["args"] = "slow", [1, 2]
        return call_next()

    sidekiq.client_middleware.add(reroute)

    sidekiq.ruby_job("A").perform_async()

    assert json.loads(pushed.queue("slow")[0])["args"] == [1, 2]
    assert pushed.queues() == {b"slow"}


def test_middleware_makes_arguments_json_before_they_are_checked(pushed: Pushed) -> None:
    """As since Sidekiq 6.4.2."""
    sidekiq.client_middleware.add(
        lambda job, payload, queue, call_next: payload.update(args=[str(payload["args"][0])]) or call_next()
    )

    sidekiq.ruby_job("A").perform_async(Colour)

    assert len(pushed.queue()) == 1


def test_an_async_middleware_in_the_client_chain_is_refused(pushed: Pushed) -> None:
    """Its coroutine would count as a yes."""

    async def unfit(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        return call_next()

    sidekiq.client_middleware.add(unfit)

    with pytest.raises(ConfigError, match="plain function"):
        sidekiq.ruby_job("A").perform_async()
    assert pushed.queue() == []


@pytest.mark.parametrize("name", ["jid", "class"])
def test_middleware_cannot_remove_what_every_job_needs(pushed: Pushed, name: str) -> None:
    """Ruby would push a job that nobody can find, or no worker can run."""
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: payload.pop(name) and call_next())

    with pytest.raises(PayloadError, match=f"a client middleware removed the job's {name}"):
        sidekiq.ruby_job("A").perform_async()
    with pytest.raises(PayloadError, match=f"a client middleware removed the job's {name}"):
        sidekiq.ruby_job("A").perform_bulk([[]])
    assert pushed.queue() == []


def test_middleware_may_take_back_a_schedule(pushed: Pushed) -> None:
    """Without `at` the job goes to its queue."""
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: payload.pop("at", None) is None or call_next())
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: call_next())

    sidekiq.ruby_job("A").perform_in(60)

    assert (len(pushed.queue()), pushed.schedule()) == (1, [])


def test_a_client_may_have_a_chain_of_its_own(pushed: Pushed) -> None:
    """The program's is left alone."""
    client = sidekiq.Client()
    client.middleware = sidekiq.client_middleware.copy()
    client.middleware.add(lambda job, payload, queue, call_next: None)

    assert client.push({"class": "A", "args": []}) is None
    assert sidekiq.Client().push({"class": "A", "args": []}) is not None


def test_options_for_every_job_stand_below_the_job_s_own(pushed: Pushed) -> None:
    """Ruby's `default_job_options`."""
    sidekiq.configure(default_job_options={"retry": 3, "backtrace": True})

    sidekiq.ruby_job("A", retry=False).perform_async()

    [raw] = pushed.queue()
    assert list(json.loads(raw).items())[:3] == [("retry", False), ("queue", "default"), ("backtrace", True)]


def test_changed_default_options_hold_at_the_next_push(pushed: Pushed) -> None:
    """What was made ready for the last push is made anew."""
    job = sidekiq.ruby_job("A")
    job.perform_async()

    sidekiq.configure(default_job_options={"queue": "other"})
    job.perform_async()

    assert (len(pushed.queue()), len(pushed.queue("other"))) == (1, 1)


def other_database(redis_url: str) -> str:
    """Another shard on the same server."""
    return redis_url.removesuffix("/0") + "/1"


def test_a_block_of_via_pushes_to_another_shard(redis_url: str, pushed: Pushed) -> None:
    """And after the block to the program's own again."""
    job = sidekiq.ruby_job("A")

    with sidekiq.Client.via(Pool(RedisSettings(other_database(redis_url)))):
        job.perform_async()
        assert pushed.queue() == []
    job.perform_async()

    assert len(pushed.queue()) == 1


def test_a_block_of_via_without_a_redis_is_an_error(pushed: Pushed) -> None:
    """As in Ruby: a shard that was not found would be the program's own Redis, and its workers would run the job."""
    with pytest.raises(ConfigError, match="not None"), sidekiq.Client.via(None):
        sidekiq.ruby_job("A").perform_async()

    assert pushed.queue() == []


def test_a_job_may_belong_to_a_shard(redis_url: str, pushed: Pushed) -> None:
    """`pool` is no part of its payload; via and set come before it."""
    shard = redis.Redis.from_url(other_database(redis_url))
    job = sidekiq.job(name="A", pool=shard)(lambda: None)

    job.perform_async()
    job.set(pool=redis_url).perform_async()
    with sidekiq.Client.via(redis_url):
        job.perform_async()

    [raw] = shard.lrange("queue:default", 0, -1)
    assert b"pool" not in raw
    assert len(pushed.queue()) == 2
    shard.close()


@pytest.mark.parametrize("decode", [True, False])
def test_a_pool_of_redis_py_is_taken_over(redis_url: str, pushed: Pushed, decode: bool) -> None:
    """Its address and credentials; how replies are read is ours."""
    pool = redis.ConnectionPool.from_url(redis_url, decode_responses=decode)

    sidekiq.Client(pool=pool).push({"class": "A", "args": []})

    assert len(pushed.queue()) == 1
    pool.disconnect()


def test_what_is_no_pool_is_refused() -> None:
    """The message says what is one."""
    with pytest.raises(ConfigError, match="ConnectionPool"):
        sidekiq.Client(pool=object())


def test_a_client_is_told_where_redis_is_once(redis_url: str) -> None:
    """Two places would be a riddle."""
    with pytest.raises(ConfigError, match="give one of them"):
        sidekiq.Client(redis_url, pool=redis_url)


def test_repush_gives_the_bytes_and_sends_nothing(pushed: Pushed) -> None:
    """A mover swaps them in by itself; keys keep their order but for retry and queue, which come first."""
    stored = {"class": "A", "args": [1], "jid": "j", "queue": "low", "retry": 3, "created_at": 1.5, "x": 1}

    made = sidekiq.Client().repush(stored)

    assert made is not None
    assert (made.queue, list(json.loads(made.payload))) == (
        "low",
        ["retry", "queue", "class", "args", "jid", "created_at", "x", "enqueued_at"],
    )
    assert pushed.queue("low") == []


def test_repush_waits_where_a_middleware_says_so() -> None:
    """As Ruby's client decides by `at`, whoever set it; a moment that is past is no reason to wait."""
    moment = time.time() + 60

    def put_off(_job: object, payload: dict[str, Any], _queue: str, call_next: Callable[[], Any]) -> Any:
        payload["at"] = moments[payload["jid"]]
        return call_next()

    moments = {"late": moment, "due": 1.5, "never": math.inf}
    sidekiq.client_middleware.add(put_off)

    late, due, never = (sidekiq.Client().repush({"class": "A", "args": [], "jid": jid}) for jid in moments)

    assert late is not None
    assert late.score == str(moment)
    assert b'"at":' not in late.payload
    assert b"enqueued_at" not in late.payload
    for made in (due, never):
        assert made is not None
        assert made.score is None
        assert b'"enqueued_at":' in made.payload


def test_repush_goes_through_the_client_chain() -> None:
    """As Ruby's poller pushes; stopped means None."""
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: None)

    assert sidekiq.Client().repush({"class": "A", "args": [], "jid": "j"}) is None
