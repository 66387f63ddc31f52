"""Annotations of tasks, at Celery's path."""

from sidekiq_celery._config.annotations import MapAnnotation, prepare, resolve_all

__all__ = (
    "MapAnnotation",
    "prepare",
    "resolve_all",
)
