"""Finding the modules of tasks beside the packages of a program."""

import importlib
from collections.abc import Iterable
from types import ModuleType

__all__ = ("autodiscover_tasks", "find_related_module")

_is_discovering = False


def autodiscover_tasks(packages: Iterable[str], related_name: str | None = "tasks") -> list[ModuleType | None]:
    """`<package>.<related_name>` of each package, imported; None for those that have none."""
    global _is_discovering
    # A module that is being imported may finalize the app, which discovers.
    if _is_discovering:
        return []
    _is_discovering = True
    try:
        return [find_related_module(package, related_name) for package in packages]
    finally:
        _is_discovering = False


def find_related_module(package: str, related_name: str | None) -> ModuleType | None:
    """
    `<package>.<related_name>`, imported; the package itself without a name. None if there is no such module.

    A package may also be named by a class in it, as in Django's INSTALLED_APPS.

    Raises:
        ModuleNotFoundError: There is no such package, or the module imports one that is missing.
    """
    try:
        module = importlib.import_module(package)
        if not related_name:
            return module
    except ModuleNotFoundError:
        package = package.rpartition(".")[0]
        if not package:
            raise
    wanted = f"{package}.{related_name}"
    try:
        return importlib.import_module(wanted)
    except ModuleNotFoundError as error:
        if error.name == wanted:
            return None
        raise
