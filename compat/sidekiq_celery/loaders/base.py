"""What every loader does: read settings, import task modules, and react to the life of a worker."""

import importlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from types import ModuleType
from typing import Any

from sidekiq_celery import signals
from sidekiq_celery.contract import App
from sidekiq_celery.utils.collections import DictAttribute, force_mapping
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.utils.imports import NotAPackage, find_module, import_from_cwd, symbol_by_name

__all__ = ("BaseLoader", "autodiscover_tasks", "find_related_module")

_UNREAD = object()
_TYPED_VALUE = re.compile(r"\((\w+)\)")
_FROM_JSON = ("tuple", "list", "dict")
# The threads that are discovering tasks.
_discovering: set[int] = set()


class BaseLoader:
    """
    Reads settings and imports modules for one app.

    Args:
        app: The app.
    """

    builtin_modules: frozenset[str] = frozenset()
    configured = False
    override_backends: Mapping[str, str] = {}
    """More short names of result backends."""
    worker_initialized = False
    _conf: Any = _UNREAD

    def __init__(self, app: App, **kwargs: Any) -> None:
        self.app = app
        self.task_modules: set[str] = set()

    def now(self, utc: bool = True) -> datetime:
        """The current time; naive and local if *utc* is false."""
        return datetime.now(UTC) if utc else datetime.now()

    def on_task_init(self, task_id: str, task: Any) -> None:
        """Called before a task runs."""

    def on_process_cleanup(self) -> None:
        """Called after a task has run."""

    def on_worker_init(self) -> None:
        """Called when a worker starts."""

    def on_worker_shutdown(self) -> None:
        """Called when a worker stops."""

    def on_worker_process_init(self) -> None:
        """Called when a worker's child starts."""

    def import_task_module(self, module: str) -> ModuleType:
        """Import a task module."""
        self.task_modules.add(module)
        found: ModuleType = self.import_from_cwd(module)
        return found

    def import_module(self, module: str, package: str | None = None) -> Any:
        """Import a module."""
        return importlib.import_module(module, package=package)

    def import_from_cwd(self, module: str, imp: Callable[..., Any] | None = None, package: str | None = None) -> Any:
        """Import a module; the working directory is searched, too."""
        return import_from_cwd(module, self.import_module if imp is None else imp, package=package)

    def import_default_modules(self) -> list[Any]:
        """
        Import the modules that the settings and `autodiscover_tasks` name.

        Raises:
            Exception: A module raised it. It has to be raised here, because no log is set up yet.
        """
        for _, response in signals.import_modules.send(sender=self.app):
            if isinstance(response, Exception):
                raise response
        return [self.import_task_module(module) for module in self.default_modules]

    def init_worker(self) -> None:
        """Prepare for running tasks, once."""
        if not self.worker_initialized:
            self.worker_initialized = True
            self.import_default_modules()
            self.on_worker_init()

    def shutdown_worker(self) -> None:
        """Tell the program that the worker is stopping."""
        self.on_worker_shutdown()

    def init_worker_process(self) -> None:
        """Tell the program that a child is starting."""
        self.on_worker_process_init()

    def config_from_object(self, obj: Any, silent: bool = False) -> bool:
        """
        Take settings from *obj*: an object, or the name of a module or of an object in one.

        Returns:
            False if there is no such module and *silent* is true.
        """
        if isinstance(obj, str):
            try:
                obj = self._smart_import(obj, imp=self.import_from_cwd)
            except (ImportError, AttributeError):
                if silent:
                    return False
                raise
        self._conf = force_mapping(obj)
        backends = self._conf.get("override_backends")
        if backends is not None:
            self.override_backends = backends
        return True

    def _smart_import(self, path: str, imp: Callable[..., Any] | None = None) -> Any:
        find = self.import_module if imp is None else imp
        if ":" in path:
            return symbol_by_name(path, imp=find)
        try:
            return find(path)
        except ImportError:
            # Not a module, so perhaps an object in one.
            return symbol_by_name(path, imp=find)

    def _import_config_module(self, name: str) -> Any:
        try:
            self.find_module(name)
        except NotAPackage as exc:
            advice = f" Did you mean '{name[:-3]}'?" if name.endswith(".py") else ""
            text = f"Error: Module '{name}' doesn't exist, or it's not a valid Python module name.{advice}"
            raise NotAPackage(text) from exc
        return self.import_from_cwd(name)

    def find_module(self, module: str) -> Any:
        """Import a module; the working directory is searched, too. Raises if a part of its name is not a package."""
        return find_module(module)

    def cmdline_config_parser(
        self,
        args: Iterable[str],
        namespace: str = "celery",
        re_type: re.Pattern[str] = _TYPED_VALUE,
        extra_types: Mapping[str, Callable[[str], Any]] | None = None,
        override_types: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """
        Parse settings on a command line: `worker.concurrency=10`, `.imports=(list)["a"]`.

        Raises:
            ValueError: A value does not have the type of its setting.
        """
        from sidekiq_celery._config.defaults import TYPES, find_option

        types = {**TYPES, **(extra_types or {"json": json.loads})}
        renamed = override_types or dict.fromkeys(_FROM_JSON, "json")

        def parse(arg: str) -> tuple[str, Any]:
            key, _, value = arg.partition("=")
            key = key.lower().replace(".", "_")
            name = f"{namespace.lower()}{key}" if key.startswith("_") and namespace else key.removeprefix("_")
            typed = re_type.match(value)
            if typed:
                kind = typed.group(1)
                return name, types[renamed.get(kind, kind)](value[typed.end() :])
            try:
                return name, find_option(name).to_python(value)
            except ValueError as exc:
                raise ValueError(f"{name!r}: {exc}") from exc

        return dict(map(parse, args))

    def read_configuration(self, *args: Any, env: str = "CELERY_CONFIG_MODULE") -> Any:
        """The settings of the module that the variable *env* names; None if it is not set."""
        name = os.environ.get(env)
        return DictAttribute(self._import_config_module(name)) if name else None

    def autodiscover_tasks(self, packages: Iterable[str] | None, related_name: str | None = "tasks") -> None:
        """Import the task module of each package."""
        found = autodiscover_tasks(packages or (), related_name)
        self.task_modules.update(module.__name__ for module in found if module)

    @cached_property
    def default_modules(self) -> tuple[str, ...]:
        """The modules that the settings name."""
        conf = self.app.conf
        return (*self.builtin_modules, *(maybe_list(conf.imports) or ()), *(maybe_list(conf.include) or ()))

    @property
    def conf(self) -> Any:
        """The original settings, or None."""
        if self._conf is _UNREAD:
            self._conf = self.read_configuration()
        return self._conf


def autodiscover_tasks(packages: Iterable[str], related_name: str | None = "tasks") -> list[ModuleType | None]:
    """Import `<package>.<related_name>` of each package. The list has None for packages without such a module."""
    thread = threading.get_ident()
    # A module that is being imported may finalize the app, which starts a discovery of its own.
    if thread in _discovering:
        return []
    _discovering.add(thread)
    try:
        return [find_related_module(package, related_name) for package in packages]
    finally:
        _discovering.discard(thread)


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
