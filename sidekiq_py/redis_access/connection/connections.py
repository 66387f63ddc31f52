"""
Makes redis-py's connections from a URL, set up so that they never repeat a command.

By default, redis-py silently repeats commands after a lost connection. That is turned off here, because a command whose
reply was lost may have been executed.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from sidekiq_py.errors import ConfigError, RedisConnectionError
from sidekiq_py.redis_access.connection.settings import RedisSettings, redact

_NAMES_OF_A_LIBRARY = frozenset({"driver_info", "lib_name", "lib_version"})

# The size of a connection's read buffer. redis-py allots 32 kB, earlier releases 64 kB, and a worker keeps a dozen
# connections. With 16 kB, reading 50 jobs of 250 bytes takes as long; 200 of them take 22 μs rather than 18.
_READ_BYTES = 16_384


class PlainConnection(redis.Connection):
    """
    A connection without TLS.

    Python encodes a host that is a string as an internationalized name, and loads the tables for that first: 0.4 MB in
    each process. An ASCII name stays as it is, so it is passed as bytes.
    """

    def _connect(self) -> Any:
        host: Any = self.host
        if isinstance(host, bytes):
            # A time limit or a signal handler of the program raised just before the string was put back.
            host = host.decode()
        if host.isascii():
            self.host = host.encode()
        try:
            return super()._connect()
        finally:
            self.host = host


def connection_maker(settings: RedisSettings) -> Callable[[float], AbstractConnection]:
    """
    A function that makes connections; its argument is how many seconds to wait for a reply. With sentinels, it is a
    `PrimaryFinder`.

    Raises:
        ConfigError: The URL is malformed.
    """
    if "+sentinel://" in settings.url:
        return PrimaryFinder(settings)
    try:
        options: dict[str, Any] = dict(parse_url(settings.url))
    except ValueError as error:
        raise ConfigError(f"redis_url is {redact(settings.url)!r}: {error}") from error
    kind: type[AbstractConnection] = options.pop("connection_class", PlainConnection)
    options.pop("max_connections", None)

    return lambda timeout_seconds: _connection(kind, options, settings, timeout_seconds)


def _connection(
    kind: type[AbstractConnection], options: Mapping[str, Any], settings: RedisSettings, timeout_seconds: float
) -> AbstractConnection:
    try:
        return kind(**completed({**timeouts(settings, timeout_seconds), **options}))
    except TypeError as error:
        raise unknown_option(settings.url, error) from error


def unknown_option(url: str, error: TypeError) -> ConfigError:
    """The error for a connection that cannot be made because of an option in the query of *url*."""
    named = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if named is None:
        return ConfigError(f"redis_url is {redact(url)!r}: {error}")
    return ConfigError(
        f"redis_url is {redact(url)!r}: {url.split(':', 1)[0]}:// has no option {named[1]}. Remove it; "
        "options that begin with ssl_ need rediss://"
    )


def timeouts(settings: RedisSettings, timeout_seconds: float) -> dict[str, Any]:
    """The timeout options of a connection that waits *timeout_seconds* for a reply."""
    return {"socket_timeout": timeout_seconds, "socket_connect_timeout": settings.connect_timeout_seconds}


def completed(options: Mapping[str, Any]) -> dict[str, Any]:
    """*options* with the options that every connection has."""
    return {**_library(options), "socket_read_size": _READ_BYTES, **options, **fixed_options()}


def fixed_options() -> dict[str, Any]:
    """Options that the URL cannot change: the format of replies, and that nothing is silently repeated."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "health_check_interval": 0,
        "decode_responses": False,
        "encoding": "utf-8",
        "encoding_errors": "strict",
    }


def _library(options: Mapping[str, Any]) -> dict[str, Any]:
    """The option with which redis-py tells the server its name, unless *options* have another one."""
    info = None if _NAMES_OF_A_LIBRARY & options.keys() else driver_info()
    return {} if info is None else {"driver_info": info}


@cache
def driver_info() -> Any:
    """
    redis-py's driver info, cached, because redis-py makes one for each connection. Returns None for releases that do
    not have it.
    """
    try:
        module: Any = import_module("redis.driver_info")
    except ImportError:
        return None
    # Without the version, redis-py parses the metadata of its package to find it.
    return module.DriverInfo(lib_version=redis.__version__)


