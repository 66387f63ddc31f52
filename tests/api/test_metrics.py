"""Execution metrics of both generations, and deploy marks."""

from datetime import UTC, date, datetime

import pytest

from sidekiq_py.api import Deploy, Metrics
from sidekiq_py.errors import ConfigError, RedisReplyError
from sidekiq_py.wire import metrics_keys

# 2025-02-14 08:03:20 UTC
NOW = datetime(2025, 2, 14, 8, 3, 20, tzinfo=UTC).timestamp()


def at(hour, minute):
    """A moment of that day."""
    return datetime(2025, 2, 14, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (metrics_keys.minute(NOW, 7), "j|20250214|8:3"),
        (metrics_keys.minute(NOW, 8), "j|250214|8:03"),
        (metrics_keys.ten_minutes(NOW), "j|250214|8:0"),
        (metrics_keys.histogram("HardJob", NOW, 7), "HardJob-14-08:3"),
        (metrics_keys.histogram("HardJob", NOW, 8), "h|HardJob-14-8:3"),
        (metrics_keys.marks(NOW), "20250214-marks"),
    ],
)
def test_keys_are_spelled_as_each_release_spells_them(made, expected):
    """Padding differs between releases, and between keys of one."""
    assert made == expected


def test_minutes_of_both_releases_are_added_up(pool, redis_client):
    """In a mixed fleet each writes under names of its own."""
    redis_client.hset("j|20250214|8:3", mapping={"A::B|p": 2, "A::B|f": 1, "A::B|ms": 100})
    redis_client.hset("j|250214|8:03", mapping={"A::B|p": 3, "A::B|ms": 200, "C|p": 1})
    redis_client.hset("j|250214|7:59", mapping={"C|p": 5, "C|ms": 50})
    redis_client.hset("j|250214|7:00", mapping={"Old|p": 5})

    result = Metrics(now=NOW).top_jobs(minutes=60)

    assert sorted(result.jobs) == ["A::B", "C"]
    total = result.jobs["A::B"].total
    assert (total.processed, total.failed, total.ms, total.average_ms) == (5, 1, 300, 75.0)
    assert list(result.jobs["C"].series) == [at(8, 3), at(7, 59)]
    assert (result.starts_at, result.bucket_seconds) == (at(7, 4), 60)


def test_a_count_that_is_no_number_is_read_as_ruby_reads_it(pool, redis_client):
    """One such field must not break the page of all others."""
    redis_client.hset("j|250214|8:03", mapping={"A|p": "2x", "A|ms": "1.5", "B|p": "<b>", "C|p": 3})

    jobs = Metrics(now=NOW).top_jobs().jobs

    assert {name: (job.total.processed, job.total.ms) for name, job in jobs.items()} == {
        "A": (2, 1),
        "B": (0, 0),
        "C": (3, 0),
    }


def test_a_minute_of_very_many_classes_is_read_in_parts(pool, redis_client):
    """One reply held up Redis for 200 ms."""
    counts = {f"Class{number}|p": number for number in range(40_000)}
    redis_client.hset("j|250214|8:03", mapping=counts)
    redis_client.hset("j|250214|8:02", mapping={"Class3|p": 1})
    redis_client.config_resetstat()

    jobs = Metrics(now=NOW).top_jobs(minutes=2).jobs

    assert sum(job.total.processed for job in jobs.values()) == sum(counts.values()) + 1
    calls = redis_client.info("commandstats")["cmdstat_hscan"]["calls"]
    assert 6 <= calls <= 12


def test_hours_of_many_classes_are_read_in_parts(pool, redis_client):
    """Redis serves nobody else while it replies to a packet: three days of 5,000 classes held it up for seconds."""
    counts = {f"Class{number}|p": 1 for number in range(4_000)}
    for ten_minutes in range(6):
        redis_client.hset(f"j|250214|7:{ten_minutes}", mapping=counts)
    redis_client.config_resetstat()

    jobs = Metrics(now=NOW).top_jobs(hours=2).jobs

    assert sum(job.total.processed for job in jobs.values()) == 24_000
    # Three parts, and what else is asked. Without parts, there were five reads.
    assert redis_client.info("stats")["total_reads_processed"] > 7


def test_classes_can_be_chosen_by_a_pattern(pool, redis_client):
    """Searched for anywhere in the name."""
    redis_client.hset("j|250214|8:03", mapping={"Mail::Send|p": 1, "Report|p": 1})

    assert list(Metrics(now=NOW).top_jobs(class_filter="^Mail").jobs) == ["Mail::Send"]


def test_hours_come_by_ten_minutes(pool, redis_client):
    """Sidekiq 8 keeps sums of ten minutes; of 7 the minutes are added up."""
    redis_client.hset("j|250214|8:0", mapping={"A|p": 4})
    redis_client.hset("j|20250214|7:51", mapping={"A|p": 1})
    redis_client.hset("j|20250214|7:59", mapping={"A|p": 2})
    redis_client.hset("j|250212|9:1", mapping={"A|p": 8})

    result = Metrics(now=NOW).top_jobs(hours=48)

    assert [(start, point.processed) for start, point in result.jobs["A"].series.items()] == [
        (at(8, 0), 4),
        (at(7, 50), 3),
        (datetime(2025, 2, 12, 9, 10, tzinfo=UTC), 8),
    ]
    assert result.bucket_seconds == 600


