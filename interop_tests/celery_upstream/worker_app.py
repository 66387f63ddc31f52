"""The app of the worker that runs the tasks of Celery's integration tests."""

import os
from importlib import import_module

import sidekiq_celery

sidekiq_celery.install_as_celery()

app = sidekiq_celery.Celery("celery.tests", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.update(result_extended=True, task_create_missing_queues=False, timezone="UTC")
app.set_default()

from interop_tests.celery_upstream import absent_names  # noqa: E402 - under the alias

absent_names.stand_in()
import_module("sidekiq_celery.contrib.testing.tasks")

# Celery's tests are on the path here.
app.register_task(import_module("t.integration.tasks").ClassBasedAutoRetryTask())
