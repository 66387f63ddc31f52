"""Beats to tick by hand, and what they leave in Redis."""

from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.beat import PersistentScheduler
from sidekiq_celery.schedules import solar

from tests.support.queued_jobs import queued_jobs

TICK = {"task": "proj.tick", "schedule": 10}


def beat_of(app: Celery, **schedule: Any) -> PersistentScheduler:
    """A beat that has just started."""
    app.conf.beat_schedule = schedule
    return PersistentScheduler(app)


def run_due(*beats: PersistentScheduler) -> None:
    """Have beats do all that there is to do at this time."""
    for beat in beats:
        while beat.tick() == 0:
            pass


def jobs(client: redis.Redis, queue: str = "celery") -> list[dict[str, Any]]:
    """The jobs of a queue, the oldest first."""
    return queued_jobs(client, queue)


def sunset() -> solar:
    """In Berlin; the test is skipped without the extra that computes it."""
    pytest.importorskip("ephem")
    return solar("sunset", 52.5, 13.4)
