"""
Submodules as attributes of a package whose names are imported on first access.

`import celery` makes `celery.app.task` and `celery.utils.log` available as soon as anything has used them, and programs
rely on it: they write `celery.signals.task_prerun.connect` below `import celery`.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def submodule(package: str, name: str) -> ModuleType:
    """
    Import the public submodule *name* of *package*.

    Raises:
        AttributeError: There is no such submodule.
    """
    if name.startswith("_") or find_spec(f"{package}.{name}") is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return import_module(f"{package}.{name}")
