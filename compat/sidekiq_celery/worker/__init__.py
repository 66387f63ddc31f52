"""The worker as a part of a program."""

from sidekiq_celery.worker.worker import WorkController

__all__ = ("WorkController",)
