"""The tasks with an ETA that a worker lists."""

import time
from datetime import UTC, datetime

import redis
from sidekiq_celery import Celery
from sidekiq_celery.worker.task_info import waiting_jobs


def test_their_times_are_those_of_the_app_s_timezone(redis_url: str) -> None:
    """As in Celery, soonest first, also where the clock is put back."""
    app = Celery("proj", broker=redis_url, set_as_current=False)
    app.conf.timezone = "Europe/Berlin"
    app.task(name="proj.add")(lambda: None)
    for hour in (1, 0):
        app.send_task("proj.add", eta=datetime(2099, 10, 25, hour, 30, tzinfo=UTC))

    listed = waiting_jobs(app, "w1@here")

    assert [entry["eta"] for entry in listed] == ["2099-10-25T02:30:00+02:00", "2099-10-25T02:30:00+01:00"]
    app.close()


def test_a_time_in_milliseconds_hides_no_other_task(redis_url: str, redis_client: redis.Redis) -> None:
    """It lies in the year 60,000, which Python cannot convert."""
    app = Celery("proj", broker=redis_url, set_as_current=False)
    app.conf.timezone = "Asia/Tokyo"
    app.task(name="proj.add")(lambda: None)
    app.send_task("proj.add", eta=datetime(2099, 1, 1, tzinfo=UTC))
    [job] = redis_client.zrange("schedule", 0, -1)
    redis_client.zadd("schedule", {job.replace(b'"jid":"', b'"jid":"0'): time.time() * 1000})

    listed = waiting_jobs(app, "w1@here")

    assert [entry["eta"] for entry in listed] == ["2099-01-01T09:00:00+09:00", "9999-12-31T23:59:59.999999+00:00"]
    app.close()
