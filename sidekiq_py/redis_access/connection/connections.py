"""
Makes redis-py's connections from a URL, set up so that they never repeat a command.

By default, redis-py silently repeats commands after a lost connection. That is turned off here, because a command whose
reply was lost may have been executed.
"""

import re
import socket
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakKeyDictionary

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from sidekiq_py.errors import ConfigError, RedisConnectionError
from sidekiq_py.redis_access.connection.settings import RedisSettings

_NAMES_OF_A_LIBRARY = frozenset({"driver_info", "lib_name", "lib_version"})
_FOR_SENTINELS = ("sentinel_username", "sentinel_password", "sentinel_ssl")

# The size of a connection's read buffer. redis-py allots 32 kB, earlier releases 64 kB, and a worker keeps a dozen
# connections. With 16 kB, reading 50 jobs of 250 bytes takes as long; 200 of them take 22 μs rather than 18.
_READ_BYTES = 16_384

# Between here and the server, a NAT, a firewall or a load balancer forgets a connection that is silent for minutes, and
# nobody hears of it: what is sent on it vanishes, and the sender waits for a reply until it gives up. These probes are
# those of redis-py 8; earlier releases send none by default.
_PROBES = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
}


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
        raise ConfigError(f"{settings.as_given}: {error}") from error
    kind: type[AbstractConnection] = options.pop("connection_class", PlainConnection)
    options.pop("max_connections", None)

    return lambda timeout_seconds: _connection(kind, options, settings, timeout_seconds)


def _connection(
    kind: type[AbstractConnection], options: Mapping[str, Any], settings: RedisSettings, timeout_seconds: float
) -> AbstractConnection:
    try:
        return kind(**completed({**timeouts(settings, timeout_seconds), **probes(options), **options}))
    except (TypeError, redis.RedisError) as error:
        raise wrong_option(settings, error) from error


def wrong_option(settings: RedisSettings, error: Exception) -> ConfigError:
    """The error for a connection that cannot be made because of an option in the query of the URL."""
    named = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if named is None:
        values = "; ssl_cert_reqs is required, optional or none" if "ssl_cert_reqs=" in settings.url else ""
        return ConfigError(f"{settings.as_given}: {error}{values}")
    scheme, name = settings.url.split(":", 1)[0], named[1]
    if not name.startswith("ssl_"):
        advice = "Remove it"
    elif scheme.startswith("rediss"):
        advice = "Those for TLS are ssl_ca_certs, ssl_cert_reqs, ssl_check_hostname, ssl_certfile and ssl_keyfile"
    else:
        advice = "Options that begin with ssl_ need rediss://"
    return ConfigError(f"{settings.as_given}: {scheme}:// has no option {name}. {advice}")


def timeouts(settings: RedisSettings, timeout_seconds: float) -> dict[str, Any]:
    """The timeout options of a connection that waits *timeout_seconds* for a reply."""
    return {"socket_timeout": timeout_seconds, "socket_connect_timeout": settings.connect_timeout_seconds}


