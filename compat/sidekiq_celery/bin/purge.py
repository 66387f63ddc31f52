"""The command `purge`, where Celery has it."""

from sidekiq_celery.bin.tasks import purge

__all__ = ("purge",)
