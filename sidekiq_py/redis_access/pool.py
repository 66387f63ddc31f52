"""
From a URL to connections, and the one place where redis-py's errors become ours.

A `Link` is one connection, used by one thread at a time: commands out, replies in, nothing repeated behind the
caller's back. A `Pool` hands out links, makes new ones when none is free, and starts afresh in a forked child.

redis-py repeats commands silently after a lost connection by default; that is off here, because a command whose reply
was lost may have been executed.
"""

import os
import re
import select
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from sidekiq_py.errors import ConfigError, RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.namespace import Namespace, prefix_of

Command = Sequence[Any]
T = TypeVar("T")

# Its own annotation says "a tuple of one part".
pack_command: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

# Error replies after which the same command may be sent again on a fresh connection: it was not executed, the server
# that answered is no longer the primary. Source: Sidekiq 6.4.1 and later, redis_connection.rb / config.rb.
FAILOVER_CODES = frozenset({"READONLY", "NOREPLICAS", "UNBLOCKED"})

_SystemSocket = socket.socket

# A link idle for longer may have been closed by the server; it is looked at before a command is risked on it.
_SUSPECT_IDLE_SECONDS = 0.25

# Up to here a copy costs less than another send.
_ONE_PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """
    Where Redis is and how long to wait for it.

    Args:
        url: `redis://`, `rediss://`, `unix://`, or `redis+sentinel://[:password@]host:port,host:port/service[/db]`.
        socket_timeout_seconds: For a reply; blocking commands add their own time.
        connect_timeout_seconds: For a new connection.
        pool_size: How many links stay open when nobody uses them.
        namespace: Every key is `<namespace>:<key>` there, as by the redis-namespace gem; empty for none.
    """

    url: str = "redis://localhost:6379/0"
    socket_timeout_seconds: float = 5.0
    connect_timeout_seconds: float = 3.0
    pool_size: int = 10
    namespace: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.namespace, str):
            raise ConfigError(f"namespace is {self.namespace!r}; it must be a text, as 'myapp', or '' for none")
        if any("\ud800" <= letter <= "\udfff" for letter in self.namespace):
            raise ConfigError(
                f"namespace is {self.namespace!a}, of which UTF-8 cannot write every letter; name it in whole letters, "
                "as 'myapp'"
            )
        scheme = self.url.split("://", 1)[0]
        if scheme not in ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"):
            raise ConfigError(
                f"redis_url is {redact(self.url)!r}; it must start with "
                "redis://, rediss://, unix:// or redis+sentinel://"
            )


def redact(url: str) -> str:
    """*url* without its password, fit for a log line."""
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, sep, user = head.partition("://")
    return f"{scheme}{sep}{user.split(':', 1)[0]}:***@{tail}"


def place(settings: RedisSettings) -> str:
    """The URL without its password, and the namespace behind a `#`, as Ruby's Web UI shows it."""
    return redact(settings.url) + (f"#{settings.namespace}" if settings.namespace else "")


# Redis 6.2 wraps what a command within a script was answered in sentences of its own, with or without a dash.
_WITHIN_A_SCRIPT = re.compile(r"Error running script \(call to \w+\): @user_script:\d+: (?:@user_script: \d+: )?-?")
# What Redis and Valkey say, without a code, when an ACL forbids a command within a script.
_FORBIDDEN_WITHIN_A_SCRIPT = ("The user executing the script can't", "ACL failure in script")


def reply_error(error: redis.RedisError) -> RedisReplyError:
    """Our error for an error reply. redis-py has cut the code from some of them, Redis 6.2 has put words before it."""
    codes = {
        redis.exceptions.ReadOnlyError: "READONLY",
        redis.exceptions.NoScriptError: "NOSCRIPT",
        redis.exceptions.BusyLoadingError: "LOADING",
        redis.exceptions.OutOfMemoryError: "OOM",
        redis.exceptions.NoPermissionError: "NOPERM",
        redis.exceptions.ExecAbortError: "EXECABORT",
        redis.exceptions.AuthenticationError: "NOAUTH",
        redis.exceptions.MasterDownError: "MASTERDOWN",
    }
    text = _WITHIN_A_SCRIPT.sub("", str(error), count=1)
    code = next((code for kind, code in codes.items() if isinstance(error, kind)), None)
    if text.startswith(_FORBIDDEN_WITHIN_A_SCRIPT):
        code = "NOPERM"
    if code and not text.startswith(code):
        text = f"{code} {text}"
    return RedisReplyError(text)


