"""The command `call`, where Celery has it."""

from sidekiq_celery.bin.tasks import call

__all__ = ("call",)
