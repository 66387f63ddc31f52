"""Counters and sizes."""

from datetime import date
from types import SimpleNamespace

import pytest

from sidekiq_py.api import History, Stats
from sidekiq_py.api import stats as stats_module
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.reads import queues


def test_counters_and_sizes_are_read(pool, redis_client, payload):
    """An empty Redis is all zeros."""
    empty = Stats()
    assert (empty.processed, empty.failed, empty.enqueued, empty.workers_size, empty.queues) == (0, 0, 0, 0, {})

    redis_client.mset({"stat:processed": 10, "stat:failed": 3})
    for key, count in (("schedule", 1), ("retry", 2), ("dead", 3)):
        redis_client.zadd(key, {f"m{n}": n for n in range(count)})
    redis_client.sadd("queues", "a", "b")
    redis_client.lpush("queue:b", payload("1"), payload("2"))
    redis_client.sadd("processes", "p1", "p2")
    redis_client.hset("p1", "busy", 4)

    stats = Stats()

    assert (stats.processed, stats.failed) == (10, 3)
    assert (stats.scheduled_size, stats.retry_size, stats.dead_size, stats.processes_size) == (1, 2, 3, 2)
    assert (stats.enqueued, stats.workers_size, list(stats.queues.items())) == (2, 4, [("b", 2), ("a", 0)])


def test_counters_of_foreign_text_are_read_as_ruby_reads_them(pool, redis_client):
    """Whatever it begins with; nothing that anybody wrote there keeps the rest from being shown."""
    redis_client.mset({"stat:processed": "abc", "stat:failed": "12 of 13", "stat:processed:2025-02-14": "1.5"})
    redis_client.sadd("processes", "p1", "p2")
    redis_client.hset("p1", "busy", "many")
    redis_client.hset("p2", "busy", 3)

    stats = Stats()

    assert (stats.processed, stats.failed, stats.workers_size) == (0, 12, 3)
    assert History(1, date(2025, 2, 14)).processed == {"2025-02-14": 1}


def test_the_latency_of_the_default_queue(pool, redis_client, payload, monkeypatch):
    """The age of the job that runs next."""
    monkeypatch.setattr(stats_module, "now_seconds", lambda: 1_700_000_010.0)
    redis_client.lpush("queue:default", payload(enqueued_at=1_700_000_002.5))

    assert Stats().default_queue_latency == 7.5


def test_queue_summaries_hold_what_rubys_page_cannot_show(pool, redis_client, payload, monkeypatch):
    """A queue whose jobs are all in flight is empty, and still listed."""
    monkeypatch.setattr(stats_module, "now_seconds", lambda: 1_700_000_010.0)
    redis_client.sadd("queues", "low")
    redis_client.sadd("paused", "low")
    redis_client.lpush("queue:low", payload(enqueued_at=1_700_000_000.0))
    redis_client.hset("sidekiq_py:owners", "h:1:a:0", "{}")
    redis_client.hset("sidekiq_py:inflight:h:1:a:0", mapping={"1.0:busy": "{}", "1.1:busy": "{}"})

    stats = Stats()

    assert [(q.name, q.size, q.latency, q.paused, q.in_flight) for q in stats.queue_summaries] == [
        ("busy", 0, 0.0, False, 2),
        ("low", 1, 10.0, True, 0),
    ]
    assert [(entry.owner, entry.identity, entry.queue, entry.count) for entry in stats.in_flight] == [
        ("h:1:a:0", "h:1:a", "busy", 2)
    ]


def test_counters_can_be_set_to_zero(pool, redis_client):
    """All, or those named; the days stay."""
    redis_client.mset({"stat:processed": 10, "stat:failed": 3, "stat:processed:2025-02-14": 5})

    Stats().reset("failed")
    assert (Stats().processed, Stats().failed) == (10, 0)

    Stats().reset()
    assert (Stats().processed, History(1, date(2025, 2, 14)).processed) == (0, {"2025-02-14": 5})

    with pytest.raises(ValueError, match="retries cannot be reset"):
        Stats().reset("retries")


def test_history_is_by_day_latest_first(pool, redis_client):
    """A day without a count is zero."""
    redis_client.mset({"stat:processed:2025-03-01": 5, "stat:failed:2025-02-28": 2})

    history = History(3, date(2025, 3, 1))

    assert list(history.processed.items()) == [("2025-03-01", 5), ("2025-02-28", 0), ("2025-02-27", 0)]
    assert history.failed == {"2025-03-01": 0, "2025-02-28": 2, "2025-02-27": 0}


@pytest.mark.parametrize("days", [0, -1, 1826])
def test_history_reaches_back_five_years(pool, days):
    """Redis keeps no more."""
    with pytest.raises(ValueError, match="1825"):
        History(days)


def test_history_ends_today_by_default(pool, monkeypatch):
    """In UTC."""
    monkeypatch.setattr(stats_module, "now_seconds", lambda: 1_700_000_000.0)

    assert list(History(1).processed) == ["2023-11-14"]


def test_a_queue_that_cannot_be_read_stops_no_other(pool, redis_client, payload):
    """Even `default`, whose latency is read with the counters. Its size stays a number, for programs that add them."""
    redis_client.sadd("queues", "default", "low")
    redis_client.set("queue:default", "x")
    redis_client.lpush("queue:low", payload())

    stats = Stats()

    assert (stats.enqueued, stats.queues, stats.default_queue_latency) == (1, {"low": 1, "default": 0}, 0.0)
    assert stats.known_queues == ("default", "low")
    assert [(queue.name, queue.size, queue.error) for queue in stats.queue_summaries] == [
        ("default", 0, "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("low", 1, None),
    ]


def test_an_error_about_the_server_is_raised(pool, monkeypatch):
    """Every other queue would be shown as broken, while Redis is loading its data."""
    loading = RedisReplyError("LOADING Redis is loading the dataset in memory")
    monkeypatch.setattr(pool, "run", lambda use, **_: use(SimpleNamespace(batch=lambda commands: [loading] * 3)))

    for read in (queues.sizes, queues.states):
        with pytest.raises(RedisReplyError, match="LOADING"):
            read(pool, ["low"])


def test_a_queue_that_can_be_read_in_part_has_an_error(redis_url, redis_client, payload):
    """A latency of 0 would be believed, and an alert on it would stay silent."""
    redis_client.sadd("queues", "mail")
    redis_client.lpush("queue:mail", payload("1"))
    redis_client.execute_command("ACL", "SETUSER", "counter", "reset", "on", ">pw", "~*", "&*", "+@all", "-lindex")
    try:
        [summary] = Stats(pool=redis_url.replace("://", "://counter:pw@")).queue_summaries
    finally:
        redis_client.execute_command("ACL", "DELUSER", "counter")

    assert (summary.size, summary.latency) == (1, 0.0)
    assert "lindex" in summary.error
