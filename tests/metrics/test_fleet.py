"""What Redis says of all processes, for the dashboard's `/metrics`."""

import json
import time

import pytest

pytest.importorskip("prometheus_client")

import redis
from prometheus_client.parser import text_string_to_metric_families as parse

from sidekiq_py.metrics.fleet import fleet_text

NAMES = {
    *("sidekiq_processed_jobs_total", "sidekiq_failed_jobs_total", "sidekiq_workers", "sidekiq_processes"),
    *("sidekiq_host_processes", "sidekiq_busy_workers", "sidekiq_enqueued_jobs", "sidekiq_scheduled_jobs"),
    *("sidekiq_retry_jobs", "sidekiq_dead_jobs", "sidekiq_queue_latency_seconds", "sidekiq_queue_enqueued_jobs"),
    *("sidekiq_queue_paused", "sidekiq_queue_max_processing_time_seconds", "sidekiq_queue_workers"),
    *("sidekiq_redis_memory_used_bytes", "sidekiq_redis_memory_max_bytes"),
}


@pytest.fixture
def fleet(redis_client: "redis.Redis[bytes]") -> None:
    """A Ruby process that runs a job of `low`, and two jobs that wait there."""
    now = time.time()
    info = {
        **{"hostname": "web-1", "started_at": now, "pid": 7, "tag": "", "concurrency": 5, "labels": []},
        **{"identity": "web-1:7:abc", "queues": ["low", "unseen"], "version": "7.3.2", "embedded": False},
    }
    work = {"queue": "low", "payload": json.dumps({"class": "Mail", "args": [], "jid": "1"}), "run_at": int(now) - 50}
    redis_client.sadd("processes", "web-1:7:abc")
    redis_client.hset(
        "web-1:7:abc",
        mapping={"info": json.dumps(info), "busy": 1, "beat": now, "quiet": "true", "rss": 1, "rtt_us": 1},
    )
    redis_client.hset("web-1:7:abc:work", "tid", json.dumps(work))
    redis_client.sadd("queues", "low")
    for seconds in (90, 30):
        payload = {"class": "Mail", "args": [], "jid": "2", "enqueued_at": now - seconds}
        redis_client.lpush("queue:low", json.dumps(payload))
    redis_client.mset({"stat:processed": 41, "stat:failed": 3})
    redis_client.zadd("retry", {"{}": 1})


def values(text: str) -> dict[tuple[str, ...], float]:
    """Name and labels to value."""
    return {(sample.name, *sample.labels.values()): sample.value for family in parse(text) for sample in family.samples}


@pytest.mark.usefixtures("fleet")
def test_the_fleet_is_told_under_the_exporters_names(redis_url: str) -> None:
    """Dashboards made for sidekiq-prometheus-exporter go on."""
    found = values(fleet_text(pool=redis_url))

    assert {key[0] for key in found} == NAMES
    assert found["sidekiq_processed_jobs_total",] == 41
    assert found["sidekiq_failed_jobs_total",] == 3
    assert (found["sidekiq_workers",], found["sidekiq_processes",], found["sidekiq_busy_workers",]) == (5, 1, 1)
    assert found["sidekiq_host_processes", "web-1", "true"] == 1
    assert (found["sidekiq_enqueued_jobs",], found["sidekiq_retry_jobs",], found["sidekiq_dead_jobs",]) == (2, 1, 0)
    assert found["sidekiq_queue_enqueued_jobs", "low"] == 2
    assert 90 <= found["sidekiq_queue_latency_seconds", "low"] < 150
    assert 49 <= found["sidekiq_queue_max_processing_time_seconds", "low"] < 110
    assert (found["sidekiq_queue_workers", "low"], found["sidekiq_queue_workers", "unseen"]) == (5, 5)


def test_an_empty_redis_has_all_names_without_queues(redis_url: str) -> None:
    """A dashboard shows zeros before the first job."""
    found = values(fleet_text(pool=redis_url))

    used = found.pop(("sidekiq_redis_memory_used_bytes",))
    assert used > 0
    assert set(found.values()) == {0.0}
    assert found["sidekiq_processed_jobs_total",] == 0


