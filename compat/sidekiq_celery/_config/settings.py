"""`app.conf`: an app's settings, under their new, old and prefixed names."""

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from sidekiq_celery._config.defaults import (
    _OLD_DEFAULTS,
    _OLD_SETTING_KEYS,
    _TO_NEW_KEY,
    _TO_OLD_KEY,
    DEFAULTS,
    SETTING_KEYS,
    find,
)
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.collections import AttributeDictMixin, ConfigurationView
from sidekiq_celery.utils.objects import cached_property
from sidekiq_celery.utils.text import pretty

_NOT_SETTINGS = frozenset(dir(dict))


def new_key_to_old(key: str) -> str:
    """The old name of a setting; any other *key* is returned unchanged."""
    return _TO_OLD_KEY.get(key, key)


def old_key_to_new(key: str) -> str:
    """The new name of a setting; any other *key* is returned unchanged."""
    return _TO_NEW_KEY.get(key, key)


KEY_CONVERTERS: tuple[Callable[[str], str], ...] = (old_key_to_new, new_key_to_old)


class PendingConfiguration(MutableMapping[str, Any], AttributeDictMixin):
    """
    The settings that a program sets before all settings are loaded, which happens when one is first read.

    Args:
        conf: The settings so far.
        callback: Loads all settings, including *conf*.
    """

    _given: dict[str, Any]

    def __init__(self, conf: dict[str, Any], callback: Callable[[], Any]) -> None:
        object.__setattr__(self, "_given", conf)
        object.__setattr__(self, "callback", callback)

    @cached_property
    def data(self) -> Any:
        """All settings; accessing this loads them."""
        return self.callback()

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._given[key] = value

    def __delitem__(self, key: str) -> None:
        # Loads all settings, as in Celery. If it were removed from *conf* alone, `pop`, which reads first, would have
        # loaded it already, and it would stay.
        del self.data[key]
        self._given.pop(key, None)

    def __contains__(self, key: object) -> bool:
        # `setdefault` uses this, and must not load the settings.
        return key in self._given

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Set *key* unless the program has already set it."""
        return self._given.setdefault(key, default)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set many keys."""
        self._given.update(*args, **kwargs)

    def clear(self) -> None:
        """Discard what was set."""
        self._given.clear()

    def copy(self) -> Any:
        """A copy of all settings, which are loaded if necessary."""
        return self.data.copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return repr(self.data)


if TYPE_CHECKING:
    V = TypeVar("V")

    class _computed(Generic[V]):
        """A property that can be assigned to: `AttributeDictMixin.__setattr__` stores every attribute as a setting."""

        def __init__(self, compute: Callable[[Any], V]) -> None: ...
        def __get__(self, conf: Any, kind: Any = None) -> V: ...
        def __set__(self, conf: Any, value: Any) -> None: ...
else:
    _computed = property


