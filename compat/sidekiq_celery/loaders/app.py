"""The loader of apps that a program makes."""

from sidekiq_celery.loaders.base import BaseLoader

__all__ = ("AppLoader",)


class AppLoader(BaseLoader):
    """Settings come from the app."""
