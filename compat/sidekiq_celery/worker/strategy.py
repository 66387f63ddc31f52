"""The logger on which a worker writes that it has received a task. Programs set its level."""

from sidekiq_celery._run.task_log import incoming as logger

__all__ = ("logger",)
