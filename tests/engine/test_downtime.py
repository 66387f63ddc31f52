"""How long Redis was away, told once."""

import logging
from collections.abc import Callable
from functools import partial

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.errors import RedisConnectionError, RedisReplyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.outcome import Attempt, Outcome
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
from tests.support.in_flight import jobs_in_flight
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


def online_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of outages that are over."""
    return [record.getMessage() for record in caplog.records if "Redis is online" in record.getMessage()]


def test_a_worker_tells_of_one_outage_in_one_line(
    new_redis_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """Two capsules and the heartbeat have noticed it, each in its own time."""
    caplog.set_level(logging.INFO, "sidekiq")
    server = new_redis_server()
    registry = Registry()
    registry.add(FunctionDefinition("run", {}, print, print))
    capsules = (
        CapsuleConfig("one", 1, (QueueConfig("one"),)),
        CapsuleConfig("two", 1, (QueueConfig("two"),)),
    )
    config = Config(redis=RedisSettings(server.url), sidekiq_version="7.3.2", capsules=capsules, embedded=True)
    client = Client(server.url, sidekiq_version="7.3.2")
    beats: list[None] = []
    hooks = Hooks()
    hooks.on("beat")(lambda: beats.append(None))
    launcher = Launcher(WorkerParts(config, registry=registry, hooks=hooks, server_middleware=Chain(), client=client))
    launcher.start()
    try:
        eventually(lambda: beats)

        server.stop()
        launcher.parts.heartbeat.beat_soon()
        eventually(lambda: "heartbeat: RedisConnectionError" in caplog.text)
        server.start()
        beats.clear()
        launcher.parts.heartbeat.beat_soon()
        eventually(lambda: beats)
        eventually(lambda: online_lines(caplog))
    finally:
        launcher.stop(timeout_seconds=1)
        client.close()

    assert len(online_lines(caplog)) == 1


def test_a_worker_tells_once_that_ends_of_jobs_are_refused(
    redis_url: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """However many there are in its two capsules, and although others are accepted in between."""
    registry = Registry()
    for name, effect in {"refused": ("RPUSH", "words", "word"), "accepted": ("HINCRBY", "ended", "n", 1)}.items():
        definition = FunctionDefinition(name, {}, lambda _: None, print)
        definition.decide_outcome = partial(ended_with, effect)  # type: ignore[method-assign]
        registry.add(definition)
    redis_client.set("words", "no list")
    capsules = tuple(CapsuleConfig(name, 1, (QueueConfig(name),)) for name in ("one", "two"))
    config = Config(redis=RedisSettings(redis_url), sidekiq_version="7.3.2", capsules=capsules, embedded=True)
    client = Client(redis_url, sidekiq_version="7.3.2")
    for queue in ("one", "two"):
        for name in ("refused", "accepted") * 5:
            client.push({"class": name, "args": [1], "queue": queue})
    launcher = Launcher(WorkerParts(config, registry=registry, hooks=Hooks(), server_middleware=Chain(), client=client))
    launcher.start()
    try:
        eventually(lambda: redis_client.hget("ended", "n") == b"10")
        eventually(lambda: len(jobs_in_flight(redis_client)) == 10)
        redis_client.delete("words")
        eventually(lambda: redis_client.llen("words") == 10)
    finally:
        launcher.stop(timeout_seconds=1)
        client.close()

    assert caplog.text.count("finished jobs stay in flight") == 1


def test_a_right_that_another_part_lacks_is_told_although_one_is_missing_already() -> None:
    """A worker that may not send heartbeats says so, and that is no word about queues that it may not read, either."""
    time = [0.0]
    downtime = Downtime(monotonic=lambda: time[0])
    refusal = RedisReplyError("NOPERM this user has no permissions")

    assert downtime.failed(refusal, "heartbeat")
    assert downtime.failed(refusal, "default: fetching")
    assert not downtime.failed(refusal, "default: fetching"), "it is the same one"
    downtime.works("default: fetching")
    assert not downtime.failed(refusal, "default: fetching"), "it comes and goes"
    assert not downtime.failed(RedisConnectionError("gone"), "default: fetching"), "that concerns all parts alike"
    downtime.works("default: fetching")
    time[0] = 100.0
    assert downtime.failed(refusal, "default: fetching")


def test_a_series_of_refusals_lasts_while_an_end_is_refused(
    redis_url: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a worker whose jobs end minutes apart would log each."""
    caplog.set_level(logging.DEBUG, "sidekiq")
    redis_client.set("words", "no list")
    time = [0.0]
    pool = Pool(RedisSettings(redis_url))
    settler = Settler(
        pool.new_link(),
        on_pending=lambda: None,
        on_lost_connection=lambda: None,
        count=lambda jobs: None,
        downtime=Downtime(monotonic=lambda: time[0]),
    )
    units = [UnitOfWork(b"{}", "default", None, field, is_marked=False, fetched_at=0.0) for field in (b"1", b"2")]
    try:
        settler.settle(units[0], [("RPUSH", "words", "word")], ())
        for tries in (1, 2):
            eventually(lambda tries=tries: caplog.text.count("still refused") >= tries)
            time[0] += 40
        settler.settle(units[1], [("RPUSH", "words", "word")], ())
        redis_client.delete("words")
        eventually(lambda: redis_client.llen("words") == 2)
    finally:
        settler.give_up()
        settler.close()
        pool.close()

    assert caplog.text.count("finished jobs stay in flight") == 1