def test_a_paused_queue_says_so(redis_url: str, redis_client: "redis.Redis[bytes]") -> None:
    """Its latency grows on purpose."""
    redis_client.sadd("queues", "low", "high")
    redis_client.sadd("paused", "low")

    found = values(fleet_text(pool=redis_url))

    assert (found["sidekiq_queue_paused", "low"], found["sidekiq_queue_paused", "high"]) == (1, 0)


def test_without_the_right_to_info_nothing_is_said_of_redis_s_memory(
    redis_url: str, redis_client: "redis.Redis[bytes]"
) -> None:
    """A 0 would be wrong; all other metrics are there."""
    redis_client.execute_command("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-info")
    try:
        found = values(fleet_text(pool=redis_url.replace("redis://", "redis://half:pw@")))
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    assert not [key for key in found if key[0].startswith("sidekiq_redis_")]
    assert found["sidekiq_dead_jobs",] == 0


def test_a_queue_that_cannot_be_read_has_no_size(redis_url: str, redis_client: "redis.Redis[bytes]") -> None:
    """An alert on a long queue would rest on a 0 that nobody has read; all other metrics are there."""
    redis_client.sadd("queues", "wrong", "good")
    redis_client.set("queue:wrong", "x")

    found = values(fleet_text(pool=redis_url))

    for name in ("sidekiq_queue_enqueued_jobs", "sidekiq_queue_latency_seconds"):
        assert [labels for labels in found if labels[0] == name] == [(name, "good")]
    assert found["sidekiq_queue_workers", "wrong"] == 0
    assert found["sidekiq_enqueued_jobs",] == 0


def test_without_a_queue_that_can_be_read_there_is_no_number_of_enqueued_jobs(
    redis_url: str, redis_client: "redis.Redis[bytes]"
) -> None:
    """To a user who may not look, a 0 would say that no job waits."""
    redis_client.lpush("queue:low", "{}")
    redis_client.sadd("queues", "low")
    redis_client.execute_command("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-llen")
    try:
        found = values(fleet_text(pool=redis_url.replace("redis://", "redis://half:pw@")))
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    assert ("sidekiq_enqueued_jobs",) not in found
    assert found["sidekiq_retry_jobs",] == 0


def test_queues_beyond_the_cap_are_other(redis_url: str, redis_client: "redis.Redis[bytes]") -> None:
    """Sizes add up, and of latencies the longest is told."""
    now = time.time()
    for number in range(5):
        redis_client.sadd("queues", f"q{number}")
        payload = {"class": "Mail", "args": [], "jid": "2", "enqueued_at": now - 10 * number}
        redis_client.lpush(f"queue:q{number}", json.dumps(payload))

    found = values(fleet_text(pool=redis_url, most_queues=2))

    assert found["sidekiq_queue_enqueued_jobs", "other"] == 3
    assert found["sidekiq_queue_latency_seconds", "other"] == pytest.approx(40, abs=10)
    assert ("sidekiq_queue_enqueued_jobs", "q2") not in found


def test_queues_and_hosts_that_processes_make_up_are_bounded(
    redis_url: str, redis_client: "redis.Redis[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process writes of itself what it likes."""
    monkeypatch.setattr("sidekiq_py.metrics.fleet.MOST_HOSTS", 2)
    for number in range(5):
        identity = f"host{number}:1:aaaaaaaaaaaa"
        info = {
            "hostname": f"host{number}",
            "pid": 1,
            "queues": [f"q{number}-{at}" for at in range(20)],
            "concurrency": 1,
        }
        redis_client.sadd("processes", identity)
        redis_client.hset(
            identity, mapping={"info": json.dumps(info), "busy": 0, "beat": time.time(), "quiet": "false"}
        )

    found = values(fleet_text(pool=redis_url, most_queues=3))

    assert len([key for key in found if key[0] == "sidekiq_queue_workers"]) == 4
    assert found["sidekiq_queue_workers", "other"] == 97
    assert len([key for key in found if key[0] == "sidekiq_host_processes"]) == 3
