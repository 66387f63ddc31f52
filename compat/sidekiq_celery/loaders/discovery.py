"""Finds the task modules in a program's packages."""

import importlib
from collections.abc import Iterable
from types import ModuleType

_is_discovering = False


def autodiscover_tasks(packages: Iterable[str], related_name: str | None = "tasks") -> list[ModuleType | None]:
    """Import `<package>.<related_name>` of each package. The list has None for packages without such a module."""
    global _is_discovering
    # A module that is being imported may finalize the app, which starts a discovery of its own.
    if _is_discovering:
        return []
    _is_discovering = True
    try:
        return [find_related_module(package, related_name) for package in packages]
    finally:
        _is_discovering = False


def find_related_module(package: str, related_name: str | None) -> ModuleType | None:
    """
    Import `<package>.<related_name>`, or the package itself without a name. Returns None if there is no such module.

    As in Django's INSTALLED_APPS, a package may also be named by a class in it.

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
