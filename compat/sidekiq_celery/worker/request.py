"""What `task_received` tells of a job."""

from sidekiq_celery._run.received import Request

__all__ = ("Request",)
