"""
What Celery's workers keep in their memory.

Here several processes have it, and Redis: each name that programs may look for says where it is to be asked.
"""

from typing import Any

from sidekiq_celery.worker.monitoring import SOFTWARE_INFO

__all__ = ("SOFTWARE_INFO", "should_stop", "should_terminate")

should_stop: Any = None
"""To be read: a worker here is stopped by a signal, or by `app.control.shutdown()`."""
should_terminate: Any = None
"""The same."""

_ELSEWHERE = {
    "active_requests": "app.control.inspect().active()",
    "reserved_requests": "app.control.inspect().reserved()",
    "scheduled_requests": "app.control.inspect().scheduled()",
    "requests": "app.control.inspect().query_task(id)",
    "revoked": "app.control.inspect().revoked()",
    "total_count": "app.control.inspect().stats()",
    "all_total_count": "app.control.inspect().stats()",
}


def __getattr__(name: str) -> Any:
    where = f"; use {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
    raise AttributeError(f"workers of sidekiq_celery keep no {name} in a process's memory{where}")
