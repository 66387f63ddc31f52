"""Signals and who listens to them."""

from sidekiq_celery.utils.dispatch.signal import Signal

__all__ = ("Signal",)
