"""Finds modules and objects by name."""

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
    """A dotted name leads through a module that is not a package."""


def qualname(obj: Any) -> str:
    """Return the full name of a class or function; for anything else, that of its class."""
    named = obj if hasattr(obj, "__name__") else obj.__class__
    name: str = named.__qualname__
    return name if "." in name else f"{named.__module__}.{name}"


def own_name(path: str) -> str:
    """Map `celery.` to this package, so that settings can still name `celery.beat:PersistentScheduler` and the like."""
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
    Return the object that *name* refers to: `module:attribute` or `module.attribute`. Anything but text is returned as
    it is.

    Args:
        aliases: Maps short names to long ones.
        imp: Imports a module; by default `importlib.import_module`.
        default: The return value if there is no such object; with None, the error is raised.

    Raises:
        ImportError, AttributeError: There is no such module, or it has no such attribute.
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
    """Call the class that *name* refers to."""
    return symbol_by_name(name)(*args, **kwargs)


@contextmanager
def cwd_in_path() -> Iterator[str | None]:
    """Make modules in the working directory importable within the block."""
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
    Import *module*; the working directory is searched, too.

    Raises:
        NotAPackage: A part of the name before the last is not a package.
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
    """Import *module*. Modules in the working directory take precedence."""
    with cwd_in_path():
        return (imp or import_module)(module, package=package)


def reload_from_cwd(module: ModuleType, reloader: Callable[[ModuleType], Any] | None = None) -> Any:
    """Reload *module*."""
    with cwd_in_path():
        return (reloader or reload)(module)


def module_file(module: ModuleType) -> str:
    """The source file of *module*."""
    name = module.__file__ or ""
    return name[:-1] if name.endswith(".pyc") else name


@cache
def load_extension_class_names(namespace: str) -> tuple[tuple[str, str], ...]:
    """Names and class paths that installed packages register under *namespace* (`celery.commands` and so on)."""
    from importlib.metadata import entry_points

    return tuple((point.name, point.value) for point in entry_points(group=namespace))


def load_extension_classes(namespace: str) -> Iterator[tuple[str, Any]]:
    """Yield the names with the imported classes. A class that cannot be imported causes a warning and is skipped."""
    for name, class_name in load_extension_class_names(namespace):
        try:
            found = symbol_by_name(class_name)
        except (ImportError, SyntaxError) as exc:
            warnings.warn(f"Cannot load {namespace} extension {class_name!r}: {exc!r}", stacklevel=2)
        else:
            yield name, found


def gen_task_name(app: App, name: str, module_name: str | None) -> str:
    """Return `module.name`. The module that runs as a script has the app's name."""
    module = sys.modules.get(module_name or "__main__")
    known_as = module.__name__ if module is not None else module_name or "__main__"
    if known_as == "__main__" and app.main:
        return f"{app.main}.{name}"
    return ".".join(filter(None, (known_as, name)))
