"""The loader for apps that a program creates."""

from sidekiq_celery.loaders.base import BaseLoader

__all__ = ("AppLoader",)


class AppLoader(BaseLoader):
    """A loader that takes settings from the app."""