def out_of_reach(error: Exception) -> RedisConnectionError:
    """For a connection that could not be made, with what to do about a certificate."""
    text = f"Redis is out of reach: {error}"
    if "certificate verify failed" in text:
        text = (
            f"{text.rstrip('.')}. Name the authority that signed it in the URL (rediss://…?ssl_ca_certs=/path/ca.pem) "
            "or in SSL_CERT_FILE"
        )
    return RedisConnectionError(text)


class Link:
    """
    One connection.

    Args:
        connection: Its first; not connected yet.
        timeout_seconds: For a reply.
        find_again: Makes the connections after the first, where the server may have moved.

    Raises from every call:
        RedisConnectionError: Nothing was executed.
        ReplyLostError: The command was sent, its reply was not read: it may have been executed.
        RedisReplyError: Redis answered with an error.
    """

    __slots__ = (
        "__weakref__",
        "_connection",
        "_find_again",
        "_is_abandoned",
        "_is_refused",
        "generation",
        "released_at",
        "timeout_seconds",
    )

    def __init__(
        self,
        connection: AbstractConnection,
        timeout_seconds: float,
        find_again: Callable[[float], AbstractConnection] | None = None,
    ) -> None:
        self._connection = connection
        self._find_again = find_again
        # The server has said that it is no longer the primary: the next command goes to another one.
        self._is_refused = False
        self._is_abandoned = False
        self.timeout_seconds = timeout_seconds
        self.released_at = 0.0
        # Goes up with every new socket, so that a caller can tell an unbroken connection.
        self.generation = 0

    def command(self, *args: Any) -> Any:
        """One command, one reply."""
        self.send(self.pack((args,)))
        return self.receive()

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """
        Several commands in one round trip.

        Returns:
            A reply for each; an error reply stands in the list as a `RedisReplyError`.
        """
        packed = self.pack(commands)
        self.connect()
        try:
            self.send(packed)
        except RedisConnectionError as error:
            if len(commands) > 1:
                raise ReplyLostError(
                    f"{error}; the first of {len(commands)} commands may have been executed"
                ) from error
            raise
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(self.receive())
            except RedisReplyError as error:
                replies.append(error)
        return replies

    def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """
        Several commands in one round trip, with nothing of others in between; where Redis allows no transaction, as
        `batch`. Their replies hold no keys: under a namespace none would be taken off.

        Returns:
            A reply for each, as `batch`.
        """
        begun, *replies, done = self.batch([("MULTI",), *commands, ("EXEC",)])
        if isinstance(begun, RedisReplyError):
            return replies
        if isinstance(done, RedisReplyError):
            # One could not even be queued, so none was executed; now each says what is wrong with it.
            return self.batch(commands)
        return [self._refusal(reply) if isinstance(reply, redis.ResponseError) else reply for reply in done]

    def pack(self, commands: Sequence[Command]) -> list[bytes]:
        """The bytes to send; small ones in one piece."""
        # The connection's own pack_commands looks at each word by itself; a job's end has some eighty.
        packed = [pack_command(tuple(command)) for command in commands]
        return [b"".join(packed)] if sum(map(len, packed)) <= _ONE_PIECE_BYTES else packed

    def send(self, packed: Sequence[bytes] | bytes) -> None:
        """Send packed commands; read as many replies as there were."""
        if self._is_refused:
            self.close()
        if _socket_of(self._connection) is None:
            self.connect()
        try:
            self._connection.send_packed_command(packed, check_health=False)
        except (redis.RedisError, OSError) as error:
            self.close()
            raise RedisConnectionError(f"Redis is out of reach: {self._reason(error)}") from error
        except BaseException:
            self.close()
            raise

    def send_whole(self, packed: bytes) -> None:
        """
        Send what is done only when all of it has arrived, but for what may be repeated.

        It is sent once more, on a fresh socket, where an open one breaks: the end was not sent, so not executed.
        """
        sock = _socket_of(self._connection)
        if sock is not None:
            try:
                sock.sendall(packed)
                return
            except OSError:
                self.close()
            except BaseException:
                self.close()
                raise
        self.send([packed])

    def receive(self) -> Any:
        """The next reply."""
        try:
            # The connection's own read_response only adds health checks and a second net for the same errors.
            reply = self._connection._parser.read_response()
        except (redis.exceptions.BusyLoadingError, redis.exceptions.AuthenticationError) as error:
            raise reply_error(error) from None
        except (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse, OSError) as error:
            self.close()
            raise ReplyLostError(f"the connection broke before Redis answered: {self._reason(error)}") from error
        except BaseException:
            # Half a reply may be in the buffer: nothing that comes after could be told apart.
            self.close()
            raise
        if isinstance(reply, redis.ResponseError):
            raise self._refusal(reply)
        return reply

    def _refusal(self, error: redis.ResponseError) -> RedisReplyError:
        refusal = reply_error(error)
        self._is_refused = refusal.code in FAILOVER_CODES
        return refusal

    def connect(self) -> None:
        """Open the socket if it is closed."""
        if _socket_of(self._connection) is not None:
            return
        self._refuse_if_abandoned()
        if self._find_again is not None and self.generation > 0:
            self._connection = self._find_again(self.timeout_seconds)
        try:
            self._connection.connect()
        except (redis.exceptions.AuthenticationError, redis.exceptions.AuthenticationWrongNumberOfArgsError) as error:
            raise RedisReplyError(f"NOAUTH {str(error).rstrip('.')}; check the user and password in the URL") from error
        except redis.ResponseError as error:
            self.close()
            raise reply_error(error) from None
        except (redis.RedisError, OSError) as error:
            self.close()
            raise out_of_reach(error) from error
        except BaseException:
            self.close()
            raise
        self._refuse_if_abandoned()
        _let_the_kernel_wait(_socket_of(self._connection), self.timeout_seconds)
        self.generation += 1

    def abandon(self) -> None:
        """Whoever waits for a reply gets `ReplyLostError` now, and nothing is sent any more. From any thread."""
        self._is_abandoned = True
        sock = _socket_of(self._connection)
        if sock is not None:
            # TLS would say goodbye first, in the midst of another thread's read.
            plain = _SystemSocket if isinstance(sock, _SystemSocket) else type(sock)
            with suppress(OSError):
                plain.shutdown(sock, socket.SHUT_RDWR)

    def forget_inherited(self) -> None:
        """In a forked child: close the socket here alone; the parent, whose it is, would feel a QUIT or a shutdown."""
        sock = _socket_of(self._connection)
        if sock is not None:
            sock.close()
            setattr(self._connection, "_sock", None)  # noqa: B010

    def _refuse_if_abandoned(self) -> None:
        if self._is_abandoned:
            self.close()
            raise RedisConnectionError("Redis has not answered for too long: it is not asked any more")

    def _reason(self, error: BaseException) -> str:
        """In words; the kernel calls a timeout a resource that is temporarily unavailable."""
        if isinstance(error.__context__, BlockingIOError):
            return f"nothing came within {self.timeout_seconds:g} seconds"
        return str(error)

    def close(self) -> None:
        """Close the socket; the next command opens a new one."""
        self._is_refused = False
        self._connection.disconnect()

    @property
    def is_open(self) -> bool:
        """A socket is there; whether the other side still is shows only in use."""
        return _socket_of(self._connection) is not None

    def fileno(self) -> int:
        """For `select`."""
        sock = _socket_of(self._connection)
        if sock is None:
            raise RedisConnectionError("this link has no open socket")
        return sock.fileno()

    def wait_readable(self, seconds: float) -> bool:
        """True when a reply (or the end of the connection) can be read within *seconds*."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    @property
    def has_unread(self) -> bool:
        """More has come than was asked for, and is not in the socket any more."""
        return bool(self._connection._parser._reader.has_data())

    def drop_if_stale(self) -> None:
        """Close a socket that the server has closed, or on which something unasked for has come."""
        if self.is_open and self.wait_readable(0):
            self.close()


class NamespacedLink(Link):
    """A link whose commands and replies name keys without their namespace."""

    __slots__ = ("_namespace",)

    def __init__(
        self,
        connection: AbstractConnection,
        timeout_seconds: float,
        find_again: Callable[[float], AbstractConnection] | None,
        namespace: Namespace,
    ) -> None:
        super().__init__(connection, timeout_seconds, find_again)
        self._namespace = namespace

    def command(self, *args: Any) -> Any:
        """One command, one reply."""
        return self._namespace.reply(args, super().command(*args))

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """Several commands in one round trip."""
        replies = super().batch(commands)
        return [
            reply if isinstance(reply, RedisReplyError) else self._namespace.reply(command, reply)
            for command, reply in zip(commands, replies, strict=True)
        ]

    def pack(self, commands: Sequence[Command]) -> list[bytes]:
        """The bytes to send."""
        return super().pack([self._namespace.command(command) for command in commands])


class Pool:
    """Links to one Redis. Safe in threads and across fork."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self.namespace = Namespace(settings.namespace) if settings.namespace else None
        self.key_prefix = prefix_of(settings.namespace)
        """What stands before each key; for those alone who pack commands themselves."""
        self.push_heads: dict[str, bytes] = {}
        """By queue, what every push into it begins with; kept by `push.py`."""
        self._make = _connection_maker(settings)
        self._free: deque[Link] = deque()
        self._links: weakref.WeakValueDictionary[int, Link] = weakref.WeakValueDictionary()
        self._pid = os.getpid()
        self.is_abandoned = False
        _pools.add(self)

    def __repr__(self) -> str:
        return f"<Pool {place(self.settings)} free={len(self._free)}>"

    def new_link(self, *, timeout_seconds: float | None = None) -> Link:
        """A link that the pool does not take back; *timeout_seconds* for a reply."""
        seconds = self.settings.socket_timeout_seconds if timeout_seconds is None else timeout_seconds
        # A host name is looked up at each connection anyway; sentinels have to be asked.
        find_again = self._make if "+sentinel://" in self.settings.url else None
        if self.namespace is None:
            link = Link(self._make(seconds), seconds, find_again)
        else:
            link = NamespacedLink(self._make(seconds), seconds, find_again, self.namespace)
        self._links[id(link)] = link
        if self.is_abandoned:
            link.abandon()
        return link

    def acquire(self) -> Link:
        """A free link, or a new one."""
        if self._pid != os.getpid():
            self._start_afresh()
        try:
            link = self._free.pop()
        except IndexError:
            return self.new_link()
        if time.monotonic() - link.released_at > _SUSPECT_IDLE_SECONDS:
            link.drop_if_stale()
        return link

    def release(self, link: Link) -> None:
        """Give a link back."""
        if self._pid != os.getpid() or len(self._free) >= self.settings.pool_size:
            link.close()
            return
        link.released_at = time.monotonic()
        self._free.append(link)

    @contextmanager
    def link(self) -> Iterator[Link]:
        """A link for the length of a block."""
        link = self.acquire()
        try:
            yield link
        finally:
            self.release(link)

    def run(self, use: Callable[[Link], T], *, idempotent: bool = True) -> T:
        """
        Call *use* with a link; once more on a fresh one after a failover.

        Args:
            idempotent: Also once more after a lost reply. Leave it off for anything that must not happen twice.
        """
        link = self.acquire()
        try:
            try:
                return use(link)
            except RedisReplyError as error:
                if error.code not in FAILOVER_CODES:
                    raise
            except ReplyLostError:
                if not idempotent:
                    raise
            except RedisConnectionError:
                pass
            link.close()
            return use(link)
        finally:
            self.release(link)

    def command(self, *args: Any, idempotent: bool = True) -> Any:
        """One command on any link; repeated as `run` says."""
        return self.run(lambda link: link.command(*args), idempotent=idempotent)

    def batch(self, commands: Sequence[Command], *, idempotent: bool = True) -> list[Any]:
        """
        Several commands in one round trip; repeated as `run` says.

        Raises:
            RedisReplyError: The first error among the replies.
        """
        replies = self.run(lambda link: raise_first(link.batch(commands)), idempotent=idempotent)
        return replies

    def abandon(self) -> None:
        """For a process that leaves: every call that waits for Redis, and every later one, fails at once."""
        self.is_abandoned = True
        for reference in self._links.valuerefs():
            link = reference()
            if link is not None:
                link.abandon()

    @property
    def join_seconds(self) -> float:
        """How long a thread that has been told to end may still be waiting for this Redis."""
        return 0.1 if self.is_abandoned else self.settings.socket_timeout_seconds + 1

    def close(self) -> None:
        """Close the free links."""
        while self._free:
            self._free.pop().close()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._free = deque()
        for reference in self._links.valuerefs():
            link = reference()
            if link is not None:
                link.forget_inherited()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _start_all_afresh() -> None:
    """A child that lives on would keep the sockets of a worker open after its death, and must never read from one."""
    for pool in list(_pools):
        pool._start_afresh()


