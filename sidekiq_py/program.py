"""
A program's settings: where Redis is, how payloads are written, its middleware and its hooks.

The client side reads them at every push, so a module can declare jobs before the program is configured. A worker passes
a `Config` to its parts and takes only the middleware chains and the hooks from here.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sidekiq_py import redaction as redaction_policy
from sidekiq_py import telemetry
from sidekiq_py.errors import ConfigError, JobDeclarationError
from sidekiq_py.hooks import Hooks
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.middleware.chain import Chain, ClientMiddleware, ServerMiddleware
from sidekiq_py.options import OF_JOBS, QUEUE_OPTIONS, checked_value, warn_of_unknown, with_custom
from sidekiq_py.redaction import Redaction
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.wire.dialect import Dialect, FloatText

if TYPE_CHECKING:
    from sidekiq_py.config import ExtensionPolicy
    from sidekiq_py.extension import Extension

StrictArgs = Literal["raise", "warn", "off"]

client_middleware: Chain[ClientMiddleware] = Chain()
"""The middleware around every push of this program."""

server_middleware: Chain[ServerMiddleware] = Chain()
"""The middleware around every run in this process."""

hooks = Hooks()
"""Handlers for lifecycle events, errors and deaths."""

extensions = LoadedExtensions()
"""The program's extensions: features beyond open-source Sidekiq."""

use = extensions.use
telemetry.report_to(hooks.report)

on = hooks.on
on_error = hooks.on_error
on_death = hooks.on_death


@dataclass(frozen=True, slots=True)
class Settings:
    """
    The client side's settings.

    Args:
        redis: How to reach Redis.
        sidekiq_version: The release to write for; None detects it from the running Ruby processes.
        float_text: Overrides how floats are written, also in a detected dialect.
        strict_args: How to treat arguments that are not JSON: "raise" raises an error, "warn" warns and writes Ruby's
            `to_s`, and "off" writes that without a warning.
        default_job_options: Options of every job that does not declare them itself.
        extension_keys: The policies of this program's workers for extension keys.
    """

    redis: RedisSettings
    sidekiq_version: str | None = None
    float_text: FloatText | None = None
    strict_args: StrictArgs = "raise"
    default_job_options: Mapping[str, Any] = field(default_factory=dict)
    extension_keys: Mapping[str, "ExtensionPolicy"] = field(default_factory=dict)

    def pinned_dialect(self) -> Dialect | None:
        """The configured dialect, or None if it is detected."""
        return Dialect.asked_for(self.sidekiq_version, self.float_text, namespace=self.redis.namespace)


Interceptor = Callable[[Sequence[Outgoing]], bool]
"""Receives jobs that are ready to be sent; returns False to let them go to Redis. For tests of programs."""

AfterCommit = Callable[[Callable[[], None]], bool]
"""
Receives a push to make after the open transaction commits. Returns False if there is no transaction; the push is then
made at once.
"""


def _no_locale() -> str | None:
    return None


interceptor: Interceptor | None = None
after_commit: AfterCommit | None = None
current_locale: Callable[[], str | None] = _no_locale
"""The language of the running request or job, for Active Jobs; `contrib.current_attributes` knows it."""

is_plain = True
"""True if pushes go straight to Redis: nothing intercepts or defers them, and arguments are strict."""


class IterationLimits(NamedTuple):
    """
    What the worker in this process sets for iterable jobs.

    Args:
        run_seconds: After this long, a run stops and the job is pushed again, unless its class says otherwise.
        item_seconds: A warning names items that take longer, because a stop cuts them off; None gives no warnings.
    """

    run_seconds: float | None = None
    item_seconds: float | None = None


iteration_limits = IterationLimits()

default_job_options: Mapping[str, Any] = {}
"""The option of the same name in the current settings; it stays the same object until the settings change."""

_settings: Settings | None = None
_changing = threading.RLock()
_listeners: list[Callable[[], None]] = []


