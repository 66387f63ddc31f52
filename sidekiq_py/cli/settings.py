"""
A worker's settings from flags, YAML and environment.

As in Ruby, later sources win: built-in defaults, the YAML file, its section for the environment, flags.
`RAILS_MAX_THREADS` sets the concurrency if neither file nor flag does. The program's own call of `sidekiq_py.configure`
overrides the file, but not a flag. Source: Sidekiq 6.4.1 and 8.1.7, cli.rb, `setup_options`.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidekiq_py.cli import values
from sidekiq_py.config import CapsuleConfig, Config, ExtensionPolicy, QueueConfig, check_extension_keys
from sidekiq_py.errors import ConfigError
from sidekiq_py.logs import FORMAT_NAMES, LOGGED_ATTRIBUTES, level_number
from sidekiq_py.options import closest
from sidekiq_py.program import Settings
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.json_writer import to_s

DEFAULT_FILES = ("sidekiq.yml", "sidekiq.yml.erb")
FETCHERS = ("reliable", "basic")

# Option → field of Config and its parser. Keys that are in neither table go to `Config.extra`.
_PLAIN_OPTIONS: dict[str, tuple[str, Any]] = {
    "timeout": ("shutdown_timeout_seconds", values.positive_number),
    "max_iteration_runtime": ("max_iteration_runtime_seconds", values.positive_number),
    "max_retries": ("max_retries", values.whole_number),
    "dead_max_jobs": ("dead_max_jobs", values.positive_integer),
    "dead_timeout_in_seconds": ("dead_timeout_seconds", values.positive_integer),
    "average_scheduled_poll_interval": ("average_scheduled_poll_seconds", values.positive_number),
    "poll_interval_average": ("poll_interval_average_seconds", values.positive_number),
    "async_concurrency": ("async_concurrency", values.positive_integer),
    "lease_seconds": ("lease_seconds", values.positive_number),
    "processes": ("processes", values.positive_integer),
    "max_memory_mb": ("max_memory_mb", values.positive_integer),
    "probe_port": ("probe_port", values.positive_integer),
    "stall_seconds": ("stall_seconds", values.positive_number),
}
_OTHER_OPTIONS = frozenset(
    (
        *("concurrency", "queues", "capsules", "environment", "tag", "labels", "require"),
        *("verbose", "log_level", "log_format", "logged_job_attributes", "skip_default_job_logging"),
        *("sidekiq_version", "float_text", "fetcher", "redis_url", "namespace", "extension_keys"),
    )
)
_KNOWN_OPTIONS = _OTHER_OPTIONS.union(_PLAIN_OPTIONS)
# The keys that our own extensions read from `Config.extra`.
_OF_EXTENSIONS = frozenset(("schedule", "cron_schedule_file"))
_OF_CAPSULES = frozenset(("concurrency", "queues"))


@dataclass(frozen=True, slots=True)
class Options:
    """
    The settings from flags, file and environment, merged and not yet checked.

    Args:
        values: The settings by Ruby's names.
        environment: The name of the environment, such as `production`.
        flags: The names in *values* that were given as flags.
        variables: The environment variables.
        directory: The directory in which the command was started.
        flagged_extension_keys: Policies given as flags; each overrides the file's policy for the same key.
    """

    values: Mapping[str, Any]
    environment: str
    flags: frozenset[str]
    variables: Mapping[str, str]
    directory: Path
    flagged_extension_keys: Mapping[str, ExtensionPolicy] = field(default_factory=dict)

    @property
    def requires(self) -> tuple[str, ...]:
        """The modules to import, in order."""
        return values.texts(self.values.get("require"), "require")

    @property
    def log_level(self) -> int:
        """The level, as a number of the standard library."""
        named = self.values.get("log_level")
        if named is not None:
            level = level_number(named)
            if level is None:
                raise ConfigError(f"log_level is {named!r}; it must be debug, info, warn, error or fatal")
            return level
        # systemd sets DEBUG_INVOCATION when it restarts a failed service with RestartMode=debug.
        is_debugged = self.variables.get("DEBUG_INVOCATION") == "1"
        return logging.DEBUG if self.values.get("verbose") or is_debugged else logging.INFO

    @property
    def log_format(self) -> str | None:
        """One of `logs.FORMAT_NAMES`, or None if none was requested."""
        return values.one_of(self.values.get("log_format"), FORMAT_NAMES, "log_format")

    @property
    def logged_attributes(self) -> tuple[str, ...]:
        """The payload keys that log lines show."""
        given = self.values.get("logged_job_attributes")
        return LOGGED_ATTRIBUTES if given is None else values.texts(given, "logged_job_attributes")

    @property
    def float_text(self) -> FloatText | None:
        """How to write floats, or None if it follows from the release."""
        name = values.one_of(self.values.get("float_text"), [kind.value for kind in FloatText], "float_text")
        return None if name is None else FloatText(name)

    @property
    def extension_keys(self) -> Mapping[str, ExtensionPolicy]:
        """The policy for jobs with a key of Sidekiq Pro, Enterprise or a gem, by key."""
        given = self.values.get("extension_keys")
        return {**check_extension_keys({} if given is None else given), **self.flagged_extension_keys}

    def text(self, name: str) -> str | None:
        """The value of `redis_url`, `namespace` or `sidekiq_version`, if a flag or the file gives it."""
        given = self.values.get(name)
        return None if given is None else str(given)


def read_all(flags: Mapping[str, Any], *, variables: Mapping[str, str], directory: Path) -> Options:
    """
    Merge flags, file and environment.

    Args:
        flags: The flags that were given, by option name; `config_file` names the file.
        variables: The environment variables.
        directory: The directory in which the command was started.

    Raises:
        ConfigError: The file is missing or unreadable.
    """
    given = dict(flags)
    named_file = given.pop("config_file", None)
    extension_keys = _flagged_extension_keys(given.pop("extension_keys", ()))
    environment = environment_name(given.get("environment"), variables)
    # A package given by its name (`-r shop`) is a directory too, and its program's file usually lies beside it.
    places = (_home(given.get("require"), directory), directory)
    path = Path(named_file) if named_file is not None else find_default_file(*places)
    options: dict[str, Any] = {}
    if path is not None:
        # Imported here, because a worker without a file needs no YAML parser in memory.
        from sidekiq_py.cli.yaml_file import read_options

        options = read_options(directory / path, section=environment, environment=variables)
    merged = {**options, **given}
    if merged.get("concurrency") is None and variables.get("RAILS_MAX_THREADS"):
        merged["concurrency"] = values.positive_integer(variables["RAILS_MAX_THREADS"], "RAILS_MAX_THREADS")
    flags_given = frozenset(given) | ({"extension_keys"} if extension_keys else set())
    return Options(merged, environment, flags_given, variables, directory, extension_keys)


def unknown_keys(options: Options) -> str | None:
    """
    The warning about keys of the file that we do not know; None if there are none.

    They stay in `Config.extra`, as in Ruby. A mapping is ignored unless its name looks misspelled: it may be another
    environment's section, or a gem's.
    """
    capsules = options.values.get("capsules")
    own = capsules.items() if isinstance(capsules, Mapping) else ()
    found = [
        *_misspelled({k: v for k, v in options.values.items() if k not in _OF_EXTENSIONS}, _KNOWN_OPTIONS, ""),
        *(text for name, capsule in own for text in _misspelled(capsule, _OF_CAPSULES, f"capsules: {name}: ")),
    ]
    if not found:
        return None
    named = ", ".join(found)
    return f"the YAML file has unknown settings: {named}; they have no effect, but plug-ins find them in Config.extra"


def _misspelled(given: Any, known: frozenset[str], place: str) -> list[str]:
    found = []
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if name in known:
            continue
        near = closest(str(name), known)
        if near is not None or not isinstance(value, Mapping):
            found.append(f"{place}{name}" + (f" (did you mean {near}?)" if near else ""))
    return found


def find_default_file(*directories: Path) -> Path | None:
    """The configuration file of the application in the first of these directories that has one, or None."""
    candidates = [directory / "config" / name for directory in directories for name in DEFAULT_FILES]
    return next((path for path in candidates if os.path.isfile(path)), None)


def environment_name(flag: str | None, variables: Mapping[str, str]) -> str:
    """The flag, else APP_ENV, RAILS_ENV, RACK_ENV, else `development`."""
    named = (variables.get(name) for name in ("APP_ENV", "RAILS_ENV", "RACK_ENV"))
    return flag or next((name for name in named if name), "development")


def make_config(options: Options, configured: Settings | None = None) -> Config:
    """
    Check the settings and make a `Config` of them.

    Args:
        configured: What the program's own code has configured, once *options* are among it.

    Raises:
        ConfigError: A value is invalid.
    """
    given = options.values
    configured = configured or Settings(
        RedisSettings(namespace=options.text("namespace") or ""),
        options.text("sidekiq_version"),
        options.float_text,
        extension_keys=options.extension_keys,
    )
    version = configured.sidekiq_version
    major = Dialect.pinned(version).version[0] if version else None
    fields: dict[str, Any] = {
        field: read(given[name], name) for name, (field, read) in _PLAIN_OPTIONS.items() if given.get(name) is not None
    }
    fetcher = values.one_of(given.get("fetcher"), FETCHERS, "fetcher")
    return Config(
        redis=configured.redis,
        sidekiq_version=version,
        float_text=configured.float_text,
        capsules=_capsules(given, major),
        fetcher="basic" if fetcher == "basic" else "reliable",
        environment=options.environment,
        tag=to_s(given["tag"]) if given.get("tag") is not None else _default_tag(options),
        labels=values.texts(given.get("labels"), "labels"),
        job_log=not given.get("skip_default_job_logging"),
        extension_keys=configured.extension_keys,
        extra={name: value for name, value in given.items() if name not in _KNOWN_OPTIONS},
        **fields,
    )


def _capsules(given: Mapping[str, Any], major: int | None) -> tuple[CapsuleConfig, ...]:
    # Source: the default is 10 in Sidekiq 6, and 5 in Sidekiq 7 and 8.
    default_concurrency = 10 if major == 6 else 5
    wanted = given.get("concurrency")
    concurrency = values.positive_integer(default_concurrency if wanted is None else wanted, "concurrency")
    others = given.get("capsules") or {}
    if not isinstance(others, Mapping):
        raise ConfigError("capsules must map a name to its queues and concurrency")
    capsules = {}
    # Sidekiq 7 and 8 serve the other capsules alone if `queues` is empty.
    if not (others and given.get("queues") in ([], {}) and major != 6):
        own_queues = parse_queues(given.get("queues"), "queues", major)
        capsules["default"] = CapsuleConfig("default", concurrency, own_queues)
    for name, own in ((to_s(key), own) for key, own in others.items()):
        if not isinstance(own, Mapping):
            raise ConfigError(f"capsule {name} must hold queues and concurrency")
        place = f"capsules: {name}"
        own_concurrency = values.positive_integer(own.get("concurrency", concurrency), f"{place}: concurrency")
        # In Ruby, a capsule without queues serves none.
        queues = parse_queues(own["queues"], f"{place}: queues", major) if own.get("queues") else ()
        capsules[name] = CapsuleConfig(name, own_concurrency, queues)
    return tuple(capsules.values())


def parse_queues(given: Any, name: str, major: int | None) -> tuple[QueueConfig, ...]:
    """
    Parse queues as flags and files write them: `name`, `name,weight`, `[name, weight]`, or a mapping of names to
    weights.

    Args:
        given: One of these or a list of them; None means the queue `default`.
        name: The name of the setting, for messages.
        major: The major version of the pinned release. Sidekiq 6 rejects a queue that is named twice; later releases
            add up its weights.

    Raises:
        ConfigError: A queue has no name, or its weight is not a number.
    """
    if given in (None, [], {}):
        return (QueueConfig("default"),)
    entries: Iterable[Any] = given.items() if isinstance(given, Mapping) else given
    if isinstance(given, str):
        entries = [given]
    if not isinstance(entries, Iterable):
        raise ConfigError(f'{name} is {given!r}; it must be a list of names, [name, weight] or "name,weight"')
    try:
        queues = tuple(QueueConfig.parse(entry) for entry in entries)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    names = [queue.name for queue in queues]
    twice = next((queue for queue in names if names.count(queue) > 1), None)
    if major == 6 and twice is not None:
        raise ConfigError(f"{name}: {twice} cannot be defined twice")
    return queues


def _flagged_extension_keys(given: Iterable[str]) -> Mapping[str, ExtensionPolicy]:
    pairs = [(text, *text.partition("=")) for text in given]
    unclear = next((text for text, _, equals, _ in pairs if not equals), None)
    if unclear is not None:
        raise ConfigError(f"--extension-key {unclear} has no policy; write KEY=POLICY, as in bid=run")
    return check_extension_keys({key.strip(): policy.strip() for _, key, _, policy in pairs})


def _home(require: Any, directory: Path) -> Path:
    """The application's directory: the first directory that `-r` names, else the current one."""
    # Unlike `Path.is_dir`, this is False for a name that is too long, and in a directory that this user may not enter.
    named = [directory / str(entry) for entry in (require or ()) if os.path.isdir(directory / str(entry))]
    return named[0] if named else directory


def _default_tag(options: Options) -> str:
    """The name of the application's directory. Under Capistrano, whose releases are named by time, the one above."""
    home = _home(options.requires, options.directory).resolve()
    is_release = home.name[:1].isdigit() and home.parent.name == "releases"
    return home.parent.parent.name if is_release else home.name
