"""Task annotations, at Celery's path."""

from sidekiq_celery._config.annotations import MapAnnotation, prepare, resolve_all
from sidekiq_celery.utils.functional import firstmethod, mlazy
from sidekiq_celery.utils.imports import instantiate

__all__ = (
    "MapAnnotation",
    "firstmethod",
    "instantiate",
    "mlazy",
    "prepare",
    "resolve_all",
)