def settings() -> Settings:
    """The configured settings, or those from the environment if nothing is configured yet."""
    global _settings
    present = _settings
    if present is None:
        found = Settings(_redis_from_environment())
        with _changing:
            # Reading the environment takes milliseconds, in which another thread may have configured the program.
            present = _settings = _settings or found
    return present


def configure(
    redis_url: str | None = None,
    *,
    sidekiq_version: str | None = None,
    float_text: FloatText | str | None = None,
    strict_args: StrictArgs | bool | None = None,
    default_job_options: Mapping[str, Any] | None = None,
    redis: RedisSettings | None = None,
    extension_keys: Mapping[str, "ExtensionPolicy"] | None = None,
    extensions: "Iterable[Extension]" = (),
    namespace: str | None = None,
    redaction: Redaction | None = None,
) -> None:
    """
    Change the given settings and keep the others.

    Args:
        redis_url: `redis://`, `rediss://`, `unix://` or `redis+sentinel://`. By default, `REDIS_PROVIDER` and
            `REDIS_URL` decide.
        sidekiq_version: The release on the Ruby side, such as "8" or "7.3.2". By default, the dialect is detected.
        float_text: "ruby" or "json3", if the Ruby side's json gem is not the one that its release came with.
        strict_args: "raise" (the default), "warn" or "off" (also True and False).
        default_job_options: Sidekiq options of every job that does not declare them itself.
        redis: Use this instead of the URL to also set timeouts, the pool's size and the namespace.
        extension_keys: What a worker does with jobs that have a key of Pro, Enterprise or a gem, for each key: "refuse"
            (the default), "run" or "bury". Keys from earlier calls stay as they are.
        extensions: Further extensions to use, as with `use`.
        namespace: Puts `<namespace>:` before every key, as the redis-namespace gem does for Sidekiq up to 6.5; "" for
            none. By default, `SIDEKIQ_NAMESPACE` decides.
        redaction: Which values of jobs to hide in logs, the command line, the dashboard, Sentry and traces. By default,
            the file that `SIDEKIQ_REDACTION` names decides; without one, anything that looks like a secret is hidden.

    Raises:
        ConfigError: A setting is unusable.
    """
    global _settings
    if not isinstance(extensions, Iterable):
        raise ConfigError(f"extensions is {extensions!r}; give a list of extensions")
    if redaction is not None and not isinstance(redaction, Redaction):
        raise ConfigError(f"redaction is {redaction!r}; give a Redaction, from sidekiq_py.redaction")
    changes: dict[str, Any] = {
        "sidekiq_version": sidekiq_version,
        "float_text": None if float_text is None else _float_text(float_text),
        "strict_args": None if strict_args is None else _strict_args(strict_args),
        "default_job_options": None if default_job_options is None else _default_job_options(default_job_options),
    }

    def changed() -> Settings:
        given = changes["redis"] = _redis(redis_url, redis)
        # If Redis is given, the environment is not read, so an invalid value there does no harm.
        present = Settings(given) if _settings is None and given is not None else settings()
        if extension_keys is not None:
            from sidekiq_py.config import check_extension_keys  # a worker's settings, which a push does not need

            changes["extension_keys"] = {**present.extension_keys, **check_extension_keys(extension_keys)}
        found = replace(present, **{name: value for name, value in changes.items() if value is not None})
        if namespace is not None:
            found = replace(found, redis=replace(found.redis, namespace=namespace))
        found.pinned_dialect()
        return found

    # Unusable settings are refused before an extension is in use.
    changed()
    # Extensions may import modules that another thread is importing, and that call this function, too.
    for extension in extensions:
        use(extension)
    with _changing:
        if redaction is not None:
            redaction_policy.use(redaction)
        _settings = changed()
        _notify_listeners()


def _start_afresh() -> None:
    # A thread that is changing the settings does not go on in a forked child.
    global _changing
    _changing = threading.RLock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_start_afresh)


