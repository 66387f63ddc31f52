"""The app and its settings."""

import os

from sidekiq_celery import Celery
from sidekiq_celery.schedules import crontab

REDIS_URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")

app = Celery("shop", broker=REDIS_URL, backend=REDIS_URL, include=["shop.tasks"])
app.conf.update(
    task_routes={"shop.tasks.send_mail": {"queue": "mails"}},
    task_time_limit=60,
    result_expires=3600,
    timezone="Europe/Berlin",
    beat_schedule={
        "count the stock": {"task": "shop.tasks.count_stock", "schedule": 1.0},
        "close the books": {"task": "shop.tasks.close_books", "schedule": crontab(hour=23, minute=55)},
    },
)
