"""The current app's tasks, as `registry.tasks`: an old name that instrumentation still uses."""

from typing import Any

from sidekiq_celery import _state
from sidekiq_celery.local import Proxy

__all__ = ("tasks",)

tasks: Any = Proxy(lambda: _state.get_current_app().tasks)
