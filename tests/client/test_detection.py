"""Which release the Ruby side runs, from what its processes publish."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.client import detection
from sidekiq_py.client.detection import Detection, dialect_of
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.process_info import PYTHON_LABEL
from tests.client.conftest import Pushed


def info(version: str | None = None, *labels: str) -> bytes:
    """A process's `info`."""
    fields: dict[str, Any] = {"hostname": "h", "labels": list(labels)}
    return json.dumps(fields if version is None else fields | {"version": version}).encode()


def beat(client: redis.Redis, identity: str, raw: bytes) -> None:
    """A process shows itself."""
    client.sadd("processes", identity)
    client.hset(identity, "info", raw)


def test_the_version_of_a_live_ruby_process_decides(redis_url: str, redis_client: redis.Redis, pushed: Pushed) -> None:
    """Sidekiq 8 is written milliseconds."""
    beat(redis_client, "a", info("8.0.2"))
    sidekiq.configure(redis_url=redis_url)

    sidekiq.ruby_job("A").perform_async()

    assert type(json.loads(pushed.queue()[0])["created_at"]) is int


def test_the_awaited_client_looks_as_well(redis_url: str, redis_client: redis.Redis, pushed: Pushed) -> None:
    """Without blocking its loop."""
    beat(redis_client, "a", info("8.1.7"))
    sidekiq.configure(redis_url=redis_url)

    asyncio.run(sidekiq.ruby_job("A").aperform_async())

    assert type(json.loads(pushed.queue()[0])["created_at"]) is int


def test_without_any_ruby_process_what_most_releases_read_is_written(
    redis_url: str, redis_client: redis.Redis, pushed: Pushed
) -> None:
    """Float seconds. Our own processes and dead ones do not count."""
    beat(redis_client, "ours", info("8.1.7", PYTHON_LABEL))
    redis_client.sadd("processes", "gone")
    sidekiq.configure(redis_url=redis_url)

    sidekiq.ruby_job("A").perform_async()

    assert type(json.loads(pushed.queue()[0])["created_at"]) is float


def test_of_several_releases_the_oldest_one_s_rules_are_written() -> None:
    """A newer one reads what an older one wrote."""
    found = dialect_of([info("8.1.7"), info("7.3.2"), b"no json", info("1.0", PYTHON_LABEL)])

    assert found == Dialect.detect(["7.3.2", "8.1.7"])


def test_a_process_without_a_version_is_an_old_one() -> None:
    """It was published only since 7.0.2."""
    found = dialect_of([info(None)])

    assert found is not None
    assert found.version == (6, 4, 1)


def looking_at(found: list[list[bytes]]) -> tuple[Detection, list[int]]:
    """A detection whose looks find these in turn, and the number of looks so far."""
    looks: list[int] = []

    def look() -> list[bytes]:
        looks.append(1)
        return found[min(len(looks), len(found)) - 1]

    return Detection(None, None, look), looks


def test_it_is_looked_at_again_after_a_minute_and_not_before() -> None:
    """A push costs the comparison of two clocks."""
    detection, looks = looking_at([[info("7.3.2")], [info("8.1.7")]])

    versions = [detection.dialect(now).version for now in (1000.0, 1059.0, 1061.0, 1062.0)]

    assert versions == [(7, 3, 2), (7, 3, 2), (8, 1, 7), (8, 1, 7)]
    assert len(looks) == 2


def test_where_nobody_was_found_it_is_looked_at_again_soon() -> None:
    """The Ruby side may just be starting."""
    detection, looks = looking_at([[], [info("8.1.7")]])

    versions = [detection.dialect(now).version for now in (1000.0, 1004.0, 1006.0)]

    assert versions[-1] == (8, 1, 7)
    assert len(looks) == 2


def test_where_nobody_is_ever_found_the_looks_become_rarer() -> None:
    """A fleet without Ruby read all its processes in each of them every five seconds: once a minute is enough."""
    detection, looks = looking_at([[]])

    for now in range(1000, 1600):
        detection.dialect(float(now))

    assert len(looks) <= 4 + 600 / 60


def test_what_was_known_stays_while_the_ruby_side_is_away() -> None:
    """A deploy stops every process for a while."""
    detection, _ = looking_at([[info("8.1.7")], []])
    detection.dialect(1000.0)

    assert detection.dialect(2000.0).version == (8, 1, 7)


def test_a_clock_that_was_set_back_does_not_stop_the_looking() -> None:
    """Or it would be years until the next one."""
    detection, looks = looking_at([[info("7.3.2")]])
    detection.dialect(1e9)

    detection.dialect(5.0)

    assert len(looks) == 2


def test_an_equal_finding_is_the_same_object() -> None:
    """Templates of pushes are kept by it."""
    detection, _ = looking_at([[info("7.3.2")], [info("7.3.2")]])

    assert detection.dialect(1000.0) is detection.dialect(2000.0)


def test_pinned_nobody_is_asked() -> None:
    """And the float text may be set apart."""

    def look() -> list[bytes]:
        raise AssertionError("nobody should look")

    pinned = Dialect.pinned("8", FloatText.RUBY)

    assert Detection(pinned, None, look).dialect(5.0) is pinned


def test_a_user_who_may_push_and_not_look_still_pushes(
    new_redis_server: Callable[..., Any], redis_client: redis.Redis
) -> None:
    """ACL users often lack what is not a job's."""
    server = new_redis_server()
    admin = server.client()
    admin.execute_command("ACL", "SETUSER", "pusher", "on", ">secret", "~queue*", "+sadd", "+lpush")
    url = server.url.replace("redis://", "redis://pusher:secret@")

    sidekiq.Client(url).push({"class": "A", "args": []})

    assert admin.llen("queue:default") == 1
    admin.close()


@pytest.fixture
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been named in this process yet."""
    monkeypatch.setattr(detection, "_named", set())


@pytest.mark.usefixtures("fresh_process")
def test_a_live_release_that_is_not_known_is_named_once(
    redis_url: str, redis_client: redis.Redis, pushed: Pushed, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever looks; and it is written for by the newest rules."""
    beat(redis_client, "a", info("9.0.1"))
    sidekiq.configure(redis_url=redis_url)

    sidekiq.ruby_job("A").perform_async()
    sidekiq.Client(redis_url).push({"class": "A", "args": []})

    assert type(json.loads(pushed.queue()[0])["created_at"]) is int
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "Sidekiq 9.0.1 (of a Ruby process on this Redis) is not known to this sidekiq_py, whose newest is 8.1.7. "
        "Jobs are written by the rules of 8.1.7. Look for a newer sidekiq_py before you rely on it"
    )


@pytest.mark.usefixtures("fresh_process")
def test_a_pinned_release_that_is_not_known_is_named_once(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It may also be a slip of the finger."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="7.9")

    sidekiq.Client()
    sidekiq.Client(redis_url)
    sidekiq.Client(redis_url, sidekiq_version="8.5.0")

    assert [(record.args[0], record.args[1], record.args[3]) for record in caplog.records if record.args] == [
        ("7.9.0", "pinned as sidekiq_version", "7.3.2"),
        ("8.5.0", "pinned as sidekiq_version", "8.1.7"),
    ]


@pytest.mark.usefixtures("fresh_process")
def test_known_releases_are_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    """Also an older one, one without a version, and one that says nonsense."""
    detected = Detection(None, None, list)
    for versions in (["8.1.7"], ["7.3.11"], ["6.0.0"], [None], ["made up"]):
        detected.learn([info(version) for version in versions], 1.0)
    Detection(Dialect.pinned("6.4"), None, list)

    assert caplog.records == []
