"""Django: its apps' tasks, its settings, its connections."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidekiq_celery.app.base import Celery

__all__ = ("DjangoFixup", "fixup")


def fixup(app: "Celery", env: str = "DJANGO_SETTINGS_MODULE") -> "DjangoFixup | None":
    """Adapt *app* to Django, if the variable *env* says that the program is one of Django's."""
    return DjangoFixup(app) if os.environ.get(env) else None


class DjangoFixup:
    """
    Makes an app the one of every thread, and finds the packages of Django's apps.

    Args:
        app: Whose.
    """

    def __init__(self, app: "Celery") -> None:
        self.app = app
        if _state_default_is_free():
            app.set_default()

    def autodiscover_tasks(self) -> list[Any]:
        """The packages in INSTALLED_APPS."""
        from django.apps import apps

        return [config.name for config in apps.get_app_configs()]


def _state_default_is_free() -> bool:
    from sidekiq_celery import _state

    return _state.default_app is None
