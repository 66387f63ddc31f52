"""Modules and the names in them, found by text."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module, reload
from types import ModuleType
from typing import Any

from sidekiq_celery.contract import App

__all__ = (
    "NotAPackage",
    "cwd_in_path",
    "find_module",
    "gen_task_name",
    "import_from_cwd",
    "instantiate",
    "module_file",
    "qualname",
    "reload_from_cwd",
    "symbol_by_name",
)

_NAMES_IN_CELERY = "celery."


class NotAPackage(Exception):
    """A name with dots leads through a module that is no package."""


def qualname(obj: Any) -> str:
    """The full name of a class or a function, or of the class of anything else."""
    named = obj if hasattr(obj, "__name__") else obj.__class__
    name: str = named.__qualname__
    return name if "." in name else f"{named.__module__}.{name}"


def own_name(path: str) -> str:
    """*path* with `celery.` read as this package: settings keep naming `celery.beat:PersistentScheduler` and such."""
    return f"sidekiq_{path}" if path.startswith(_NAMES_IN_CELERY) else path


def symbol_by_name(
    name: Any,
    aliases: Mapping[str, str] | None = None,
    imp: Callable[..., Any] | None = None,
    package: str | None = None,
    sep: str = ".",
    default: Any = None,
    **kwargs: Any,
) -> Any:
    """
    What *name* says: `module:attribute` or `module.attribute`. What is not a text is returned as it is.

    Args:
        aliases: Short names for long ones.
        imp: Imports a module, instead of `importlib.import_module`.
        default: Returned if there is no such thing; None raises.

    Raises:
        ImportError, AttributeError: There is no such module, or nothing of that name in it.
        ValueError: The module cannot be imported for another reason.
    """
    if not isinstance(name, str):
        return name
    path = own_name((aliases or {}).get(name) or name)
    separator = ":" if ":" in path else sep
    module_name, _, attribute = path.rpartition(separator)
    if not module_name:
        module_name, attribute = (attribute, "") if package is None else (package, attribute)
    try:
        module = (imp or import_module)(module_name, package=package, **kwargs)
        return getattr(module, attribute) if attribute else module
    except (ImportError, AttributeError):
        if default is None:
            raise
    return default


def instantiate(name: Any, *args: Any, **kwargs: Any) -> Any:
    """The class that *name* says, called."""
    return symbol_by_name(name)(*args, **kwargs)


@contextmanager
def cwd_in_path() -> Iterator[str | None]:
    """Modules in the working directory can be imported within."""
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = ""
    if not cwd or cwd in sys.path:
        yield None
        return
    sys.path.insert(0, cwd)
    try:
        yield cwd
    finally:
        if cwd in sys.path:
            sys.path.remove(cwd)


def find_module(module: str, path: Any = None, imp: Callable[[str], Any] | None = None) -> Any:
    """
    The module named *module*, also from the working directory.

    Raises:
        NotAPackage: A part of the name but the last is no package.
        ImportError: There is no such module.
    """
    find = imp or import_module
    with cwd_in_path():
        try:
            return find(module)
        except ImportError:
            parts = module.split(".")
            for count in range(1, len(parts)):
                package = ".".join(parts[:count])
                try:
                    found = find(package)
                except ImportError:
                    break
                if not hasattr(found, "__path__"):
                    raise NotAPackage(package) from None
            raise


def import_from_cwd(module: str, imp: Callable[..., Any] | None = None, package: str | None = None) -> Any:
    """The module named *module*; those in the working directory come first."""
    with cwd_in_path():
        return (imp or import_module)(module, package=package)


def reload_from_cwd(module: ModuleType, reloader: Callable[[ModuleType], Any] | None = None) -> Any:
    """*module* read again."""
    with cwd_in_path():
        return (reloader or reload)(module)


def module_file(module: ModuleType) -> str:
    """The source file of *module*."""
    name = module.__file__ or ""
    return name[:-1] if name.endswith(".pyc") else name


@cache
def load_extension_class_names(namespace: str) -> tuple[tuple[str, str], ...]:
    """Names and classes, as texts, that installed packages add under *namespace* (`celery.commands` and so on)."""
    from importlib.metadata import entry_points

    return tuple((point.name, point.value) for point in entry_points(group=namespace))


def load_extension_classes(namespace: str) -> Iterator[tuple[str, Any]]:
    """The same, with the classes themselves; those that cannot be imported are warned of and left out."""
    for name, class_name in load_extension_class_names(namespace):
        try:
            found = symbol_by_name(class_name)
        except (ImportError, SyntaxError) as exc:
            warnings.warn(f"Cannot load {namespace} extension {class_name!r}: {exc!r}", stacklevel=2)
        else:
            yield name, found


def gen_task_name(app: App, name: str, module_name: str | None) -> str:
    """`module.name`; the module that runs as a script is called as the app is."""
    module = sys.modules.get(module_name or "__main__")
    known_as = module.__name__ if module is not None else module_name or "__main__"
    if known_as == "__main__" and app.main:
        return f"{app.main}.{name}"
    return ".".join(filter(None, (known_as, name)))
