"""Loaders read settings and import modules. They are found by name or alias."""

from types import ModuleType
from typing import Any

from sidekiq_celery._submodules import submodule
from sidekiq_celery.utils.imports import import_from_cwd, symbol_by_name

__all__ = ("get_loader_cls",)

LOADER_ALIASES = {
    "app": "sidekiq_celery.loaders.app:AppLoader",
    "default": "sidekiq_celery.loaders.default:Loader",
}


def get_loader_cls(loader: Any) -> Any:
    """Return the class that *loader* names."""
    return symbol_by_name(loader, LOADER_ALIASES, imp=import_from_cwd)


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
