"""Beat's entries among the periodic jobs of `sidekiq-py cron list`."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from sidekiq_celery import Celery, beat_state
from sidekiq_celery._beat import listing
from sidekiq_celery._beat.persistent import PersistentScheduler
from sidekiq_celery.schedules import crontab

from sidekiq_py import program
from sidekiq_py.api import CronJobs
from sidekiq_py.cli import main
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings


@pytest.fixture
def listed(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """What the command prints."""
    monkeypatch.setenv("REDIS_URL", redis_url)

    def run() -> list[dict[str, Any]]:
        program.reset()
        result = CliRunner().invoke(main, ["cron", "list", "--json"], prog_name="sidekiq-py")
        assert result.exit_code == 0, result.output
        found: list[dict[str, Any]] = json.loads(result.stdout)
        return found

    return run


def test_what_a_beat_sends_is_listed_beside_periodic_jobs(
    redis_url: str, listed: Callable[[], list[dict[str, Any]]]
) -> None:
    """With its task, its schedule as text, and the app."""
    app = Celery("shop", broker=redis_url)
    app.conf.beat_schedule = {
        "report": {"task": "shop.report", "schedule": crontab(minute=0, hour=9)},
        "poll": {"task": "shop.poll", "schedule": 10.0},
    }

    PersistentScheduler(app=app)

    found = {entry["name"]: entry for entry in listed()}
    assert (found["report"]["cron"], found["report"]["class"]) == ("0 9 * * *", "shop.report")
    assert found["report"]["by"] == "celery beat shop"
    assert found["poll"]["cron"] == "every 10.00 seconds"
    assert found["poll"]["last_enqueue_time"] is None


def test_a_paused_entry_is_shown_as_disabled(redis_url: str, listed: Callable[[], list[dict[str, Any]]]) -> None:
    """No beat sends it until it is resumed."""
    app = Celery("shop", broker=redis_url)
    app.conf.beat_schedule = {name: {"task": "shop.poll", "schedule": 10.0} for name in ("poll", "report")}
    PersistentScheduler(app=app)

    beat_state.pause(app, "poll")

    found = {entry["name"]: entry["enabled"] for entry in listed()}
    assert (found["poll"], found["report"]) == (False, True)


def test_entries_are_not_listed_as_enabled_by_a_user_who_may_not_see_which_are_paused(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """It is an error that names the right."""
    app = Celery("shop", broker=redis_url)
    app.conf.beat_schedule = {"poll": {"task": "shop.poll", "schedule": 10.0}}
    PersistentScheduler(app=app)
    beat_state.pause(app, "poll")
    redis_client.execute_command("ACL", "SETUSER", "half", "reset", "on", ">pw", "~*", "+@all", "-smembers")
    try:
        with pytest.raises(RedisReplyError, match=r"NOPERM .*smembers"):
            list(listing.entries(Pool(RedisSettings(redis_url.replace("://", "://half:pw@")))))
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")


def test_what_no_beat_has_confirmed_for_a_day_is_shown_no_more(
    redis_client: redis.Redis, listed: Callable[[], list[dict[str, Any]]]
) -> None:
    """Nor what nobody can read."""
    redis_client.hset(listing.BEATS, "old", json.dumps({"at": 1000, "entries": {"a": ["t", "s"]}}))
    redis_client.hset(listing.BEATS, "damaged", "{")

    assert listed() == []


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        '{"at":1e12,"entries":{"a":5}}',
        '{"at":1e12,"entries":[["a",1]]}',
        '{"at":1e12,"entries":{"a":["t","s"]}}',
    ],
)
@pytest.mark.parametrize("run", ["[" * 5000, "[1e300,1]", "[1e17,1]", "{}"])
def test_what_another_program_has_written_hides_no_other_entry(
    redis_url: str, redis_client: redis.Redis, listed: Callable[[], list[dict[str, Any]]], text: str, run: str
) -> None:
    """Among the lists of entries, their runs, and the keys of these."""
    app = Celery("shop", broker=redis_url, set_as_current=False)
    app.conf.beat_schedule = {"poll": {"task": "shop.poll", "schedule": 10.0}}
    PersistentScheduler(app=app)
    redis_client.hset(listing.BEATS, mapping={"damaged": text, "odd": text})
    redis_client.hset("sidekiq_py:beat:damaged", "a", run)
    redis_client.set("sidekiq_py:beat:odd", "a string")

    assert "poll" in [entry["name"] for entry in listed()]


def test_the_entries_are_those_of_the_redis_that_is_shown(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dashboard with several servers shows each one's own, and not the program's."""
    PersistentScheduler(app=Celery("shop", broker=redis_url, set_as_current=False))
    monkeypatch.setenv("REDIS_URL", "redis://localhost:1")
    program.reset()

    found = CronJobs(pool=redis_client).others()

    assert [entry["by"] for entry in found] == ["celery beat shop"]
