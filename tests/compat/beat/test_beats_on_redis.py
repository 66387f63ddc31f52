"""Beats that share their state in Redis, at times that are handed in."""

import json
import os
import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import redis
from sidekiq_celery import Celery, signals
from sidekiq_celery.beat import BeatLazyFunc, PersistentScheduler, SchedulingError
from sidekiq_celery.schedules import crontab

from sidekiq_py import program
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import Extension, PushSlice
from tests.compat.beat.beats import TICK, beat_of, jobs, run_due
from tests.compat.beat.clock import Clock

STATE = "sidekiq_py:beat:proj"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_beats_send_each_run_once(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis, count: int
) -> None:
    """200 runs of an interval, asked of the beats in any order."""
    beats = [beat_of(make_app(), tick=TICK) for _ in range(count)]
    order = random.Random(count)

    for _ in range(200):
        clock.advance(10)
        order.shuffle(beats)
        run_due(*beats)

    assert len(jobs(redis_client)) == 200
    assert json.loads(redis_client.hget(STATE, "tick"))[1] == 200


def test_beats_whose_clocks_differ_send_each_run_of_a_crontab_once(
    make_app: Callable[[], Celery], redis_client: redis.Redis
) -> None:
    """The one that is ahead sends it; the one behind finds it sent."""
    clocks = [Clock(), Clock()]
    clocks[1].advance(-2)
    beats = []
    for one in clocks:
        app = make_app()
        app.now = one.now  # type: ignore[method-assign]
        beats.append(beat_of(app, tick={"task": "proj.tick", "schedule": crontab()}))

    for _ in range(600):
        for one in clocks:
            one.advance(1)
        run_due(*beats)

    assert len(jobs(redis_client)) == 10


@pytest.mark.parametrize("wrong_by", [-86_400, -600, 600, 86_400])
def test_beats_whose_clocks_differ_by_more_than_an_interval_send_each_run_once(
    make_app: Callable[[], Celery], redis_client: redis.Redis, wrong_by: int
) -> None:
    """The one that is behind set the last run back to its own time, so that the other sent the task at every look."""
    clocks = [Clock(), Clock()]
    clocks[1].advance(wrong_by)
    beats = []
    for one in clocks:
        app = make_app()
        app.now = one.now  # type: ignore[method-assign]
        beats.append(beat_of(app, tick={"task": "proj.tick", "schedule": 120}))
    run_due(*beats)
    begun = len(jobs(redis_client))

    for second in range(1200):
        for one in clocks:
            one.advance(1)
        for beat in beats:
            if second % 5 == 0:
                beat.refresh()
            run_due(beat)

    # The first to start may find the entry due by the other's clock.
    assert begun <= 1
    assert len(jobs(redis_client)) - begun in (9, 10)


