"""Task routing, at Celery's path."""

import fnmatch
import re
from collections.abc import Mapping

from sidekiq_celery._config.routes import MapRoute, Router, expand_router_string, prepare
from sidekiq_celery.exceptions import QueueNotFound
from sidekiq_celery.utils.collections import lpmerge
from sidekiq_celery.utils.functional import maybe_evaluate, mlazy
from sidekiq_celery.utils.imports import symbol_by_name

__all__ = (
    "MapRoute",
    "Mapping",
    "QueueNotFound",
    "Router",
    "expand_router_string",
    "fnmatch",
    "lpmerge",
    "maybe_evaluate",
    "mlazy",
    "prepare",
    "re",
    "symbol_by_name",
)
