"""Fixups adapt an app to a framework."""

from types import ModuleType

from sidekiq_celery._submodules import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