def reset() -> None:
    """Reset all settings, handlers (those of telemetry, too) and middleware to the state at the program's start."""
    global _settings, interceptor, after_commit, current_locale, iteration_limits
    _settings = interceptor = after_commit = None
    current_locale = _no_locale
    iteration_limits = IterationLimits()
    redaction_policy.use(None)
    client_middleware.clear()
    server_middleware.clear()
    hooks.clear()
    extensions.clear()
    telemetry.detach_all()
    _notify_listeners()


def intercept(taker: Interceptor | None) -> None:
    """Pass every push to *taker* before it goes to Redis; None stops that."""
    global interceptor
    interceptor = taker
    _take_stock()


def captures_pushes() -> bool:
    """
    True if a testing mode takes the pushes of this thread or task. Those of others, such as the threads of a worker
    that is embedded in a test run, may go to Redis all the same.
    """
    return interceptor is not None and interceptor(())


def push_after_commit(hook: AfterCommit | None) -> None:
    """Pass every single push to *hook*, which may delay it until a transaction commits; None stops that."""
    global after_commit
    after_commit = hook
    _take_stock()


def when_changed(listener: Callable[[], None]) -> Callable[[], None]:
    """A decorator that registers a function to be called after each change of the settings."""
    _listeners.append(listener)
    return listener


def _notify_listeners() -> None:
    _take_stock()
    for listener in _listeners:
        listener()


def _take_stock() -> None:
    """Precompute the two values that a push reads, so that it reads nothing else."""
    global is_plain, default_job_options
    is_strict = _settings is None or _settings.strict_args == "raise"
    is_plain = interceptor is None and after_commit is None and is_strict
    default_job_options = {} if _settings is None else _settings.default_job_options


def _redis(url: str | None, given: RedisSettings | None) -> RedisSettings | None:
    """The Redis that `configure` names, in one of two ways; None if it names none."""
    if url is not None and given is not None:
        raise ConfigError("redis_url and redis both say where Redis is; give one of them")
    if given is not None and not isinstance(given, RedisSettings):
        # Its text may have a password.
        raise ConfigError(f"redis is of type {type(given).__name__}; give RedisSettings, or pass a URL as redis_url=")
    if url is None:
        return given
    namespace = namespace_from_environment() if _settings is None else _settings.redis.namespace
    return RedisSettings(url, namespace=namespace)


def _redis_from_environment() -> RedisSettings:
    from sidekiq_py.config import redis_url_from_environment  # as above

    settings = RedisSettings(namespace=namespace_from_environment())
    url = redis_url_from_environment()
    return replace(settings, url=url) if url else settings


def namespace_from_environment() -> str:
    """The prefix of each key from `SIDEKIQ_NAMESPACE`; empty if there is none."""
    return os.environ.get("SIDEKIQ_NAMESPACE", "")


def _default_job_options(given: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"default_job_options is {given!r}; give a mapping, such as {{'retry': 5}}")
    warn_of_unknown(given, OF_JOBS, "default_job_options", only_near=True)
    options = with_custom(given)
    try:
        for name, value in options.items():
            if value is not None or name in QUEUE_OPTIONS:
                options[name] = checked_value(name, value, "default_job_options")
    except JobDeclarationError as error:
        raise ConfigError(str(error)) from error
    return options


def _float_text(value: FloatText | str) -> FloatText:
    try:
        return FloatText(value)
    except ValueError:
        raise ConfigError(f"float_text is {value!r}; it must be 'ruby' or 'json3'") from None


def _strict_args(value: StrictArgs | bool) -> StrictArgs:
    if value is True or value == "raise":
        return "raise"
    if value == "warn":
        return "warn"
    if value is False or value == "off":
        return "off"
    raise ConfigError(f"strict_args is {value!r}; it must be 'raise', 'warn' or 'off'")
