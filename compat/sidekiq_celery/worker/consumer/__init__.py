"""The object passed to bootsteps of `app.steps["consumer"]`, and the parts that they may require."""

from sidekiq_celery.worker.consumer.connection import Connection
from sidekiq_celery.worker.consumer.consumer import Consumer
from sidekiq_celery.worker.consumer.control import Control
from sidekiq_celery.worker.consumer.events import Events
from sidekiq_celery.worker.consumer.heart import Heart
from sidekiq_celery.worker.consumer.tasks import Tasks

__all__ = ("Connection", "Consumer", "Control", "Events", "Heart", "Tasks")
