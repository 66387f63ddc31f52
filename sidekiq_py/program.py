"""
What one program has set: where Redis is, how it writes, its middleware, its hooks.

The client side reads it at each push, so that a module can declare jobs before the program is configured. A worker
hands a `Config` to its parts and only takes the chains and the hooks from here.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from sidekiq_py import redaction as redaction_policy
from sidekiq_py import telemetry
from sidekiq_py.errors import ConfigError
from sidekiq_py.hooks import Hooks
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.middleware.chain import Chain, ClientMiddleware, ServerMiddleware
from sidekiq_py.options import OF_JOBS, warn_of_unknown, with_custom
from sidekiq_py.redaction import Redaction
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.wire.dialect import Dialect, FloatText

if TYPE_CHECKING:
    from sidekiq_py.config import ExtensionPolicy
    from sidekiq_py.extension import Extension

StrictArgs = Literal["raise", "warn", "off"]

client_middleware: Chain[ClientMiddleware] = Chain()
"""Wraps every push of this program."""

server_middleware: Chain[ServerMiddleware] = Chain()
"""Wraps every run in this process."""

hooks = Hooks()
"""Lifecycle events, error and death handlers."""

extensions = LoadedExtensions()
"""Features above open-source Sidekiq, each an extension."""

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
        redis: Where Redis is.
        sidekiq_version: The release to write for; None detects it from the Ruby processes alive.
        float_text: Overrides how floats are written, also in a detected dialect.
        strict_args: What happens to arguments that are not JSON: an error, a warning and Ruby's `to_s`, or only that.
        default_job_options: For every job, below what it declares itself.
        extension_keys: For this program's workers.
    """

    redis: RedisSettings
    sidekiq_version: str | None = None
    float_text: FloatText | None = None
    strict_args: StrictArgs = "raise"
    default_job_options: Mapping[str, Any] = field(default_factory=dict)
    extension_keys: Mapping[str, "ExtensionPolicy"] = field(default_factory=dict)

    def pinned_dialect(self) -> Dialect | None:
        """The dialect that was asked for, or None where it is to be detected."""
        return Dialect.asked_for(self.sidekiq_version, self.float_text, namespace=self.redis.namespace)


Interceptor = Callable[[Sequence[Outgoing]], bool]
"""Takes jobs that are ready to be sent; False leaves them to Redis. For tests of programs."""

AfterCommit = Callable[[Callable[[], None]], bool]
"""Takes a push to make after the open transaction's commit; False if there is none, so the push is made at once."""

interceptor: Interceptor | None = None
after_commit: AfterCommit | None = None

is_plain = True
"""Pushes go straight to Redis: nothing intercepts or defers them, and arguments are strict."""

default_job_options: Mapping[str, Any] = {}
"""Of the present settings; the same object until they change."""

_settings: Settings | None = None
_listeners: list[Callable[[], None]] = []


