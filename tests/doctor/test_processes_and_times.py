"""Releases, the dialect, clocks, and units of time."""

import re
import time

import pytest
import redis

from sidekiq_py import program
from tests.doctor.conftest import Look, push, python_process, ruby_process

NOW_MS = int(time.time() * 1000)


def test_who_is_at_work(look: Look, redis_client: redis.Redis) -> None:
    """Languages and releases, oldest first."""
    ruby_process(redis_client, "a:1:aa", version="8.1.7")
    ruby_process(redis_client, "b:1:aa", version="7.3.2")
    ruby_process(redis_client, "c:1:aa", version="7.3.2")
    python_process(redis_client, version="7.3.2")
    redis_client.sadd("processes", "gone:1:aa")

    found = look().the("processes")

    assert found.seen == (
        "Running: Ruby with Sidekiq 7.3.2 (2 processes), 8.1.7 (1 process); "
        "Python, writing for Sidekiq 7.3.2 (1 process)."
    )


def test_nobody_is_at_work(look: Look) -> None:
    """An empty Redis is healthy."""
    diagnosis = look()

    assert diagnosis.the("processes").seen == "No process is running on this Redis."
    assert diagnosis.report.is_healthy(strict=True)


def test_releases_that_misunderstand_each_other(look: Look, redis_client: redis.Redis) -> None:
    """With what goes wrong."""
    ruby_process(redis_client, "a:1:aa", version="8.1.7")
    ruby_process(redis_client, "b:1:aa", version=None)

    found = look().the("mixed-releases")

    assert found.level == "warning"
    assert "before 7.0.2 (1 process), 8.1.7 (1 process)" in found.seen
    for consequence in ("times in milliseconds", "Metrics page", "0 threads", "running jobs"):
        assert consequence in found.seen


def test_releases_that_understand_each_other(look: Look, redis_client: redis.Redis) -> None:
    """In the middle of a small upgrade."""
    ruby_process(redis_client, "a:1:aa", version="7.3.2")
    ruby_process(redis_client, "b:1:aa", version="7.2.4")

    assert look().levels("mixed-releases") == ["note"]


def test_a_release_that_is_not_known_yet(look: Look, redis_client: redis.Redis) -> None:
    """It is named."""
    ruby_process(redis_client, version="9.0.1")

    found = look().the("mixed-releases")

    assert found.level == "warning"
    assert "Sidekiq 9.0.1 (1 process) is newer than 8.1.7" in found.seen


def test_the_dialect_of_the_oldest_release_is_detected(look: Look, redis_client: redis.Redis) -> None:
    """And whose it is."""
    ruby_process(redis_client, "a:1:aa", version="8.1.7")
    ruby_process(redis_client, "b:1:aa", version="7.3.2")

    assert look().the("dialect").seen == (
        "A Python program writes for Sidekiq 7.3.2 (times in float seconds): the oldest of several releases, that of "
        "b:1:aa."
    )


def test_the_dialect_is_unknown_without_ruby(look: Look, redis_client: redis.Redis) -> None:
    """Our own processes do not count."""
    python_process(redis_client, version="8.1.7")

    assert "no Ruby process is alive to show its release" in look().the("dialect").seen


@pytest.mark.parametrize(
    ("pinned", "running", "level", "said"),
    [
        ("7.3.2", "7.3.2", "note", "which is what Ruby runs"),
        ("6.5", None, "note", "which is what Ruby runs"),
        ("7.3.2", None, "warning", "but Ruby runs before 7.0.2"),
        ("7.3.2", "8.1.7", "warning", "but Ruby runs 8.1.7"),
        ("8", "7.3.2", "problem", "(times in whole milliseconds), because sidekiq_version is set, but Ruby runs 7.3.2"),
    ],
)
def test_the_dialect_is_set(
    look: Look, redis_client: redis.Redis, pinned: str, running: str | None, level: str, said: str
) -> None:
    """Against what Ruby runs; before 7.0.2 it does not say which release that is."""
    ruby_process(redis_client, version=running)
    program.configure(sidekiq_version=pinned)

    found = look().the("dialect")

    assert found.level == level
    assert said in found.seen


def test_the_dialect_is_set_and_no_ruby_is_there(look: Look) -> None:
    """Then nothing contradicts it."""
    program.configure(sidekiq_version="7")

    assert "No Ruby process is alive" in look().the("dialect").seen


@pytest.mark.parametrize(("writes", "runs", "level"), [("8.1.7", "7.3.2", "problem"), ("7.3.2", "8.1.7", "warning")])
def test_a_python_process_that_writes_for_another_release(
    look: Look, redis_client: redis.Redis, writes: str, runs: str, level: str
) -> None:
    """Worst are milliseconds for who reads seconds."""
    ruby_process(redis_client, version=runs)
    identity = python_process(redis_client, version=writes)

    found = look().the("writers")

    assert (found.level, found.subjects) == (level, (identity,))