os.register_at_fork(after_in_child=_start_all_afresh)


def _socket_of(connection: AbstractConnection) -> socket.socket | None:
    # redis-py has no public name for it; its own code annotates it as never set.
    sock: socket.socket | None = getattr(connection, "_sock", None)
    return sock


def _let_the_kernel_wait(sock: socket.socket | None, seconds: float) -> None:
    """
    Have the kernel end a read or write that takes too long.

    Python's own timeout costs a `poll` before each of them: a tenth of a round trip on one machine. TLS and the sockets
    of gevent and eventlet, which are classes of their own, keep it.
    """
    if type(sock) is not _SystemSocket or _SystemSocket.__module__ != "socket":
        return
    whole = int(seconds)
    timeval = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
    sock.settimeout(None)


def raise_first(replies: list[Any]) -> list[Any]:
    """*replies*, unless one of them is an error."""
    for reply in replies:
        if isinstance(reply, RedisReplyError):
            raise reply
    return replies


def _connection_maker(settings: RedisSettings) -> Callable[[float], AbstractConnection]:
    if "+sentinel://" in settings.url:
        return _sentinel_connection_maker(settings)
    try:
        options: dict[str, Any] = dict(parse_url(settings.url))
    except ValueError as error:
        raise ConfigError(f"redis_url is {redact(settings.url)!r}: {error}") from error
    kind: type[AbstractConnection] = options.pop("connection_class", redis.Connection)
    options.pop("max_connections", None)

    def make(timeout_seconds: float) -> AbstractConnection:
        try:
            return kind(**{**_timeouts(settings, timeout_seconds), **options, **_fixed_options()})
        except TypeError as error:
            raise unknown_option(settings.url, error) from error

    return make


