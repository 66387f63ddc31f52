"""The request that `task_received` passes to its receivers, and the logger on which a worker writes of time limits."""

from sidekiq_celery._run.received import Request
from sidekiq_celery._run.task_log import requests as logger
from sidekiq_celery._wire.context import Context

__all__ = ("Context", "Request", "logger")
