"""How long Redis was away, told once."""

import logging
from collections.abc import Callable

import pytest

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.errors import RedisConnectionError, RedisReplyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
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
    """As while Redis has as many clients as it may have: there were four lines a second."""
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
