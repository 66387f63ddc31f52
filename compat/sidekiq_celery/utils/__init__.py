"""
Helpers under the names that programs import. The old flat names can still be imported from here; each is loaded on use.
"""

from importlib import import_module
from typing import Any

from sidekiq_celery._submodules import submodule
from sidekiq_celery.utils.ids import uuid

__all__ = ["uuid"]

_HOMES = {
    "LOG_LEVELS": ("sidekiq_celery.utils.log", "LOG_LEVELS"),
    "cached_property": ("kombu.utils.objects", "cached_property"),
    "chunks": ("sidekiq_celery.utils.functional", "chunks"),
    "gen_task_name": ("sidekiq_celery.utils.imports", "gen_task_name"),
    "gen_unique_id": ("sidekiq_celery.utils.ids", "uuid"),
    "get_cls_by_name": ("sidekiq_celery.utils.imports", "symbol_by_name"),
    "get_full_cls_name": ("sidekiq_celery.utils.imports", "qualname"),
    "import_from_cwd": ("sidekiq_celery.utils.imports", "import_from_cwd"),
    "instantiate": ("sidekiq_celery.utils.imports", "instantiate"),
    "memoize": ("kombu.utils.functional", "memoize"),
    "nodename": ("sidekiq_celery.utils.nodenames", "nodename"),
    "nodesplit": ("sidekiq_celery.utils.nodenames", "nodesplit"),
    "noop": ("sidekiq_celery.utils.functional", "noop"),
    "worker_direct": ("sidekiq_celery.utils.nodenames", "worker_direct"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return submodule(__name__, name)
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