def unknown_option(url: str, error: TypeError) -> ConfigError:
    """For a connection that cannot be made from *url*, because of an option in its query."""
    named = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if named is None:
        return ConfigError(f"redis_url is {redact(url)!r}: {error}")
    return ConfigError(
        f"redis_url is {redact(url)!r}: {url.split(':', 1)[0]}:// knows no option {named[1]}. Remove it; "
        "options that begin with ssl_ need rediss://"
    )


def _timeouts(settings: RedisSettings, timeout_seconds: float) -> dict[str, Any]:
    return {"socket_timeout": timeout_seconds, "socket_connect_timeout": settings.connect_timeout_seconds}


def _common_options(settings: RedisSettings, timeout_seconds: float) -> dict[str, Any]:
    return {**_timeouts(settings, timeout_seconds), **_fixed_options()}


def _fixed_options() -> dict[str, Any]:
    """What all else here rests on, whatever the URL says: how replies look, and that nothing is repeated silently."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "health_check_interval": 0,
        "decode_responses": False,
        "encoding": "utf-8",
        "encoding_errors": "strict",
    }


def _sentinel_connection_maker(settings: RedisSettings) -> Callable[[float], AbstractConnection]:
    """Asks the sentinels for the primary at each new connection, so that a failover is followed."""
    parts = urlsplit(settings.url)
    hosts = [_host_and_port(entry) for entry in parts.netloc.rpartition("@")[2].split(",")]
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ConfigError("a redis+sentinel:// URL names the service: redis+sentinel://host:26379/mymaster/0")
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    credentials: dict[str, Any] = {
        key: unquote(value) for key, value in (("username", parts.username), ("password", parts.password)) if value
    }
    kind = redis.SSLConnection if parts.scheme.startswith("rediss") else redis.Connection
    secrecy = tls_options(settings.url)
    of_sentinels: dict[str, Any] = {
        name: query[f"sentinel_{name}"] for name in ("username", "password") if f"sentinel_{name}" in query
    }
    if query.get("sentinel_ssl", "").lower() in ("true", "1", "yes"):
        of_sentinels |= {"ssl": True, **secrecy}
    sentinel = Sentinel(hosts, socket_timeout=settings.connect_timeout_seconds, sentinel_kwargs=of_sentinels)

    def make(timeout_seconds: float) -> AbstractConnection:
        try:
            host, port = sentinel.discover_master(service)
        except (redis.RedisError, OSError) as error:
            raise RedisConnectionError(f"no sentinel knows a primary for {service!r}: {error}") from error
        common = _common_options(settings, timeout_seconds)
        try:
            return kind(host=host, port=port, db=int(db or 0), **credentials, **secrecy, **common)
        except TypeError as error:
            raise unknown_option(settings.url, error) from error

    return make


def tls_options(url: str) -> dict[str, Any]:
    """The options of a sentinel's URL that begin with `ssl_`, as redis-py reads them from any other."""
    try:
        options: dict[str, Any] = dict(parse_url(f"rediss://primary/?{urlsplit(url).query}"))
    except ValueError as error:
        raise ConfigError(f"redis_url is {redact(url)!r}: {error}") from error
    return {name: value for name, value in options.items() if name.startswith("ssl_")}


def _host_and_port(entry: str) -> tuple[str, int]:
    host, _, port = entry.rpartition(":")
    return (host, int(port)) if host else (entry, 26379)
