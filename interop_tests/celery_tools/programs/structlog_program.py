"""Writes what django-structlog logs about tasks, with its bootstep in the worker."""

import os

import django
import sides
import structlog
from django.conf import settings

settings.configure(INSTALLED_APPS=["django_structlog"], DJANGO_STRUCTLOG_CELERY_ENABLED=True)
django.setup()
structlog.configure(
    processors=[structlog.contextvars.merge_contextvars, structlog.processors.KeyValueRenderer(sort_keys=True)],
    logger_factory=structlog.WriteLoggerFactory(open(os.environ["SEEN"], "a", buffering=1)),  # noqa: SIM115
)

from django_structlog.celery.steps import DjangoStructLogInitStep  # noqa: E402

app = sides.made_app()
app.steps["worker"].add(DjangoStructLogInitStep)


def wait():
    sides.wait_for(app)


def main():
    sides.send_all(app)
    app.send_task("tools.unknown")
    app.tasks["tools.add"].apply_async((1, 1), expires=-1)
    app.tasks["tools.add"].delay(1, 1).get(timeout=sides.ENDS)
