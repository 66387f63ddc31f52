"""The current app's `send_task`, under an old name that programs still import."""

from typing import Any

from sidekiq_celery import _state
from sidekiq_celery.local import Proxy

__all__ = ("send_task",)

_app: Any = _state.current_app
send_task: Any = Proxy(lambda: _app.send_task)