@pytest.mark.parametrize(
    ("zone", "start", "runs"),
    [
        ("Europe/Berlin", (2026, 3, 28), ["28T02:30:00+01:00", "29T03:30:00+02:00", "30T02:30:00+02:00"]),
        ("Europe/Berlin", (2026, 10, 24), ["24T02:30:00+02:00", "25T02:30:00+02:00", "26T02:30:00+01:00"]),
        ("America/New_York", (2026, 3, 7), ["07T02:30:00-05:00", "08T03:30:00-04:00", "09T02:30:00-04:00"]),
        ("America/New_York", (2026, 10, 31), ["31T02:30:00-04:00", "01T02:30:00-05:00", "02T02:30:00-05:00"]),
        ("Australia/Lord_Howe", (2026, 4, 4), ["04T02:30:00+11:00", "05T02:30:00+10:30", "06T02:30:00+10:30"]),
        ("Australia/Lord_Howe", (2026, 10, 3), ["03T02:30:00+10:30", "04T02:30:00+11:00", "05T02:30:00+11:00"]),
    ],
)
def test_two_beats_send_a_daily_run_once_a_day_when_clocks_change(
    make_app: Callable[[], Celery],
    clock: Clock,
    redis_client: redis.Redis,
    zone: str,
    start: tuple[int, int, int],
    runs: list[str],
) -> None:
    """Also where its time comes twice, or never."""
    clock.time = datetime(*start, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    apps = [make_app(), make_app()]
    for app in apps:
        app.conf.timezone = zone
    moment = BeatLazyFunc(lambda: clock.now().astimezone(ZoneInfo(zone)).isoformat()[8:])
    daily = {"task": "proj.daily", "schedule": crontab(30, 2), "args": [moment]}
    beats = [beat_of(app, daily=daily) for app in apps]

    for _ in range(3 * 24 * 6):
        clock.advance(600)
        run_due(*beats)

    assert [job["args"][0] for job in jobs(redis_client)] == runs


def test_a_beat_that_read_before_another_one_sent_does_not_send(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis
) -> None:
    """It lost between its question and its push; what it has made ready is dropped."""
    first, second = beat_of(make_app(), tick=TICK), beat_of(make_app(), tick=TICK)
    clock.advance(10)
    run_due(first)

    result = second.apply_async(second.schedule["tick"])

    assert result is None
    assert len(jobs(redis_client)) == 1
    assert second.schedule["tick"].last_run_at == first.schedule["tick"].last_run_at


def test_what_was_due_while_no_beat_ran_is_sent_once(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis
) -> None:
    """However many runs were missed."""
    beat_of(make_app(), tick=TICK).close()
    clock.advance(1000)

    beat = beat_of(make_app(), tick=TICK)
    run_due(beat)
    run_due(beat)

    assert len(jobs(redis_client)) == 1


def test_a_crontab_that_was_missed_too_long_ago_is_left_out(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis
) -> None:
    """As `beat_cron_starting_deadline` says."""
    daily = {"task": "proj.daily", "schedule": crontab(minute=0, hour=13)}
    beat_of(make_app(), daily=daily).close()
    clock.advance(2 * 3600)

    late = make_app()
    late.conf.beat_cron_starting_deadline = 60
    run_due(beat_of(late, daily=daily))
    assert jobs(redis_client) == []

    run_due(beat_of(make_app(), daily=daily))
    assert len(jobs(redis_client)) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_killed_beat_loses_and_repeats_nothing(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis
) -> None:
    """Each run is by another process, which is killed at once behind it, or before it."""
    beat_of(make_app(), tick=TICK).close()

    for run in range(12):
        clock.advance(10)
        child = os.fork()
        if child == 0:
            try:
                beat = beat_of(make_app(), tick=TICK)
                if run % 3:
                    run_due(beat)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)

    # The first of each three runs was not made: it is overdue for the second one, and is made with it.
    assert len(jobs(redis_client)) == 8


def test_a_clock_that_is_set_back_stops_no_interval(app: Celery, clock: Clock, redis_client: redis.Redis) -> None:
    """The next run is an interval away, not an hour."""
    beat = beat_of(app, tick=TICK)
    clock.advance(10)
    run_due(beat)

    clock.advance(-3600)
    beat.refresh()
    run_due(beat)
    assert len(jobs(redis_client)) == 1
    clock.advance(10)
    run_due(beat)

    assert len(jobs(redis_client)) == 2


def test_a_time_of_day_that_comes_twice_is_sent_once(app: Celery, clock: Clock, redis_client: redis.Redis) -> None:
    """A clock that is set back by an hour lets crontabs wait, as cron does."""
    beat = beat_of(app, noon={"task": "proj.noon", "schedule": crontab(minute=30, hour=12)})
    clock.advance(1800)
    run_due(beat)

    clock.advance(-3600)
    beat.refresh()
    clock.advance(3600)
    run_due(beat)
    assert len(jobs(redis_client)) == 1
    clock.advance(24 * 3600)
    run_due(beat)

    assert len(jobs(redis_client)) == 2


def test_a_periodic_task_is_sent_as_its_entry_says(app: Celery, clock: Clock, redis_client: redis.Redis) -> None:
    """Arguments, those that are worked out now, and options; the header tells the task that beat has sent it."""
    clock.advance(1)
    options = {"queue": "slow", "headers": {"own": 1}}
    lazy = BeatLazyFunc(lambda: clock.now().isoformat())
    beat = beat_of(app, tick={**TICK, "args": (1, lazy), "kwargs": {"key": "value"}, "options": options})
    clock.advance(10)

    run_due(beat)

    [job] = jobs(redis_client, "slow")
    assert job["class"] == "proj.tick"
    assert job["args"] == [1, "2026-05-01T12:00:11+00:00", {"key": "value"}]
    assert job["celery"]["headers"] == {"own": 1, "celery_beat_task": True}
    assert options["headers"] == {"own": 1}


