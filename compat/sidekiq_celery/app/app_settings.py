"""How an app is configured: where settings come from, which modules are imported, its time."""

import os
from datetime import datetime
from functools import cached_property
from typing import Any

from sidekiq_celery import signals
from sidekiq_celery._config import configuring
from sidekiq_celery.app.app_state import AppState
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.loaders import get_loader_cls
from sidekiq_celery.utils.functional import first
from sidekiq_celery.utils.time import timezone

__all__ = ("AppSettings",)


class AppSettings(AppState):
    """The settings of an app."""

    def add_defaults(self, fun: Any) -> None:
        """Add settings behind those that the program has set: a mapping, or a function that returns one."""
        given = fun if callable(fun) else lambda: fun
        if self.configured:
            self.conf.add_defaults(given())
        else:
            self._pending_defaults.append(given)

    def config_from_object(
        self, obj: Any, silent: bool = False, force: bool = False, namespace: str | None = None
    ) -> Any:
        """
        Take settings from *obj*: an object, a dict, or the name of a module or of something in one.

        Args:
            silent: A module that is missing is no error.
            force: Read them now; else when one is first asked for.
            namespace: The settings bear it in front, in capitals.
        """
        self._config_source = obj
        self._config_source_silent = silent
        self.namespace = namespace or self.namespace
        if (force or self.configured) and self.loader.config_from_object(obj, silent=silent):
            self._conf = None
            return self.conf
        return None

    def config_from_envvar(self, variable_name: str, silent: bool = False, force: bool = False) -> Any:
        """
        Take settings from the module that an environment variable names.

        Raises:
            ImproperlyConfigured: The variable is not set, and *silent* is false.
        """
        module_name = os.environ.get(variable_name)
        if module_name:
            return self.config_from_object(module_name, silent=silent, force=force)
        if silent:
            return False
        raise ImproperlyConfigured(
            f"The environment variable {variable_name!r} is not set, and as such the configuration could not be loaded."
            f' Please set it to a module of settings, as in {variable_name}="proj.celeryconfig"'
        )

    def config_from_cmdline(self, argv: list[str], namespace: str = "celery") -> None:
        """Take settings from a command line's `key=value`."""
        self.conf.update(self.loader.cmdline_config_parser(argv, namespace))

    def either(self, default_key: str, *defaults: Any) -> Any:
        """The first default that is not None, else the setting."""
        given = first(None, defaults)
        return self.conf.get(default_key) if given is None else given

    def add_periodic_task(
        self, schedule: Any, sig: Any, args: Any = (), kwargs: Any = (), name: str | None = None, **opts: Any
    ) -> str:
        """
        Have beat send *sig* by *schedule*.

        Args:
            name: Of the entry; else the signature's text, so that the same one twice is one entry.

        Returns:
            The entry's name.
        """
        key, entry = configuring.periodic_entry(self._app, schedule, sig, args, kwargs, name, opts)
        if self.configured:
            configuring.put_periodic_task(self._app, key, entry, name)
        else:
            self._pending_periodic_tasks.append((key, entry, name))
        return key

    def autodiscover_tasks(self, packages: Any = None, related_name: str | None = "tasks", force: bool = False) -> Any:
        """
        Import `<package>.<related_name>` of each package when a worker starts, or when default modules are imported.

        Args:
            packages: A list, or a function that returns one; else Django's INSTALLED_APPS.
            related_name: None imports the packages themselves.
            force: Import now.
        """
        if force:
            return self._autodiscover_tasks(packages, related_name)

        def discover(**_: Any) -> Any:
            return self._autodiscover_tasks(packages, related_name)

        return signals.import_modules.connect(discover, weak=False, sender=self)

    def _autodiscover_tasks(self, packages: Any, related_name: str | None, **kwargs: Any) -> Any:
        if packages:
            return self._autodiscover_tasks_from_names(packages, related_name)
        return self._autodiscover_tasks_from_fixups(related_name)

    def _autodiscover_tasks_from_names(self, packages: Any, related_name: str | None) -> Any:
        return self.loader.autodiscover_tasks(packages() if callable(packages) else packages, related_name)

    def _autodiscover_tasks_from_fixups(self, related_name: str | None) -> Any:
        packages = [
            package
            for fixup in self._fixups
            if hasattr(fixup, "autodiscover_tasks")
            for package in fixup.autodiscover_tasks()
        ]
        return self._autodiscover_tasks_from_names(packages, related_name=related_name)

    @cached_property
    def loader(self) -> Any:
        """Reads settings and imports modules."""
        return get_loader_cls(self.loader_cls)(app=self)

    @cached_property
    def annotations(self) -> Any:
        """`task_annotations`, expanded."""
        from sidekiq_celery._config.annotations import prepare

        return prepare(self.conf.task_annotations)

    @cached_property
    def timezone(self) -> Any:
        """That of the settings; else UTC, or the machine's where `enable_utc` is off."""
        wanted = self.conf.timezone
        if wanted:
            return timezone.get_timezone(wanted)
        return timezone.utc if self.conf.enable_utc else timezone.local

    def uses_utc_timezone(self) -> bool:
        """Whether the app's time is UTC."""
        return bool(self.timezone == timezone.utc)

    def now(self) -> datetime:
        """The time in the app's time zone."""
        return datetime.now(self.timezone)
