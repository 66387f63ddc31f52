"""django-celery-beat and django-celery-results: schedules and results in Django's database."""

import sys
import time

import django
from django.conf import settings

URL, DATABASE = sys.argv[1:3]
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django_celery_beat", "django_celery_results"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE, "OPTIONS": {"timeout": 60}}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    USE_TZ=True,
    CELERY_BROKER_URL=URL,
    CELERY_RESULT_BACKEND="django-db",
    CELERY_RESULT_EXTENDED=True,
    CELERY_BEAT_SCHEDULER="django_celery_beat.schedulers:DatabaseScheduler",
)
django.setup()

from celery import Celery, chain, group  # noqa: E402
from celery.beat import Service  # noqa: E402
from celery.contrib.testing.worker import start_worker  # noqa: E402
from celery.result import GroupResult  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django_celery_beat.models import IntervalSchedule, PeriodicTask  # noqa: E402
from django_celery_results.models import TaskResult  # noqa: E402

call_command("migrate", verbosity=0)
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.worker_hijack_root_logger = False


@app.task
def add(x, y):
    return x + y


@app.task
def fail():
    raise KeyError("on purpose")


second = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.SECONDS)
PeriodicTask.objects.create(interval=second, name="sum", task=add.name, args="[2, 3]")
scheduler = Service(app=app, scheduler_cls=app.conf.beat_scheduler).get_scheduler()
client = app.connection().default_channel.client
deadline = time.monotonic() + 60
while not client.llen("queue:celery") and time.monotonic() < deadline:
    time.sleep(max(0.0, min(scheduler.tick(), 0.1)))
assert b'"periodic_task_name":"sum"' in client.lindex("queue:celery", 0)
scheduler.sync()
assert PeriodicTask.objects.get(name="sum").total_run_count >= 1

with start_worker(app, loglevel=0):
    assert chain(add.s(1, 2), add.s(3))().get(timeout=60) == 6
    numbers = group(add.s(number, number) for number in range(3))()
    numbers.save()
    assert numbers.get(timeout=60) == [0, 2, 4]
    assert len(GroupResult.restore(numbers.id).results) == 3
    failed = fail.delay()
    failed.get(timeout=60, propagate=False)

stored = TaskResult.objects.get(task_id=failed.id)
assert (stored.status, stored.task_name) == ("FAILURE", "shop.fail")
assert TaskResult.objects.filter(task_name="shop.add", status="SUCCESS").count() >= 5
print("done")
