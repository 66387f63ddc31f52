"""Celery's guide "Periodic Tasks", walked through with the import and the command changed."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.schedules import crontab, solar

from tests.compat.documentation.conftest import WAIT_SECONDS, Run
from tests.support.celery_program import command, environment
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

SCHEDULE = "tests.compat.documentation.schedule"


def seen(client: redis.Redis, key: str) -> set[str]:
    """What tasks have left under a key."""
    return set(map(str, client.lrange(f"noted:{key}", 0, -1)))


@pytest.fixture
def start_beat(guide_redis: Any, client: redis.Redis) -> Iterator[Callable[..., SidekiqProcess]]:
    """Starts a command that runs beat, without waiting for it."""
    started: list[SidekiqProcess] = []

    def start(*arguments: str) -> SidekiqProcess:
        process = SidekiqProcess(
            command("-A", SCHEDULE, *arguments), redis_url=guide_redis.url, environment=environment()
        )
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.kill()
    client.delete("queue:celery", "queue:periodic", "noted:said", "noted:sums")


def test_beat_and_a_worker(start_beat: Callable[..., SidekiqProcess], client: redis.Redis) -> None:
    """Sections "Entries", "Scheduling groups and other workflows" and "Starting the Scheduler", with `-B`."""
    start_beat("worker", "-B", "-c", "2", "-l", "INFO", "-P", "threads")

    assert eventually(lambda: {"hello", "again"} <= seen(client, "said"), within_seconds=WAIT_SECONDS)
    assert eventually(lambda: {"32", "0", "2"} <= seen(client, "sums"), within_seconds=WAIT_SECONDS)


def test_beat_alone(start_beat: Callable[..., SidekiqProcess], client: redis.Redis, tmp_path: Path) -> None:
    """Section "Starting the Scheduler": `beat`, also with `-s`, which is not needed here."""
    start_beat("beat", "-l", "INFO", "-s", str(tmp_path / "schedule"))
    start_beat("worker", "-P", "solo")

    assert eventually(lambda: "hello" in seen(client, "said"), within_seconds=WAIT_SECONDS)


def test_the_schedule_can_be_listed(run: Run) -> None:
    """Beside the guide: what stands in the settings is shown by `beat list`."""
    listed = run("-A", SCHEDULE, "beat", "list")

    assert listed.returncode == 0, listed.stderr
    assert "add-every-monday-morning" in listed.stdout


def test_monday_morning() -> None:
    """Section "Crontab schedules": in the app's time zone."""
    app = Celery("zoned", broker="redis://", set_as_current=False)
    app.conf.timezone = "Europe/London"
    monday = crontab(hour=7, minute=30, day_of_week=1, app=app)
    before, after = datetime(2026, 6, 1, 6, 29, tzinfo=UTC), datetime(2026, 6, 1, 6, 30, tzinfo=UTC)

    monday.nowfun = lambda: after
    assert monday.is_due(before).is_due
    assert not monday.is_due(after).is_due


def test_the_guide_s_crontabs() -> None:
    """Section "Crontab schedules": each line of its table can be written."""
    lines = [
        {}, {"minute": 0, "hour": 0}, {"minute": 0, "hour": "*/3"}, {"minute": 0, "hour": "0,3,6,9,12,15,18,21"},
        {"minute": "*/15"}, {"day_of_week": "sunday"}, {"minute": "*", "hour": "*", "day_of_week": "sun"},
        {"minute": "*/10", "hour": "3,17,22", "day_of_week": "thu,fri"}, {"minute": 0, "hour": "*/2,*/3"},
        {"minute": 0, "hour": "*/5"}, {"minute": 0, "hour": "*/3,8-17"}, {"day_of_month": "2"},
        {"minute": 0, "hour": 0, "day_of_month": "2-30/2"}, {"minute": 0, "hour": 0, "day_of_month": "1-7,15-21"},
        {"minute": 0, "hour": 0, "day_of_month": "11", "month_of_year": "5"},
        {"minute": 0, "hour": 0, "month_of_year": "*/3"},
    ]  # fmt: skip

    assert len({repr(crontab(**line)) for line in lines}) == len(lines)


def test_sunset_in_melbourne() -> None:
    """Section "Solar schedules"."""
    pytest.importorskip("ephem")

    assert solar("sunset", -37.81753, 144.96715).is_due(datetime.now(UTC)).next > 0
