"""The worker, as an object that a program can create and run."""

from sidekiq_celery.worker.worker import WorkController

__all__ = ("WorkController",)
