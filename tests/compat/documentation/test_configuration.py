"""Celery's guide "Configuration and defaults", walked through with the import changed."""

import re
from typing import Any

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.schedules import crontab


def app_with(**settings: Any) -> Celery:
    """An app with these settings."""
    app = Celery("configured", set_as_current=False)
    app.conf.update(settings)
    return app


def test_the_example_file() -> None:
    """Section "Example configuration file", with a broker of Redis."""
    app = app_with(
        broker_url="redis://localhost:6379/0",
        imports=("json",),
        result_backend="redis://localhost:6379/1",
        task_annotations={"tasks.add": {"rate_limit": "10/s"}},
    )

    assert app.conf.imports == ("json",)
    assert app.backend.as_uri().startswith("redis://localhost:6379/1")


def test_old_names_become_new_ones() -> None:
    """Section "New lowercase settings"."""
    app = Celery("old", set_as_current=False)
    app.config_from_object({"CELERY_DEFAULT_QUEUE": "old", "CELERYD_CONCURRENCY": 3, "CELERY_TASK_RESULT_EXPIRES": 60})

    assert (app.conf.task_default_queue, app.conf.worker_concurrency, app.conf.result_expires) == ("old", 3, 60)


def test_annotations_change_tasks_by_name_or_all() -> None:
    """Section "task_annotations": a mapping, `*`, or objects that look at the task."""

    class Slower:
        def annotate(self, task: Any) -> dict[str, Any] | None:
            return {"rate_limit": "5/s"} if task.name.startswith("tasks.") else None

    by_name, to_all = app_with(task_annotations={"*": {"rate_limit": "10/s"}}), app_with(task_annotations=(Slower(),))
    found = []
    for app in (by_name, to_all):
        found.append(app.task(lambda: None, name="tasks.add"))

    assert [task.rate_limit for task in found] == ["10/s", "5/s"]


@pytest.mark.parametrize(
    "url",
    ["redis://:password@hostname:6379/3", "rediss://hostname/0?ssl_cert_reqs=none", "redis+socket:///tmp/redis.sock",
     "sentinel://localhost:26379/0;sentinel://localhost:26380/0"],
)  # fmt: skip
def test_brokers_of_redis(url: str) -> None:
    """Section "Broker Settings" and "Redis backend settings": each form of URL."""
    from sidekiq_celery._config.broker import redis_settings

    app = app_with(broker_url=url, broker_transport_options={"master_name": "mymaster"})

    assert redis_settings(app).url


@pytest.mark.parametrize("url", ["amqp://guest@localhost//", "sqs://key:secret@", "filesystem://"])
def test_other_brokers_are_refused_with_advice(url: str) -> None:
    """Section "Broker Settings"."""
    with pytest.raises(ImproperlyConfigured, match="bridge"):
        app_with(broker_url=url).send_task("any")


@pytest.mark.parametrize("url", ["elasticsearch://host/index", "mongodb://localhost", "s3", "rpc://", "file:///tmp"])
def test_other_result_backends_are_refused_with_advice(url: str) -> None:
    """Sections of the other back ends."""
    with pytest.raises(ImproperlyConfigured, match=re.compile("redis", re.IGNORECASE)):
        app_with(result_backend=url).backend.get_state("any")


def test_a_schedule_is_a_setting() -> None:
    """Section "beat_schedule"."""
    entry = {"task": "tasks.add", "schedule": crontab(minute=0), "args": (1, 2), "options": {"queue": "periodic"}}

    assert app_with(beat_schedule={"hourly": entry}).conf.beat_schedule["hourly"]["options"] == {"queue": "periodic"}