def test_the_clock_of_this_machine_is_off(look: Look) -> None:
    """Against Redis's."""
    late = look(now=lambda: time.time() - 30).the("clock")
    early = look(now=lambda: time.time() + 3600).the("clock")

    assert (late.level, early.level) == ("warning", "problem")
    assert "s behind that of Redis" in late.seen
    assert "60 min ahead of that of Redis" in early.seen


def test_the_clock_of_a_process_is_off(look: Look, redis_client: redis.Redis) -> None:
    """By its heartbeat, against the time at which that was written."""
    off = ruby_process(redis_client, "a:1:aa", ahead_seconds=90)
    ruby_process(redis_client, "b:1:aa")

    found = look().the("process-clocks")

    assert (found.level, found.subjects) == ("problem", (off,))
    assert re.search(rf"{off} \(Sidekiq 7.3.2\) is \d+ s ahead of it\. ", found.seen)


def test_an_old_heartbeat_is_no_clock_that_is_off(look: Look, redis_client: redis.Redis) -> None:
    """A process that was frozen half a minute ago."""
    identity = ruby_process(redis_client, ahead_seconds=-30)
    redis_client.expire(identity, 30)

    assert look()["process-clocks"] == []


def test_a_heartbeat_without_an_end_is_no_clock(look: Look, redis_client: redis.Redis) -> None:
    """Something else wrote it, or wrote it back."""
    redis_client.persist(ruby_process(redis_client, "a:1:aa", ahead_seconds=-3000))
    redis_client.expire(ruby_process(redis_client, "b:1:aa", ahead_seconds=-3000), 3600)

    assert look()["process-clocks"] == []


def test_jobs_from_the_future(look: Look, redis_client: redis.Redis) -> None:
    """The clock of a producer is ahead."""
    push(redis_client, "Early", enqueued_at=time.time() + 1000, created_at=time.time() + 1000)
    push(redis_client, "Punctual")

    found = look().the("future-jobs")

    assert (found.level, found.subjects) == ("problem", ("Early",))


def test_milliseconds_before_an_old_sidekiq(look: Look, redis_client: redis.Redis) -> None:
    """Who misreads them, and who can have written them."""
    old = ruby_process(redis_client, "a:1:aa", version="7.3.2")
    new = ruby_process(redis_client, "b:1:aa", version="8.1.7")
    push(redis_client, "New", created_at=NOW_MS, enqueued_at=NOW_MS)
    push(redis_client, "Old")

    found = look().the("time-units")

    assert (found.level, found.subjects) == ("problem", ("New",))
    assert f"{old} (Sidekiq 7.3.2) reads them as seconds" in found.seen
    assert f"They may come from {new} (Sidekiq 8.1.7)" in found.seen
    assert "set sidekiq_version to 7.3.2" in found.advice


def test_milliseconds_apart_from_an_old_sidekiq(look: Look, redis_client: redis.Redis) -> None:
    """It does not fetch them, and only shows them wrongly."""
    ruby_process(redis_client, "a:1:aa", version="7.3.2", queues=("old",))
    ruby_process(redis_client, "b:1:aa", version="8.1.7")
    push(redis_client, created_at=NOW_MS, enqueued_at=NOW_MS)

    assert look().levels("time-units") == ["warning"]


def test_milliseconds_of_nobody_that_is_alive(look: Look, redis_client: redis.Redis) -> None:
    """A web process pushes and does not beat."""
    ruby_process(redis_client, version="7.3.2")
    push(redis_client, created_at=NOW_MS, enqueued_at=NOW_MS)

    assert "No live process writes them" in look().the("time-units").seen


def test_both_units_before_sidekiq_8(look: Look, redis_client: redis.Redis) -> None:
    """It reads either."""
    ruby_process(redis_client, version="8.1.7")
    push(redis_client, created_at=NOW_MS, enqueued_at=NOW_MS)
    push(redis_client)

    assert look().levels("time-units") == ["note"]


@pytest.mark.parametrize(("version", "level"), [("8.1.7", "warning"), ("7.3.2", "note")])
def test_whole_seconds(look: Look, redis_client: redis.Redis, version: str, level: str) -> None:
    """Sidekiq 8 takes them for milliseconds."""
    ruby_process(redis_client, version=version)
    push(redis_client, "Foreign", created_at=1_700_000_000, enqueued_at=1_700_000_000)

    found = look().the("time-units")

    assert (found.level, found.subjects) == (level, ("Foreign",))


def test_times_that_are_no_times(look: Look, redis_client: redis.Redis) -> None:
    """Nothing breaks at them."""
    for stamp in (10**400, True, [], {}, "x", -1):
        push(redis_client, "Foreign", created_at=stamp, enqueued_at=stamp)

    diagnosis = look()

    assert diagnosis["future-jobs"] == []


def test_times_as_text(look: Look, redis_client: redis.Redis) -> None:
    """Ruby's Web UI breaks at them."""
    push(redis_client, "Foreign", enqueued_at="2026-01-01T00:00:00Z")

    assert look().the("time-units").subjects == ("Foreign",)
