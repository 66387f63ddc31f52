"""Routing of tasks, at Celery's path."""

from sidekiq_celery._config.routes import MapRoute, Router, expand_router_string, prepare

__all__ = (
    "MapRoute",
    "Router",
    "expand_router_string",
    "prepare",
)
