"""`app.conf`: the settings of an app, under their new, old and prefixed names."""

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from functools import cached_property
from typing import Any, NamedTuple

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
from sidekiq_celery.utils.text import pretty

__all__ = ("PendingConfiguration", "Settings", "detect_settings")

_NOT_SETTINGS = frozenset(dir(dict))


def new_key_to_old(key: str) -> str:
    """The old name of a setting; *key* itself if it is none."""
    return _TO_OLD_KEY.get(key, key)


def old_key_to_new(key: str) -> str:
    """The new name of a setting; *key* itself if it is none."""
    return _TO_NEW_KEY.get(key, key)


KEY_CONVERTERS: tuple[Callable[[str], str], ...] = (old_key_to_new, new_key_to_old)


class PendingConfiguration(MutableMapping[str, Any], AttributeDictMixin):
    """
    What a program sets before its settings are read. They are read when somebody asks for one.

    Args:
        conf: What is set so far.
        callback: Reads the settings, *conf* included.
    """

    _given: dict[str, Any]

    def __init__(self, conf: dict[str, Any], callback: Callable[[], Any]) -> None:
        object.__setattr__(self, "_given", conf)
        object.__setattr__(self, "callback", callback)

    @cached_property
    def data(self) -> Any:
        """All settings, read now."""
        return self.callback()

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._given[key] = value

    def __delitem__(self, key: str) -> None:
        del self._given[key]

    def __contains__(self, key: object) -> bool:
        # `setdefault` asks this, and has to leave the settings unread.
        return key in self._given

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Set *key* unless the program has."""
        return self._given.setdefault(key, default)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set many keys."""
        self._given.update(*args, **kwargs)

    def clear(self) -> None:
        """Forget what was set."""
        self._given.clear()

    def copy(self) -> Any:
        """All settings, read now, as a copy."""
        return self.data.copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return repr(self.data)


class Settings(ConfigurationView):
    """
    The settings of an app: by attribute, by item, with `get`, `update`, `in` and iteration.

    Args:
        deprecated_settings: The old names that the program uses.
    """

    deprecated_settings: set[str] | None

    def __init__(self, *args: Any, deprecated_settings: set[str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["deprecated_settings"] = deprecated_settings

    def copy(self) -> "Settings":
        """The same, with changes of its own."""
        self.finalize()
        copied = super().copy()
        assert isinstance(copied, Settings)
        copied.__dict__["deprecated_settings"] = self.deprecated_settings
        return copied

    __copy__ = copy

    def _url(self, variable: str, *keys: str) -> Any:
        return os.environ.get(variable) or self.first(*keys)

    @property
    def broker_url(self) -> str | None:
        """Where jobs are; the variable `CELERY_BROKER_URL` before the setting."""
        url: str | None = self._url("CELERY_BROKER_URL", "broker_url", "broker_host")
        return url

    @property
    def broker_read_url(self) -> str | None:
        """Where workers look for jobs, if elsewhere."""
        return self._url("CELERY_BROKER_READ_URL", "broker_read_url") or self.broker_url

    @property
    def broker_write_url(self) -> str | None:
        """Where jobs are sent, if elsewhere."""
        return self._url("CELERY_BROKER_WRITE_URL", "broker_write_url") or self.broker_url

    @property
    def result_backend(self) -> Any:
        """Where results are; the variable `CELERY_RESULT_BACKEND` before the setting."""
        return self._url("CELERY_RESULT_BACKEND", "result_backend", "CELERY_RESULT_BACKEND")

    @property
    def task_default_exchange(self) -> str:
        """That of the default queue, unless it is set."""
        name: str = self.first("task_default_exchange", "task_default_queue")
        return name

    @property
    def task_default_routing_key(self) -> str:
        """That of the default queue, unless it is set."""
        key: str = self.first("task_default_routing_key", "task_default_queue")
        return key

    @property
    def timezone(self) -> Any:
        """Also Django's."""
        return self.first("timezone", "TIME_ZONE")

    def without_defaults(self) -> "Settings":
        """What was set, by whomever."""
        return Settings({}, self.maps[:-1])

    def value_set_for(self, key: str) -> bool:
        """Whether anybody has set *key*, under any of its names."""
        self.finalize()
        return key in Settings({}, self.maps[:-1], self._keys, self.prefix)

    def find_option(self, name: str, namespace: str = "") -> Any:
        """A setting by the end of its name, as (namespace, key, setting)."""
        return find(name, namespace)

    def find_value_for_key(self, name: str, namespace: str = "celery") -> Any:
        """The value of a setting by the end of its name."""
        found = self.find_option(name, namespace)
        return self.get_by_parts(found.namespace, found.key)

    def get_by_parts(self, *parts: str | None) -> Any:
        """The value of the setting whose name has those parts."""
        return self["_".join(part for part in parts if part)]

    def finalize(self) -> "Settings":
        """Have the settings read."""
        self.get("__bogus__")
        return self

    def table(self, with_defaults: bool = False, censored: bool = True) -> dict[str, Any]:
        """What was set, with secrets masked."""
        from sidekiq_celery._config.censoring import filter_hidden_settings

        self.finalize()
        shown = self if with_defaults else self.without_defaults()
        found = {key: value for key, value in shown.items() if not key.startswith("_") and key not in _NOT_SETTINGS}
        return filter_hidden_settings(found) if censored else found

    def humanize(self, with_defaults: bool = False, censored: bool = True) -> str:
        """The same, for people."""
        return "\n".join(
            f"{key}: {pretty(value, width=50)}" for key, value in self.table(with_defaults, censored).items()
        )

    def maybe_warn_deprecated_settings(self) -> bool:
        """Warn of the old names that the program uses; whether there were any."""
        from sidekiq_celery.utils import deprecated

        for setting in self.deprecated_settings or ():
            alternative = f"Use the {_TO_NEW_KEY[setting]} instead"
            deprecated.warn(f"The {setting!r} setting", removal="6.0.0", alternative=alternative)
        return bool(self.deprecated_settings)


class _Naming(NamedTuple):
    """New or old names: the defaults under them, the way to them, and what to say of the others."""

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
    The settings in *conf*, which names them all the new way or all the old way.

    Args:
        conf: What was read, or None.
        preconf: What the program set itself.
        ignore_keys: Which of those do not tell how the program names settings.
        prefix: The names are new, in capitals behind it.

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
    # A setting that is there under both names bothers nobody.
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
