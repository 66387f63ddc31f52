"""Loading an app's settings, when one is first accessed."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from sidekiq_celery._config.settings import PendingConfiguration, Settings, detect_settings
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.local import maybe_evaluate
from sidekiq_celery.utils.abstract import CallableSignature
from sidekiq_celery.utils.dispatch import Signal

logger = logging.getLogger("celery.app.base")


class Unread(App, Protocol):
    """An app whose settings have not been loaded, and what is known about them."""

    configured: bool
    namespace: str | None
    on_configure: Any
    on_after_configure: Signal
    _conf: Settings | None
    _configuring: Any
    _config_source: Any
    _config_source_silent: bool
    _preconf: dict[str, Any]
    _preconf_set_by_auto: set[str]
    _pending_defaults: deque[Callable[[], Any]]
    _pending_periodic_tasks: deque[tuple[str, dict[str, Any], str | None]]

    def prepare_config(self, c: Any) -> Any: ...


def load(app: Unread) -> Settings:
    """Load the settings of *app*. Precedence: the program's own, its configuration source, added defaults, defaults."""
    if isinstance(app.on_configure, Signal):
        app.on_configure.send(sender=app)
    else:
        app.on_configure()
    if app._config_source:
        app.loader.config_from_object(app._config_source, silent=app._config_source_silent)
    app.configured = True
    settings = detect_settings(
        app.prepare_config(app.loader.conf),
        app._preconf,
        ignore_keys=app._preconf_set_by_auto,
        prefix=app.namespace,
    )
    if app._conf is None:
        app._conf = settings
    else:
        # Replaced in place, because other code may hold a reference to `app.conf`.
        app._conf.swap_with(settings)
    conf = app._conf
    while app._pending_defaults:
        conf.add_defaults(maybe_evaluate(app._pending_defaults.popleft()()))
    while app._pending_periodic_tasks:
        key, entry, name = app._pending_periodic_tasks.popleft()
        put_periodic_task(app, key, entry, name)
    app.on_after_configure.send(sender=app, source=conf)
    return conf


def load_pending(app: Unread) -> Settings:
    """
    Load the settings on the first access to one.

    Raises:
        ModuleNotFoundError: The configuration source lacks an attribute.
        ImproperlyConfigured: The configuration source accessed a key that does not exist.
    """
    # Otherwise an attribute or key that the source lacks would look as if the requested setting were missing.
    try:
        with app._configuring:
            conf = app._conf
            if conf is None or isinstance(conf.changes, PendingConfiguration):
                return load(app)
            # Another thread has loaded them while this one waited, and may have set others since.
            return conf
    except AttributeError as error:
        raise ModuleNotFoundError(*error.args) from error
    except KeyError as error:
        raise ImproperlyConfigured(f"the settings cannot be read: there is no key {error}") from error


def periodic_entry(
    app: App, schedule: Any, sig: Any, args: Any, kwargs: Any, name: str | None, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The name and the `beat_schedule` entry for a signature or a task."""
    kwargs = kwargs or {}
    is_signature: bool = isinstance(sig, CallableSignature)
    bound = sig.clone(args, kwargs) if is_signature else app.signature(sig.name, args, kwargs)
    entry = {
        "schedule": schedule,
        "task": bound.name,
        "args": bound.args,
        "kwargs": bound.kwargs,
        "options": {**bound.options, **options},
    }
    return name or repr(bound), entry


def put_periodic_task(app: App, key: str, entry: dict[str, Any], name: str | None = None) -> None:
    """Add an entry to `beat_schedule`."""
    schedule = app.conf.beat_schedule
    if name is None and key in schedule:
        logger.warning(
            "Periodic task key='%s' shadowed a previous unnamed periodic task. "
            "Pass a name kwarg to add_periodic_task to silence this warning.",
            key,
        )
    schedule[key] = entry
