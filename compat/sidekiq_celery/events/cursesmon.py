"""Celery's terminal monitor, which is not available here."""

from typing import Any, NoReturn

from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("evtop",)

INSTEAD = (
    "there is no monitor in the terminal: use `sidekiq-celery events --dump`, or Flower, which works with these workers"
)


def evtop(app: Any = None) -> NoReturn:
    """
    Refuse to run.

    Raises:
        ImproperlyConfigured: Always. The message names the alternatives.
    """
    raise ImproperlyConfigured(INSTEAD)
