"""Celery's guide "First steps with Django", walked through with the import and the command changed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compat.documentation.conftest import WAIT_SECONDS
from tests.support.celery_program import command
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS, SidekiqProcess

pytest.importorskip("django")

FILES = {
    "site_/__init__.py": "from site_.celery import app as celery_app\n\n__all__ = ('celery_app',)\n",
    "site_/settings.py": """
import os
SECRET_KEY = "no secret"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}}
INSTALLED_APPS = ["people"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
CELERY_BROKER_URL = CELERY_RESULT_BACKEND = os.environ["REDIS_URL"]
CELERY_TIMEZONE = "Australia/Tasmania"
CELERY_TASK_TRACK_STARTED = True
CELERY_TASK_TIME_LIMIT = 30 * 60
CELERY_TASK_DEFAULT_QUEUE = "of_django"
""",
    "site_/celery.py": """
import os
from sidekiq_celery import Celery
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_.settings")
app = Celery("site_")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

@app.task(bind=True, ignore_result=True)
def debug_task(self):
    print(f"Request: {self.request!r}")
""",
    "people/__init__.py": "",
    "people/models.py": """
from django.db import models
class Person(models.Model):
    name = models.CharField(max_length=64)
    greeted = models.BooleanField(default=False)
""",
    "people/tasks.py": """
from sidekiq_celery import shared_task
from people.models import Person

@shared_task
def greet(pk):
    person = Person.objects.get(pk=pk)
    person.greeted = True
    person.save()
    return f"hello {person.name}"
""",
    "views.py": """
import django
django.setup()
from django.db import connection, transaction
from people.models import Person
from people.tasks import greet
from site_.celery import app, debug_task

published = []

from sidekiq_celery.signals import after_task_publish

@after_task_publish.connect
def count(sender=None, **kwargs):
    published.append(sender)

with connection.schema_editor() as editor:
    editor.create_model(Person)
with transaction.atomic():
    person = Person.objects.create(name="ann")
    greet.delay_on_commit(person.pk)
    print(len(published))
greet.apply_async_on_commit((person.pk,))
done = greet.delay(person.pk)
print(done.get(timeout=60))
debug_task.delay()
person.refresh_from_db()
conf = app.conf
sent = published.count("people.tasks.greet")
print(sent, person.greeted, conf.timezone, conf.task_track_started, conf.task_time_limit)
""",
}


@pytest.fixture
def project(tmp_path: Path, guide_redis: Any) -> dict[str, str]:
    """The project's files; gives the environment in which it runs."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return {
        "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, *SOURCE_ROOTS))),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "site_.settings",
        "DATABASE": str(tmp_path / "database"),
        "REDIS_URL": guide_redis.url,
    }


def test_a_project_of_django_s(project: dict[str, str], tmp_path: Path, guide_redis: Any) -> None:
    """All its sections: settings, discovery, `shared_task`, the transaction, and the worker."""
    arguments = ("--workdir", str(tmp_path), "-A", "site_", "worker", "-l", "INFO", "-P", "threads", "-c", "1")
    worker = SidekiqProcess(command(*arguments), redis_url=guide_redis.url, environment=project)
    worker.start()
    try:
        ran = subprocess.run(
            [sys.executable, "views.py"],
            cwd=tmp_path, env={**os.environ, **project}, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr + worker.log_tail()
        assert ran.stdout.splitlines() == ["0", "hello ann", "3 True Australia/Tasmania True 1800"]
        assert eventually(lambda: "Request: <Context" in worker.log, within_seconds=WAIT_SECONDS)
    finally:
        worker.stop()
    assert worker.log.count("people.tasks.greet") >= 4
