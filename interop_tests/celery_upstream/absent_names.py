"""
Internal names of Celery that test files import at the top, and that sidekiq_celery does not have.

Each gets a stand-in that fails when it is used, so that the other tests in the file can run.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_NAMES = {
    "celery": ("_find_option_with_arg", "_patch_eventlet", "_patch_gevent", "maybe_patch_concurrency"),
    "celery.backends.cache": ("DummyClient",),
    "celery.canvas": (
        "_clear_chord_option",
        "_fold_chain",
        "_maybe_group",
        "_merge_chain_step",
        "_merge_dictionaries",
        "_strip_chord_header_links",
        "uuid",
    ),
    "celery.loaders.base": ("unconfigured",),
    "celery.local": ("LazyModule", "LazyObject", "recreate_module", "try_import"),
    "celery.worker": ("state",),
    "celery.utils.collections": ("BufferMap", "Evictable", "LimitedSet", "Messagebuffer", "OrderedDict"),
}


def stand_in() -> None:
    """Add a stand-in for each missing name."""
    for module_name, names in _NAMES.items():
        module = import_module(module_name)
        for name in names:
            if not _has(module, name):
                # A class, because some of them are used with isinstance.
                setattr(module, name, type(name, (), {"__init__": _refusal(f"{module_name}.{name}")}))


def _has(module: ModuleType, name: str) -> bool:
    is_package = hasattr(module, "__path__")
    return hasattr(module, name) or (is_package and find_spec(f"{module.__name__}.{name}") is not None)


def _refusal(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"sidekiq_celery has no {name}")

    return refuse