class Settings(ConfigurationView):
    """
    An app's settings, readable as attributes and items, with `get`, `update`, `in` and iteration.

    Args:
        deprecated_settings: The old names that the program uses.
    """

    deprecated_settings: set[str] | None

    def __init__(self, *args: Any, deprecated_settings: set[str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["deprecated_settings"] = deprecated_settings

    def copy(self) -> "Settings":
        """A copy that can be changed independently."""
        self.finalize()
        copied = super().copy()
        assert isinstance(copied, Settings)
        copied.__dict__["deprecated_settings"] = self.deprecated_settings
        return copied

    __copy__ = copy

    def _url(self, variable: str, *keys: str) -> Any:
        return os.environ.get(variable) or self.first(*keys)

    @_computed
    def broker_url(self) -> str | None:
        """The URL of the broker; the variable `CELERY_BROKER_URL` takes precedence over the setting."""
        url: str | None = self._url("CELERY_BROKER_URL", "broker_url", "broker_host")
        return url

    @_computed
    def broker_read_url(self) -> str | None:
        """The URL that workers take jobs from, if it differs."""
        return self._url("CELERY_BROKER_READ_URL", "broker_read_url") or self.broker_url

    @_computed
    def broker_write_url(self) -> str | None:
        """The URL that jobs are sent to, if it differs."""
        return self._url("CELERY_BROKER_WRITE_URL", "broker_write_url") or self.broker_url

    @_computed
    def result_backend(self) -> Any:
        """Where results are stored; the variable `CELERY_RESULT_BACKEND` takes precedence over the setting."""
        return self._url("CELERY_RESULT_BACKEND", "result_backend", "CELERY_RESULT_BACKEND")

    @_computed
    def task_default_exchange(self) -> str:
        """The default exchange; if it is not set, the name of the default queue."""
        name: str = self.first("task_default_exchange", "task_default_queue")
        return name

    @_computed
    def task_default_routing_key(self) -> str:
        """The default routing key; if it is not set, the name of the default queue."""
        key: str = self.first("task_default_routing_key", "task_default_queue")
        return key

    @_computed
    def timezone(self) -> Any:
        """The time zone; Django's `TIME_ZONE` counts as well."""
        return self.first("timezone", "TIME_ZONE")

    def without_defaults(self) -> "Settings":
        """Only the settings that were set explicitly."""
        return Settings({}, self.maps[:-1])

    def value_set_for(self, key: str) -> bool:
        """Whether *key* was set explicitly, under any of its names."""
        self.finalize()
        return key in Settings({}, self.maps[:-1], self._keys, self.prefix)

    def find_option(self, name: str, namespace: str = "") -> Any:
        """Find a setting by the end of its name; returns (namespace, key, setting)."""
        return find(name, namespace)

    def find_value_for_key(self, name: str, namespace: str = "celery") -> Any:
        """The value of a setting, found by the end of its name."""
        found = self.find_option(name, namespace)
        return self.get_by_parts(found.namespace, found.key)

    def get_by_parts(self, *parts: str | None) -> Any:
        """The value of the setting whose name consists of those parts."""
        return self["_".join(part for part in parts if part)]

    def finalize(self) -> "Settings":
        """Load the settings."""
        self.get("__bogus__")
        return self

    def table(self, with_defaults: bool = False, censored: bool = True) -> dict[str, Any]:
        """The settings that were set, with secrets masked."""
        from sidekiq_celery._config.censoring import filter_hidden_settings

        self.finalize()
        shown = self if with_defaults else self.without_defaults()
        found = {key: value for key, value in shown.items() if not key.startswith("_") and key not in _NOT_SETTINGS}
        return filter_hidden_settings(found) if censored else found

    def humanize(self, with_defaults: bool = False, censored: bool = True) -> str:
        """The result of `table` as readable text."""
        return "\n".join(
            f"{key}: {pretty(value, width=50)}" for key, value in self.table(with_defaults, censored).items()
        )

    def maybe_warn_deprecated_settings(self) -> bool:
        """Warn about the old names that the program uses. Returns True if there are any."""
        from sidekiq_celery.utils import deprecated

        for setting in self.deprecated_settings or ():
            alternative = f"Use the {_TO_NEW_KEY[setting]} instead"
            deprecated.warn(f"The {setting!r} setting", removal="6.0.0", alternative=alternative)
        return bool(self.deprecated_settings)


class _Naming(NamedTuple):
    """New or old names: their defaults, the conversion to them, and the error message about other names."""

    defaults: Mapping[str, Any]
    convert: Mapping[str, str]
    complaint: str


_NEW = _Naming(
    DEFAULTS,
    _TO_NEW_KEY,
    "Cannot mix new and old setting keys, please rename the following settings to the new format:\n\n{renames}",
)
_OLD = _Naming(
    _OLD_DEFAULTS,
    _TO_OLD_KEY,
    "Cannot mix new setting names with old setting names, please rename the following settings to use the old "
    "format:\n\n{renames}\n\nOr change all of the settings to use the new format :)",
)


def detect_settings(
    conf: Any,
    preconf: Mapping[str, Any] | None = None,
    ignore_keys: set[str] | None = None,
    prefix: str | None = None,
    all_keys: set[str] | None = None,
    old_keys: set[str] | None = None,
) -> Settings:
    """
    The settings in *conf*, which must use either only new names or only old names.

    Args:
        conf: The settings that were read, or None.
        preconf: The settings that the program set itself.
        ignore_keys: Keys to ignore when detecting which names the program uses.
        prefix: The prefix of all names; the names after it are new ones in capitals.

    Raises:
        ImproperlyConfigured: New and old names are mixed; the message says what to rename.
    """
    preconf = preconf or {}
    source, conf = (preconf, {}) if conf is None else (conf, conf)
    have = set(source.keys()) - (ignore_keys or set())
    new, old = have & (all_keys or SETTING_KEYS), have & (old_keys or _OLD_SETTING_KEYS)
    naming, foreign = (_OLD, new) if len(old) > len(new) else (_NEW, old)
    if prefix:
        naming, foreign = _NEW, set()
    # A setting that is present under both names is fine.
    misnamed = sorted(key for key in foreign if naming.convert[key] not in have)
    if misnamed:
        renames = "\n".join(f"{key:<36} -> {naming.convert[key]}" for key in misnamed)
        raise ImproperlyConfigured(naming.complaint.format(renames=renames))
    changes = {naming.convert.get(key, key): value for key, value in preconf.items()}
    return Settings(
        changes,
        [conf, deepcopy(dict(naming.defaults))],
        KEY_CONVERTERS,
        deprecated_settings=old,
        prefix=prefix,
    )