def test_one_class_is_shown_with_the_spread_of_its_times(pool, redis_client):
    """Sixteen bits a bucket, as Ruby writes them."""
    redis_client.hset("j|250214|8:03", mapping={"A|p": 3, "AB|p": 7})
    redis_client.execute_command("BITFIELD", "h|A-14-8:3", "OVERFLOW", "SAT", "INCRBY", "u16", "#0", 2)
    redis_client.execute_command("BITFIELD", "A-14-08:3", "OVERFLOW", "SAT", "INCRBY", "u16", "#0", 1)
    redis_client.execute_command("BITFIELD", "A-14-08:3", "OVERFLOW", "SAT", "INCRBY", "u16", "#25", 5)

    result = Metrics(now=NOW).for_job("A", minutes=2)

    assert list(result.jobs) == ["A"]
    assert result.jobs["A"].total.processed == 3
    counts = result.jobs["A"].histograms[at(8, 3)]
    assert (len(counts), counts[0], counts[25], sum(counts)) == (26, 3, 5, 8)
    assert sum(result.jobs["A"].histograms[at(8, 2)]) == 0


@pytest.mark.parametrize("key", ["j|20250214|8:3", "j|250214|8:03", "j|250214|8:0"])
def test_of_one_class_only_its_own_numbers_are_read(pool, redis_client, key):
    """Three days of a fleet with 2,000 classes are two million other numbers."""
    redis_client.hset(
        key, mapping={f"Job{number}|{metric}": 1 for number in range(2000) for metric in ("p", "f", "ms")}
    )
    redis_client.hset(key, mapping={"Mine|p": 5, "Mine|f": 1, "Mine|ms": 80, "Mine|other": 9})
    sent = redis_client.info("stats")["total_net_output_bytes"]

    job = Metrics(now=NOW).for_job("Mine", **({"hours": 1} if key.endswith("8:0") else {"minutes": 5})).jobs["Mine"]

    assert (job.total.processed, job.total.failed, job.total.ms) == (5, 1, 80)
    assert redis_client.info("stats")["total_net_output_bytes"] - sent < 20_000


def test_a_class_that_never_ran_has_no_numbers(pool):
    """And is not an error."""
    result = Metrics(now=NOW).for_job("Nobody", hours=1)

    assert (result.jobs["Nobody"].total.processed, result.jobs["Nobody"].series) == (0, {})


def test_as_much_is_read_as_ruby_reads(pool):
    """More than eight hours of minutes means one hour, more than three days means three days."""
    metrics = Metrics(now=NOW)

    assert metrics.top_jobs(minutes=10_000).starts_at == at(7, 4)
    assert metrics.top_jobs(hours=1000).starts_at == datetime(2025, 2, 11, 8, 10, tzinfo=UTC)


def test_a_deploy_is_marked_once_a_minute_and_label(pool, redis_client):
    """Every machine of a deploy marks it; one mark is left."""
    deploy = Deploy()

    assert deploy.mark("v1", at=datetime(2025, 2, 14, 8, 3, 20, tzinfo=UTC)) is True
    assert deploy.mark("v1", at=datetime(2025, 2, 14, 8, 3, 50, tzinfo=UTC)) is False

    assert redis_client.hgetall("20250214-marks") == {b"2025-02-14T08:03:00Z": b"v1"}
    assert 0 < redis_client.ttl("deploylock-v1") <= 60
    assert 89 * 86400 < redis_client.ttl("20250214-marks") <= 90 * 86400
    assert deploy.fetch(date(2025, 2, 14)) == {"2025-02-14T08:03:00Z": "v1"}
    [mark] = Metrics(now=NOW).top_jobs().marks
    assert (mark.at, mark.label) == (at(8, 3), "v1")


def test_a_deploy_is_named_after_the_commit(pool, monkeypatch, tmp_path):
    """Outside a repository a label is asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    with pytest.raises(ConfigError, match="give a label"):
        Deploy().mark()


@pytest.mark.parametrize("stamp", ["2025-02-14", "2025-02-14T08:03:00", "", "x", "0001-01-01T00:00:00+23:59"])
def test_a_mark_that_another_program_has_written_hides_no_other(pool, redis_client, stamp):
    """A time without a zone is no moment."""
    redis_client.hset("20250214-marks", mapping={"2025-02-14T08:03:00Z": "v1", stamp: "odd"})

    assert [mark.label for mark in Metrics(now=NOW).top_jobs().marks] == ["v1"]


def test_a_minute_whose_key_has_a_wrong_type_hides_no_other(pool, redis_client):
    """Nor does a histogram's, or a day's of deploys."""
    moment = at(8, 2).timestamp()
    redis_client.hset(metrics_keys.minute(moment, 8), mapping={"HardJob|p": 3, "HardJob|ms": 30})
    for key in (
        metrics_keys.minute(moment - 60, 8),
        metrics_keys.minute(moment, 7),
        metrics_keys.marks(moment),
    ):
        redis_client.set(key, "a string")
    redis_client.rpush(metrics_keys.histogram("HardJob", moment, 8), "a list")

    assert Metrics(now=NOW).top_jobs().jobs["HardJob"].total.processed == 3
    assert Metrics(now=NOW).for_job("HardJob").jobs["HardJob"].total.processed == 3
    assert Metrics(now=NOW).top_jobs().marks == ()


@pytest.mark.parametrize("command", ["hgetall", "hmget"])
def test_counts_that_this_user_may_not_read_are_no_zeros(redis_client, redis_url, command):
    """The read fails, as that of an overview does."""
    redis_client.execute_command("ACL", "SETUSER", "few", "reset", "on", ">secret", "+@all", "~*", f"-{command}")
    try:
        metrics = Metrics(pool=redis_url.replace("redis://", "redis://few:secret@"))
        with pytest.raises(RedisReplyError, match="NOPERM"):
            metrics.for_job("A") if command == "hmget" else metrics.top_jobs()
    finally:
        redis_client.execute_command("ACL", "DELUSER", "few")