class Sentinels(NamedTuple):
    """
    The parts of a `redis+sentinel://` URL.

    Args:
        asked: The sentinels, which know the primary.
        service: The service's name.
        options: redis-py's options for connections to the primary, without host and port.
        is_secure: True if those connections use TLS.
    """

    asked: Sentinel
    service: str
    options: dict[str, Any]
    is_secure: bool


def sentinels_of(settings: RedisSettings) -> Sentinels:
    """
    Parse a `redis+sentinel://` URL. No sentinel is asked yet.

    Raises:
        ConfigError: The URL is malformed.
    """
    parts = urlsplit(settings.url)
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ConfigError("a redis+sentinel:// URL names the service: redis+sentinel://host:26379/mymaster/0")
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    credentials = {
        key: unquote(value) for key, value in (("username", parts.username), ("password", parts.password)) if value
    }
    secrecy = tls_options(settings.url)
    of_sentinels: dict[str, Any] = {
        name: query[f"sentinel_{name}"] for name in ("username", "password") if f"sentinel_{name}" in query
    }
    if query.get("sentinel_ssl", "").lower() in ("true", "1", "yes"):
        of_sentinels |= {"ssl": True, **secrecy}
    try:
        hosts = [_host_and_port(entry) for entry in parts.netloc.rpartition("@")[2].split(",")]
        options: dict[str, Any] = {"db": int(db or 0), **credentials}
    except ValueError as error:
        raise ConfigError(f"redis_url is {redact(settings.url)!r}: {error}") from error
    is_secure = parts.scheme.startswith("rediss")
    return Sentinels(
        Sentinel(hosts, socket_timeout=settings.connect_timeout_seconds, sentinel_kwargs=of_sentinels),
        service,
        # A connection without TLS refuses them.
        options if "ssl" in of_sentinels and not is_secure else {**options, **secrecy},
        is_secure,
    )


class PrimaryFinder:
    """
    Makes connections to the primary that the sentinels name, and asks them for each, to follow failovers.

    After a failover on order, the old primary goes on for about ten seconds. A worker that fetched from one server and
    settled on the other would run the jobs of that time twice, and one that read the next step of a chain there would
    find none. So as soon as one connection of a process has found the new primary, all others to it have moved.
    """

    # Where a connection of this process found the primary last, by the sentinels and the service.
    _found: ClassVar[dict[tuple[str, str], tuple[str, int]]] = {}

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._sentinels = sentinels_of(settings)
        self._service = (urlsplit(settings.url).netloc.rpartition("@")[2], self._sentinels.service)

    def __call__(self, timeout_seconds: float) -> AbstractConnection:
        """
        A connection to the primary, not connected yet.

        Raises:
            RedisConnectionError: No sentinel knows a primary.
        """
        asked, service, options, is_secure = self._sentinels
        try:
            host, port = asked.discover_master(service)
        except (redis.RedisError, OSError) as error:
            is_redis = "unknown command" in str(error)
            advice = ". This is a Redis, not a sentinel; sentinels usually listen on port 26379" if is_redis else ""
            raise RedisConnectionError(
                f"no sentinel knows a primary for {service!r}: {str(error).strip()}{advice}", is_advised=is_redis
            ) from error
        self._found[self._service] = host, port
        kind: type[AbstractConnection] = redis.SSLConnection if is_secure else PlainConnection
        return _connection(kind, {"host": host, "port": port, **options}, self._settings, timeout_seconds)

    def has_moved(self, connection: Any) -> bool:
        """True if the primary was found elsewhere than where *connection* leads."""
        return self._found[self._service] != (connection.host, connection.port)


def tls_options(url: str) -> dict[str, Any]:
    """The options that start with `ssl_` in a sentinel's URL, parsed as redis-py parses them in other URLs."""
    try:
        options: dict[str, Any] = dict(parse_url(f"rediss://primary/?{urlsplit(url).query}"))
    except ValueError as error:
        raise ConfigError(f"redis_url is {redact(url)!r}: {error}") from error
    return {name: value for name, value in options.items() if name.startswith("ssl_")}


def _host_and_port(entry: str) -> tuple[str, int]:
    host, _, port = entry.rpartition(":")
    return (host, int(port)) if host else (entry, 26379)
