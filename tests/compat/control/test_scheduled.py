"""The tasks with an ETA that a worker lists."""

from datetime import UTC, datetime

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