def probes(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that keep a connection with *options* alive while it is idle. A socket file needs none."""
    return {} if "path" in options else {"socket_keepalive": True, "socket_keepalive_options": _PROBES}


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
    of_primary = _query_options(settings)
    secrecy = {name: value for name, value in of_primary.items() if name.startswith("ssl_")}
    seconds = settings.connect_timeout_seconds
    of_sentinels: dict[str, Any] = {
        # Connections to them are used again at the next failover, which may be months away.
        **probes({}),
        # Without these, redis-py waits for one that hangs for a minute.
        **{"socket_timeout": seconds, "socket_connect_timeout": seconds, "retry": Retry(NoBackoff(), 0)},
        **{name: query[f"sentinel_{name}"] for name in ("username", "password") if f"sentinel_{name}" in query},
    }
    unknown = {name for name in query if name.startswith("sentinel_")}.difference(_FOR_SENTINELS)
    if unknown:
        raise ConfigError(
            f"{settings.as_given}: {parts.scheme}:// has no option {min(unknown)}. Those for the "
            f"sentinels are {', '.join(_FOR_SENTINELS)}"
        )
    is_secure = parts.scheme.startswith("rediss")
    if query.get("sentinel_ssl", "").lower() in ("true", "1", "yes"):
        of_sentinels |= {"ssl": True, **secrecy}
        if not is_secure:
            # A connection without TLS refuses them.
            of_primary = {name: value for name, value in of_primary.items() if name not in secrecy}
    try:
        hosts = [_host_and_port(entry) for entry in parts.netloc.rpartition("@")[2].split(",")]
        options: dict[str, Any] = {"db": int(db or 0), **credentials, **of_primary}
    except ValueError as error:
        raise ConfigError(f"{settings.as_given}: {error}") from error
    return Sentinels(
        Sentinel(hosts, socket_timeout=seconds, sentinel_kwargs=of_sentinels),
        service,
        options,
        is_secure,
    )


def is_same_database(one: RedisSettings, other: RedisSettings) -> bool:
    """True if both URLs lead to the same database of the same server, as far as the URLs show."""
    return _database(one.url) == _database(other.url)


@lru_cache(maxsize=64)
def _database(url: str) -> tuple[Any, ...]:
    parts = urlsplit(url)
    if parts.scheme.endswith("+sentinel"):
        service, _, db = parts.path.strip("/").partition("/")
        number = parse_qs(parts.query).get("db", [db])[0]
        return "sentinel", frozenset(parts.netloc.rpartition("@")[2].split(",")), service, int(number or 0)
    # As connections read it: host, port and database may also be in the query.
    options: dict[str, Any] = dict(parse_url(url))
    if parts.scheme == "unix":
        return "unix", options.get("path"), options.get("db", 0)
    host = options.get("host", "localhost").lower()
    place = "localhost" if host in ("127.0.0.1", "::1") else host, int(options.get("port", 6379))
    return "tcp", *place, options.get("db", 0)


def shown_address(url: str) -> str:
    """
    The Redis of a URL for people: `host:6379/0`, the path of a socket file, or the service that sentinels know. Never
    with a user or a password.
    """
    kind, *place, db = _database(url)
    if kind == "sentinel":
        hosts, service = place
        return f"{service}/{db} by the sentinels {', '.join(sorted(hosts))}"
    return server_address(path=place[0], db=db) if kind == "unix" else server_address(*place, db=db)


def server_address(host: str = "localhost", port: int = 6379, *, db: int = 0, path: str | None = None) -> str:
    """The address of a server that is reached as redis-py's options say."""
    if path is not None:
        return f"{path}, database {db}"
    return f"[{host}]:{port}/{db}" if ":" in host else f"{host}:{port}/{db}"


class PrimaryFinder:
    """
    Makes connections to the primary that the sentinels name, and asks them for each, to follow failovers.

    After a failover on order, the old primary goes on for about ten seconds. A worker that fetched from one server and
    settled on the other would run the jobs of that time twice, and one that read the next step of a chain there would
    find none. So as soon as one connection of a process has found the new primary, all others are to follow.
    """

    # By the sentinels and the service: where a connection of this process succeeded last, and how often that changed.
    _found: ClassVar[dict[tuple[str, str], tuple[tuple[str, int], int]]] = {}
    # For each connection, how often it had changed when it was made.
    _changes_before: ClassVar[WeakKeyDictionary[AbstractConnection, int]] = WeakKeyDictionary()

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._sentinels = sentinels_of(settings)
        self._service = (urlsplit(settings.url).netloc.rpartition("@")[2], self._sentinels.service)

    def __call__(self, timeout_seconds: float) -> AbstractConnection:
        """
        A connection to the primary that the sentinels name, not connected yet.

        Raises:
            RedisConnectionError: No sentinel knows a primary.
        """
        _, changes = self._place()
        return self._connection_to(self._primary(), changes, timeout_seconds)

    def _primary(self) -> tuple[str, int]:
        """The host and port that a sentinel names. The one that answers is the first to be asked from then on."""
        asked = self._sentinels.asked
        reasons = [f"no sentinel knows a primary for {self._sentinels.service!r}."]
        for sentinel in asked.sentinels:
            try:
                place = self._named_by(sentinel)
            except (redis.RedisError, OSError, UnicodeError) as error:
                # A name with an empty label, as `.jobs.svc` is when a variable before the dot has no value, is a
                # UnicodeError.
                reason = str(error).strip().rstrip(".")
                if "unknown command" in reason:
                    reason = "This is a Redis, not a sentinel; sentinels usually listen on port 26379"
                address = sentinel.connection_pool.connection_kwargs
                reasons.append(f"{address['host']}:{address['port']}: {reason}.")
            else:
                asked.sentinels = [sentinel, *(other for other in asked.sentinels if other is not sentinel)]
                return place
        # The sentinels may start later, or be in a failover.
        raise RedisConnectionError(" ".join(reasons), is_advised=True)

    def _named_by(self, sentinel: Any) -> tuple[str, int]:
        # redis-py's own `discover_master` asks all of them, but its error shows a page of options for each.
        asked, service = self._sentinels.asked, self._sentinels.service
        known = sentinel.sentinel_masters()
        if service not in known:
            raise MasterNotFoundError(f"It knows only {', '.join(map(repr, known))}" if known else "It knows none")
        state = known[service]
        if not asked.check_master_state(state, service):
            raise MasterNotFoundError(f"It considers {state['ip']}:{state['port']} to be down")
        return state["ip"], state["port"]

    def has_moved(self, connection: Any) -> bool:
        """True if another connection has succeeded elsewhere since *connection* was made."""
        place, changes = self._place()
        return place != (connection.host, connection.port) and changes > self._changes_before[connection]

    def follow(self, timeout_seconds: float) -> AbstractConnection:
        """
        A connection to where another one succeeded. No sentinel is asked: two that disagree would send the connections
        of a process to and fro.
        """
        return self._connection_to(*self._place(), timeout_seconds)

    def succeeded(self, connection: Any) -> None:
        """Have all connections follow *connection*, which has just been connected."""
        place, changes = self._place()
        if place != (connection.host, connection.port):
            self._found[self._service] = (connection.host, connection.port), changes + 1

    def _place(self) -> tuple[tuple[str, int], int]:
        return self._found.get(self._service, (("", 0), 0))

    def _connection_to(self, place: tuple[str, int], changes: int, timeout_seconds: float) -> AbstractConnection:
        kind: type[AbstractConnection] = redis.SSLConnection if self._sentinels.is_secure else PlainConnection
        options = {"host": place[0], "port": place[1], **self._sentinels.options}
        connection = _connection(kind, options, self._settings, timeout_seconds)
        self._changes_before[connection] = changes
        return connection


def _query_options(settings: RedisSettings) -> dict[str, Any]:
    """The options for the primary in the query of a sentinel's URL, parsed as redis-py parses them in other URLs."""
    try:
        options: dict[str, Any] = dict(parse_url(f"rediss://primary/?{urlsplit(settings.url).query}"))
    except ValueError as error:
        raise ConfigError(f"{settings.as_given}: {error}") from error
    others = ("host", "port", "connection_class", "max_connections")
    return {name: value for name, value in options.items() if name not in others and not name.startswith("sentinel_")}


def _host_and_port(entry: str) -> tuple[str, int]:
    host, _, port = entry.rpartition(":")
    return (host, int(port)) if host else (entry, 26379)
