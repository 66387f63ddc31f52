"""Beats that send unique tasks."""

import json
from collections.abc import Callable

import redis
from sidekiq_celery import Celery

from tests.compat.beat.beats import beat_of, jobs, run_due
from tests.compat.beat.clock import Clock
from tests.compat.beat.conftest import _current_app_stays, app, clock, make_app

__all__ = ("_current_app_stays", "app", "clock", "make_app")


def test_beat_leaves_out_a_run_whose_task_is_there(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis, holders: Callable[[], list[str]]
) -> None:
    """The lock is taken by the script that takes the turn, whichever beat does; the run counts as done."""
    beats = []
    for _ in range(2):
        app = make_app()
        app.task(lambda: None, name="proj.tick", unique_for=600)
        beats.append(beat_of(app, tick={"task": "proj.tick", "schedule": 10}))

    for _ in range(5):
        clock.advance(10)
        run_due(*beats)

    [job] = jobs(redis_client)
    assert holders() == [job["jid"]]
    assert json.loads(redis_client.hget("sidekiq_py:beat:proj", "tick"))[1] == 5

    redis_client.delete(*redis_client.keys("sidekiq_py:unique:*"))
    clock.advance(10)
    run_due(*beats)

    assert len(jobs(redis_client)) == 2
