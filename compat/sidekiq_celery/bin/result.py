"""The command `result`, where Celery has it."""

from sidekiq_celery.bin.tasks import result

__all__ = ("result",)
