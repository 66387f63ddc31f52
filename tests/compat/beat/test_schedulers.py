"""Schedulers that keep their entries in memory or in a database of their own, and beat beside a worker."""

from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
import redis
from kombu.utils.functional import lazy as kombus_lazy
from sidekiq_celery import Celery, signals
from sidekiq_celery.beat import EmbeddedService, PersistentScheduler, ScheduleEntry, Scheduler, Service
from sidekiq_celery.schedules import crontab, schedule
from sidekiq_celery.utils.functional import lazy

from tests.compat.beat.beats import TICK, jobs, run_due
from tests.compat.beat.clock import Clock
from tests.support.waiting import eventually


class Row:
    """What a row of a database would be."""

    def __init__(self, name: str, seconds: float, clock: Clock) -> None:
        self.name, self.seconds, self.clock = name, seconds, clock
        self.last_run_at = clock.now()
        self.enabled = True
        self.saves = 0


class RowEntry(ScheduleEntry):
    """Made of a row, without calling `__init__`, as entries of databases are."""

    def __init__(self, row: Row, app: Any = None) -> None:
        self.app, self.row = app, row
        self.name, self.task, self.args, self.kwargs, self.options = row.name, "proj.row", [row.name], {}, {}
        self.schedule = schedule(row.seconds, nowfun=row.clock.now, app=app)
        self.last_run_at = row.last_run_at

    def is_due(self) -> Any:
        return super().is_due() if self.row.enabled else (False, 5.0)

    def __next__(self) -> "RowEntry":  # type: ignore[override]
        self.row.last_run_at = self.row.clock.now()
        return type(self)(self.row, app=self.app)

    next = __next__  # type: ignore[assignment]

    def save(self) -> None:
        """Write the row."""
        self.row.saves += 1


class RowScheduler(Scheduler):
    """Reads its rows when they have changed, and writes those that were sent."""

    Entry = RowEntry
    rows: list[Row] = []
    sync_every_tasks = 1

    def setup_schedule(self) -> None:
        self.dirty: set[str] = set()
        self.entries = {row.name: RowEntry(row, app=self.app) for row in self.rows}

    @property
    def schedule(self) -> Any:  # type: ignore[override]
        return self.entries

    def reserve(self, entry: Any) -> Any:
        following = super().reserve(entry)
        self.dirty.add(following.name)
        return following

    def sync(self) -> None:
        for name in self.dirty:
            self.entries[name].save()
        self.dirty.clear()


def test_a_scheduler_of_a_database_can_be_plugged_in(app: Celery, clock: Clock, redis_client: redis.Redis) -> None:
    """By the setting `beat_scheduler`: it has its own entries and writes down what was sent."""
    RowScheduler.rows = [Row("a", 10, clock), Row("b", 20, clock)]
    app.conf.beat_scheduler = f"{__name__}:RowScheduler"
    beat = Service(app, scheduler_cls=app.conf.beat_scheduler).scheduler
    beat.sync_every_tasks = 1
    assert type(beat) is RowScheduler

    for _ in range(4):
        clock.advance(10)
        run_due(beat)

    assert [job["args"] for job in jobs(redis_client)].count(["a"]) == 4
    assert [job["args"] for job in jobs(redis_client)].count(["b"]) == 2
    assert [row.saves for row in RowScheduler.rows] == [4, 2]


def test_an_entry_that_a_database_disables_is_not_sent(app: Celery, clock: Clock, redis_client: redis.Redis) -> None:
    """Its own `is_due` decides."""
    RowScheduler.rows = [Row("a", 10, clock), Row("b", 10, clock)]
    beat = RowScheduler(app)
    RowScheduler.rows[0].enabled = False

    clock.advance(10)
    run_due(beat)

    assert [job["args"] for job in jobs(redis_client)] == [["b"]]


def test_a_scheduler_in_memory_starts_with_the_settings(app: Celery, clock: Clock, redis_client: redis.Redis) -> None:
    """`Scheduler` itself needs no Redis but to send."""
    app.conf.beat_schedule = {"tick": TICK}
    beat = Scheduler(app)

    clock.advance(10)
    run_due(beat)  # type: ignore[arg-type]

    assert len(jobs(redis_client)) == 1
    assert redis_client.keys("sidekiq_py:beat:*") == []