def test_a_task_that_cannot_be_sent_does_not_stop_the_others(
    app: Celery, clock: Clock, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Its run is left out; so it is not tried without end."""
    beat = beat_of(app, bad={**TICK, "args": (object(),)}, tick=TICK)
    clock.advance(10)

    run_due(beat)

    assert len(jobs(redis_client)) == 1
    assert "Couldn't apply scheduled task bad" in caplog.text
    assert json.loads(redis_client.hget(STATE, "bad"))[1] == 1
    with pytest.raises(SchedulingError, match="bad"):
        beat.apply_async(beat.schedule["bad"])


def test_a_queue_that_another_program_has_overwritten_stops_no_other_entry(
    app: Celery, clock: Clock, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis refuses only this push, so the run is left out and beat does not wait."""
    redis_client.set("queue:slow", "no list")
    beat = beat_of(app, bad={**TICK, "options": {"queue": "slow"}}, tick=TICK)
    clock.advance(10)

    run_due(beat)

    assert len(jobs(redis_client)) == 1
    assert "Couldn't apply scheduled task bad: WRONGTYPE" in caplog.text
    assert "Trying again" not in caplog.text
    with pytest.raises(SchedulingError, match="WRONGTYPE"):
        beat.apply_async(beat.schedule["bad"])


def test_signals_of_publishing_are_sent_by_the_beat_that_sends(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis
) -> None:
    """Not by every beat."""
    beats = [beat_of(make_app(), tick=TICK) for _ in range(3)]
    seen: list[str] = []

    def on_publish(sender: str, **_: Any) -> None:
        seen.append(sender)

    signals.before_task_publish.connect(on_publish)
    try:
        clock.advance(10)
        run_due(*beats)
    finally:
        signals.before_task_publish.disconnect(on_publish)

    assert seen == ["proj.tick"]


def test_periodic_tasks_may_be_added_by_the_program(app: Celery, clock: Clock, redis_client: redis.Redis) -> None:
    """A task, a signature, a timedelta; also while beat runs."""

    @app.task(name="proj.add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    app.add_periodic_task(10, add.s(1, 2), name="by signature")
    beat = PersistentScheduler(app)
    app.add_periodic_task(timedelta(seconds=20), add, args=(3, 4), queue="slow")
    beat.refresh()
    for _ in range(2):
        clock.advance(10)
        run_due(beat)

    assert [job["args"] for job in jobs(redis_client)] == [[1, 2], [1, 2]]
    assert [job["args"] for job in jobs(redis_client, "slow")] == [[3, 4]]


def test_an_entry_that_is_gone_from_the_settings_starts_anew_when_it_comes_back(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis
) -> None:
    """It was not due in between."""
    beat_of(make_app(), tick=TICK).close()
    beat_of(make_app()).close()
    assert redis_client.hgetall(STATE) == {}

    clock.advance(1000)
    beat = beat_of(make_app(), tick=TICK)
    run_due(beat)

    assert jobs(redis_client) == []


def test_an_entry_that_changes_keeps_the_time_of_its_last_run(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis
) -> None:
    """A longer interval counts from there."""
    beat_of(make_app(), tick=TICK).close()
    clock.advance(10)

    beat = beat_of(make_app(), tick={**TICK, "schedule": 15})
    run_due(beat)
    assert jobs(redis_client) == []
    clock.advance(5)
    run_due(beat)

    assert len(jobs(redis_client)) == 1


def test_beat_waits_for_a_redis_that_is_away(new_redis_server: Any, clock: Clock) -> None:
    """Nothing is sent, nothing is lost, and beat lives on."""
    server = new_redis_server(appendonly=True)
    app = Celery("proj", broker=server.url, set_as_current=False, fixups=[])
    app.now = clock.now  # type: ignore[method-assign]
    beat = beat_of(app, tick=TICK)
    clock.advance(10)

    server.stop()
    assert beat.tick() >= 0
    assert beat.tick() == 5.0
    server.start()
    run_due(beat)

    client = server.client()
    assert len(jobs(client)) == 1
    client.close()
    app.close()


def test_beat_waits_while_redis_refuses_writes(
    new_redis_server: Any, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """What is due can be read but not sent. It is tried again every five seconds, with one line in the log."""
    server = new_redis_server()
    app = Celery("proj", broker=server.url, set_as_current=False, fixups=[])
    app.now = clock.now  # type: ignore[method-assign]
    beat = beat_of(app, tick=TICK)
    clock.advance(10)
    client = server.client()

    client.config_set("min-replicas-to-write", 1)
    assert [beat.tick(), beat.tick()] == [5.0, 5.0]
    client.config_set("min-replicas-to-write", 0)
    run_due(beat)

    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    # Redis 7 adds the script and its line.
    assert [line.startswith("beat: NOREPLICAS Not enough good replicas to write.") for line in lines] == [True, True]
    assert [line.endswith(". Trying again in 5 seconds.") for line in lines] == [True, True]
    assert len(jobs(client)) == 1
    client.close()
    app.close()


def test_beat_starts_while_redis_is_away(new_redis_server: Any, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """It waits, as Celery's does. What was due meanwhile is sent, and the state of entries that are gone is removed."""
    server = new_redis_server(appendonly=True)
    app = Celery("proj", broker=server.url, set_as_current=False, fixups=[])
    app.now = clock.now  # type: ignore[method-assign]
    app.conf.result_expires = None
    beat_of(app, tick=TICK, gone=TICK)
    clock.advance(10)
    server.stop()

    beat = beat_of(app, tick=TICK)
    assert beat.tick() == 5.0
    assert caplog.text.count("Trying again in 5 seconds") == 1
    server.start()
    run_due(beat)

    client = server.client()
    assert len(jobs(client)) == 1
    assert client.hkeys(STATE) == [b"tick"]
    client.close()
    app.close()


def test_an_error_that_lasts_ends_a_beat_that_starts(app: Celery, redis_client: redis.Redis) -> None:
    """Waiting mends nothing there, so whoever starts it is told."""
    redis_client.set(STATE, "of another program")

    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        beat_of(app, tick=TICK)


@pytest.mark.parametrize("options", [{}, {"unique_for": 60}], ids=["plain", "unique"])
def test_what_beats_send_passes_extensions(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    """Their commands are done by the script that takes the turn: once, by any number of beats."""

    class Seal(Extension):
        name = "seal"

        def push(self, jobs: PushSlice) -> None:
            for job in jobs:
                job.add("seal", 1)
            jobs.write(("INCRBY", "seals", len(jobs)))

    program.use(Seal())
    try:
        beats = [beat_of(make_app(), tick={**TICK, "options": options}) for _ in range(2)]
        for _ in range(3):
            clock.advance(10)
            run_due(*beats)
    finally:
        program.reset()

    sent = 1 if options else 3
    assert [job["seal"] for job in jobs(redis_client)] == [1] * sent
    assert redis_client.get("seals") == str(sent).encode()
    assert json.loads(redis_client.hget(STATE, "tick"))[1] == 3


def test_a_name_that_is_not_utf_8_stops_no_other_entry(app: Celery, clock: Clock, redis_client: redis.Redis) -> None:
    """Whoever wrote it; an entry of that name that was added is sent like any other."""
    redis_client.hset(STATE, b"gone\xe9", "[0, 1]")
    redis_client.sadd(f"{STATE}:held", b"caf\xe9")
    redis_client.hset(f"{STATE}:added", b"added\xe9", '{"task": "proj.added", "schedule": {"every": 10}}')
    redis_client.hset(f"{STATE}:added", b"broken\xe9", b"\xff")

    beat = beat_of(app, tick=TICK)
    clock.advance(10)
    run_due(beat)

    assert sorted(job["class"] for job in jobs(redis_client)) == ["proj.added", "proj.tick"]
    assert redis_client.hkeys(STATE).count(b"added\xe9") == 1
    assert b"gone\xe9" not in redis_client.hkeys(STATE)


@pytest.mark.parametrize("text", [b"nonsense", b"[1]", b'["a", "b"]', b"[1e999, 1]", b"\xff", b"7", b"[" * 5000])
def test_a_state_that_another_program_has_overwritten_stops_no_other_entry(
    app: Celery, clock: Clock, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    """The entry counts as new once: it runs after its interval, however often its state is read in between."""
    redis_client.hset(STATE, "tick", text)
    other = {"task": "proj.other", "schedule": 10.0}
    beat = beat_of(app, tick=TICK, other=other)

    for _ in range(22):
        clock.advance(1)
        run_due(beat)

    assert sorted(job["class"] for job in jobs(redis_client)) == ["proj.other", "proj.other", "proj.tick", "proj.tick"]
    assert json.loads(redis_client.hget(STATE, "tick"))[1] == 2
    assert caplog.text.count("another program has overwritten the state of tick") == 1


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 5000,
        b'{"task":"a","schedule":{"every":5},"args":[{"__type__":"datetime","__value__":5}]}',
    ],
)
def test_an_added_entry_that_another_program_has_overwritten_stops_no_other_entry(
    app: Celery, clock: Clock, redis_client: redis.Redis, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is ignored, which is logged once, although Redis is read again and again."""
    redis_client.hset(f"{STATE}:added", "odd", text)
    beat = beat_of(app, tick=TICK)

    for _ in range(3):
        clock.advance(11)
        run_due(beat)

    assert {job["class"] for job in jobs(redis_client)} == {"proj.tick"}
    assert redis_client.hget(f"{STATE}:added", "odd") == text
    assert len([line for line in caplog.records if "is ignored" in line.getMessage()]) == 1