def settings() -> Settings:
    """What was configured; before that, what the environment says."""
    global _settings
    if _settings is None:
        _settings = Settings(_redis_from_environment())
    return _settings


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
    Change the settings that are given; the others stay.

    Args:
        redis_url: `redis://`, `rediss://`, `unix://` or `redis+sentinel://`. Without it `REDIS_PROVIDER` and
            `REDIS_URL` decide.
        sidekiq_version: The release of the Ruby side, as "8" or "7.3.2". Without it the dialect is detected.
        float_text: "ruby" or "json3", where the Ruby side's json gem is not the one its release came with.
        strict_args: "raise" (the default), "warn" or "off" (also True and False).
        default_job_options: Sidekiq's options for every job, below what a job declares itself.
        redis: Instead of the URL, with timeouts, the size of the pool and the namespace.
        extension_keys: What a worker does with jobs that bear a key of Pro, Enterprise or a gem, key by key: "refuse"
            (the default), "run" or "bury". Keys that were given before and are not now stay as they are.
        extensions: Extensions to use besides those that are used already, as by `use`.
        namespace: Puts `<namespace>:` before every key, as the redis-namespace gem does for Sidekiq up to 6.5; "" for
            none. Without it `SIDEKIQ_NAMESPACE` decides.
        redaction: Which values of jobs are hidden in logs, by the command line and the dashboard, from Sentry and in
            traces. Without it the file that `SIDEKIQ_REDACTION` names decides, else what looks like a secret is hidden.

    Raises:
        ConfigError: A setting is unusable.
    """
    global _settings
    if redis_url is not None and redis is not None:
        raise ConfigError("redis_url and redis both say where Redis is; give one of them")
    changes: dict[str, Any] = {}
    if redis_url is not None:
        known = namespace_from_environment() if _settings is None else _settings.redis.namespace
        changes["redis"] = RedisSettings(redis_url, namespace=known)
    if redis is not None:
        changes["redis"] = redis
    if float_text is not None:
        changes["float_text"] = _float_text(float_text)
    if strict_args is not None:
        changes["strict_args"] = _strict_args(strict_args)
    if default_job_options is not None:
        warn_of_unknown(default_job_options, OF_JOBS, "default_job_options", only_near=True)
        changes["default_job_options"] = with_custom(default_job_options)
    if sidekiq_version is not None:
        changes["sidekiq_version"] = sidekiq_version
    # Where Redis is given the environment has no say, not even a wrong one.
    present = Settings(changes["redis"]) if _settings is None and "redis" in changes else settings()
    if extension_keys is not None:
        changes["extension_keys"] = {**present.extension_keys, **_extension_keys(extension_keys)}
    changed = replace(present, **changes)
    if namespace is not None:
        changed = replace(changed, redis=replace(changed.redis, namespace=namespace))
    changed.pinned_dialect()
    for extension in extensions:
        use(extension)
    if redaction is not None:
        redaction_policy.use(redaction)
    _settings = changed
    _tell()


def reset() -> None:
    """Forget every setting, handler (those of telemetry, too) and middleware, as at the start of the program."""
    global _settings, interceptor, after_commit
    _settings = interceptor = after_commit = None
    redaction_policy.use(None)
    client_middleware.clear()
    server_middleware.clear()
    hooks.clear()
    extensions.clear()
    telemetry.detach_all()
    _tell()


def intercept(taker: Interceptor | None) -> None:
    """Hand every push to *taker* before Redis; None ends it."""
    global interceptor
    interceptor = taker
    _take_stock()


def push_after_commit(hook: AfterCommit | None) -> None:
    """Hand every single push to *hook*, which may put it off until a transaction is committed; None ends it."""
    global after_commit
    after_commit = hook
    _take_stock()


def when_changed(listener: Callable[[], None]) -> Callable[[], None]:
    """A decorator: call the function after each change of the settings."""
    _listeners.append(listener)
    return listener


def _tell() -> None:
    _take_stock()
    for listener in _listeners:
        listener()


def _take_stock() -> None:
    """What a push looks at, so that it has to look at two names only."""
    global is_plain, default_job_options
    is_strict = _settings is None or _settings.strict_args == "raise"
    is_plain = interceptor is None and after_commit is None and is_strict
    default_job_options = {} if _settings is None else _settings.default_job_options


def _redis_from_environment() -> RedisSettings:
    from sidekiq_py.config import redis_url_from_environment  # a worker's settings, which a push has no use for

    settings = RedisSettings(namespace=namespace_from_environment())
    url = redis_url_from_environment()
    return replace(settings, url=url) if url else settings


def _extension_keys(given: Mapping[str, Any]) -> "Mapping[str, ExtensionPolicy]":
    from sidekiq_py.config import check_extension_keys  # as above

    return check_extension_keys(given)


def namespace_from_environment() -> str:
    """What stands before each key, as `SIDEKIQ_NAMESPACE` says; empty for nothing."""
    return os.environ.get("SIDEKIQ_NAMESPACE", "")


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
