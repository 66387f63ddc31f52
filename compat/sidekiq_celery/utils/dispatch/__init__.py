"""Signals and their receivers."""

from sidekiq_celery.utils.dispatch.signal import Signal

__all__ = ("Signal",)
