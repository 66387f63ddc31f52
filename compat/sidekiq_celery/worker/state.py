"""
Stands in for the module in which Celery's workers keep state in memory.

Here that state is spread over several processes and Redis. The error for each name that a program may look up says
where to ask for it instead.
"""

from typing import Any

from sidekiq_celery.worker.monitoring import SOFTWARE_INFO

__all__ = ("SOFTWARE_INFO", "should_stop", "should_terminate")

should_stop: Any = None
"""Read-only: stop a worker with a signal, or with `app.control.shutdown()`."""
should_terminate: Any = None
"""Read-only, as `should_stop`."""

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
    raise AttributeError(f"sidekiq_celery's workers do not keep {name} in memory{where}")