def ended_with(effect: tuple[str | int, ...], attempt: Attempt) -> Outcome:
    """The job is done, and its end writes this."""
    return Outcome("done", attempt.payload, vital=(effect,))


def test_a_series_of_refusals_ends_after_a_minute_without_one() -> None:
    """Each kind for itself."""
    time = [0.0]
    downtime = Downtime(monotonic=lambda: time[0])
    told = []
    for now, refusal in ((0, "OOM"), (50, "OOM"), (100, "OOM"), (101, "NOPERM"), (161, "OOM")):
        time[0] = now
        told.append(downtime.refused(refusal))

    assert told == [True, False, False, True, True]


def test_it_counts_from_the_first_failure_to_the_first_success(caplog: pytest.LogCaptureFixture) -> None:
    """Of whatever part; later failures of the same outage are not to be reported again."""
    caplog.set_level(logging.INFO, "sidekiq")
    seconds = iter([100.0, 101.0, 102.5])
    downtime = Downtime(monotonic=lambda: next(seconds))

    assert downtime.failed(RedisConnectionError("away"), "one: fetching")
    assert not downtime.failed(RedisConnectionError("away"), "heartbeat")
    downtime.works("two: fetching")
    downtime.works("heartbeat")

    assert online_lines(caplog) == ["Redis is online, 2.5 sec downtime"]


def test_what_redis_refuses_is_over_when_that_very_work_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    """A heartbeat may go through while fetches are refused, and says nothing about them."""
    caplog.set_level(logging.INFO, "sidekiq")
    downtime = Downtime(monotonic=lambda: 0.0)

    downtime.failed(RedisReplyError("READONLY replica"), "one: fetching")
    downtime.works("heartbeat")
    assert online_lines(caplog) == []

    downtime.works("one: fetching")
    assert online_lines(caplog) == ["Redis is online, 0.0 sec downtime"]


class Outages:
    """A process's outages, at times that the test names."""

    def __init__(self) -> None:
        self.now = 0.0
        self.downtime = Downtime(monotonic=lambda: self.now)

    def is_reported(self, at: float) -> bool:
        """Whether a failure at this time is the one to report."""
        self.now = at
        return self.downtime.failed(RedisConnectionError("max number of clients reached"), "one: fetching")

    def is_logged(self, at: float, caplog: pytest.LogCaptureFixture) -> bool:
        """Whether the log has a line when work succeeds at this time."""
        self.now = at
        caplog.clear()
        self.downtime.works("two: fetching")
        return bool(online_lines(caplog))


def test_outages_that_follow_each_other_at_once_are_reported_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """As while Redis has as many clients as it may have: each would otherwise write two lines."""
    caplog.set_level(logging.INFO, "sidekiq")
    outages = Outages()
    reports = []
    for half_seconds in range(240):
        if outages.is_reported(at=half_seconds / 2):
            reports.append(half_seconds / 2)
        assert outages.is_logged(half_seconds / 2 + 0.1, caplog) == (half_seconds / 2 in reports)

    assert reports == [0.0, 60.0]


def test_one_that_lasts_is_reported_although_another_has_just_been(caplog: pytest.LogCaptureFixture) -> None:
    """When a server restarts and then goes away for good."""
    caplog.set_level(logging.INFO, "sidekiq")
    outages = Outages()
    assert outages.is_reported(at=0.0)
    assert outages.is_logged(1.0, caplog)

    assert [outages.is_reported(at=5.0 + seconds) for seconds in (0.0, 1.0, 2.0, 3.0)] == [False, False, True, False]
    assert outages.is_logged(12.5, caplog)
    assert online_lines(caplog) == ["Redis is online, 7.5 sec downtime"]
