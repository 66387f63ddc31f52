"""The request that `task_received` passes to its receivers."""

from sidekiq_celery._run.received import Request

__all__ = ("Request",)