def test_an_entry_whose_next_run_cannot_be_told_does_not_stop_the_others(
    app: Celery, clock: Clock, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked again later."""

    class Broken(schedule):
        def is_due(self, last_run_at: Any) -> Any:
            raise ZeroDivisionError("no such day")

    app.conf.beat_schedule = {"broken": {"task": "proj.broken", "schedule": Broken(10)}, "tick": TICK}
    beat = PersistentScheduler(app)
    clock.advance(10)

    run_due(beat)

    assert [job["class"] for job in jobs(redis_client)] == ["proj.tick"]
    assert "Cannot calculate the next run of 'broken'" in caplog.text


def test_the_cleanup_of_results_is_scheduled_where_results_do_not_expire_by_themselves(app: Celery) -> None:
    """In Redis they do."""
    assert "celery.backend_cleanup" not in PersistentScheduler(app).schedule

    app.backend.supports_autoexpire = False

    entry = PersistentScheduler(app).schedule["celery.backend_cleanup"]
    assert entry.schedule == crontab(0, 4)
    assert entry.options == {"expires": 12 * 3600}


def test_entries_are_equal_by_what_they_send(app: Celery) -> None:
    """Not by when that was last."""
    one = ScheduleEntry("one", "proj.one", schedule=10, args=(1,), app=app)
    later = one.next(one.last_run_at + timedelta(days=1))

    assert one == later
    assert later.total_run_count == 1
    assert one != ScheduleEntry("one", "proj.one", schedule=11, args=(1,), app=app)
    assert repr(one) == "<ScheduleEntry: one proj.one(1) <freq: 10.00 seconds>"


@pytest.mark.parametrize("in_thread", [True, False])
def test_beat_runs_beside_a_worker(redis_url: str, redis_client: redis.Redis, in_thread: bool) -> None:
    """In a thread or in a process of its own, until it is stopped."""
    app = Celery("proj", broker=redis_url, set_as_current=False, fixups=[])
    app.conf.beat_schedule = {"tick": {"task": "proj.tick", "schedule": 0.05}}
    service = EmbeddedService(app, thread=in_thread)

    service.start()
    eventually(lambda: len(jobs(redis_client)) >= 2, within_seconds=60)
    service.stop()

    assert eventually(lambda: not service.is_alive(), within_seconds=60)
    app.close()


def test_beat_within_a_worker_of_threads_sends_the_signal_of_an_embedded_beat(app: Celery) -> None:
    """As with each of Celery's pools: programs connect to their database there."""
    seen: list[Any] = []
    beat = app.Worker(pool="threads", beat=True).beat

    def on_init(sender: Any, **_: Any) -> None:
        seen.append(sender)

    signals.beat_embedded_init.connect(on_init)
    try:
        beat.start()
        eventually(lambda: seen)
    finally:
        beat.stop()
        signals.beat_embedded_init.disconnect(on_init)

    assert seen == [beat.service]


def test_starting_beat_sends_its_signal(app: Celery) -> None:
    """`beat_init`, with the service."""
    seen: list[Any] = []
    service = Service(app)

    def on_init(sender: Any, **_: Any) -> None:
        seen.append(sender)
        service.stop()

    signals.beat_init.connect(on_init)
    try:
        service.start()
    finally:
        signals.beat_init.disconnect(on_init)

    assert seen == [service]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"task": "proj.tick", "schedule": "x"}, "schedule is 'x'; give seconds, a timedelta or a schedule"),
        ({"task": "proj.tick", "schedule": 10, "args": (1)}, "args is 1; give a list or tuple, such as (1,)"),
        ({"task": "proj.tick", "schedule": 10, "kwargs": 5}, "kwargs is 5; give a dict"),
        ({"task": "proj.tick", "schedule": 10, "options": 5}, "options is 5; give a dict"),
        ({"task": "proj.tick"}, "it has no schedule"),
        ({"schedule": 10}, "it has no task"),
        (
            {"task": "proj.tick", "schedule": 10, "queue": "q"},
            "unexpected keyword argument 'queue'. An entry is a dict",
        ),
        ("proj.tick", "An entry is a dict with task, schedule and"),
    ],
    ids=[
        *("no schedule", "no list", "no dict of arguments", "no dict of options", "schedule left out", "task left out"),
        *("an unknown key", "no dict"),
    ],
)
def test_a_beat_with_an_entry_that_cannot_be_read_names_it(
    app: Celery, caplog: pytest.LogCaptureFixture, entry: Any, message: str
) -> None:
    """In a line; the traceback alone would not say which of many entries it is."""
    app.conf.beat_schedule = {"good": TICK, "bad": entry}

    with pytest.raises(SystemExit):
        Service(app).start()

    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert record.message.startswith("beat cannot start: beat_schedule['bad'] cannot be read: ")
    assert message in record.message
    assert record.exc_info is None


def test_who_stops_a_beat_that_could_not_start_does_not_wait_for_it(app: Celery) -> None:
    """A worker with -B did so at its end, for ever."""

    class Broken(Scheduler):
        def setup_schedule(self) -> None:
            raise LookupError("no table of entries")

    service = Service(app, scheduler_cls=Broken)
    with pytest.raises(LookupError):
        service.start()

    stopping = Thread(target=service.stop, kwargs={"wait": True}, daemon=True)
    stopping.start()
    stopping.join(10)

    assert not stopping.is_alive()


def test_a_beat_within_a_worker_that_fails_says_so_in_the_log(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise its traceback goes to stderr, and from there into the log in many pieces."""

    class Broken(Scheduler):
        def setup_schedule(self) -> None:
            raise LookupError("no table of entries")

    beat = EmbeddedService(app, thread=True, scheduler_cls=Broken)
    with caplog.at_level("CRITICAL", "celery.beat"):
        beat.start()
        beat.join(10)

    [record] = caplog.records
    assert "the worker runs on without it" in record.message
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


def test_a_schedule_that_is_read_late_may_be_lazy(app: Celery) -> None:
    """By this package's `lazy`, which kombu does not know, as well as by kombu's."""
    for late in (lazy, kombus_lazy):
        scheduler = Scheduler(app, schedule=late(dict, tick=TICK), lazy=True)

        assert scheduler.data == {"tick": TICK}
        assert isinstance(scheduler.data, dict)
