"""Celery's monitor in the terminal, which does not exist here."""

from typing import Any, NoReturn

from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("evtop",)

INSTEAD = (
    "there is no monitor in the terminal: use `sidekiq-celery events --dump`, or Flower, which works with these workers"
)


def evtop(app: Any = None) -> NoReturn:
    """
    Refused.

    Raises:
        ImproperlyConfigured: Always; it says what there is.
    """
    raise ImproperlyConfigured(INSTEAD)
