"""
One connection, used by one thread at a time: commands out, replies in, nothing repeated behind the caller's back.
"""

import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import hiredis
import redis
from redis.connection import AbstractConnection

from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.namespace import Namespace
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES, out_of_reach, reply_error

Command = Sequence[Any]

# Its own annotation says "a tuple of one part".
pack_command: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

_SystemSocket = socket.socket

# redis-py takes two of the server's answers for lost connections.
_OF_THE_SERVER = (redis.ResponseError, redis.exceptions.BusyLoadingError, redis.exceptions.AuthenticationError)

# A socket idle for longer may have been closed by the server; it is looked at before a command is risked on it.
SUSPECT_IDLE_SECONDS = 0.25

# Up to here a copy costs less than another send.
_ONE_PIECE_BYTES = 65_536

# By Linux's name; macOS has the same under one that Python does not know.
_KEEP_BACK: int | None = getattr(socket, "TCP_CORK", 4 if sys.platform == "darwin" else None)
_MULTI, _EXEC = pack_command(("MULTI",)), pack_command(("EXEC",))
_SKIP_REPLY = pack_command(("CLIENT", "REPLY", "SKIP"))
_MARK = b"skipped?"
# To be sent once on a connection before replies are skipped there; `Link.receive_skip_probe` reads what comes. A proxy
# may not know the command, and a user may not have the right to it.
SKIP_PROBE: Sequence[Command] = (("CLIENT", "REPLY", "SKIP"), ("PING",), ("PING", _MARK))
# What a reply is, unless it is an error.
_VALUES = frozenset({bytes, int, list, type(None)})


class Link:
    """
    One connection.

    Args:
        connection: Its first; not connected yet.
        timeout_seconds: For a reply.
        find_again: Makes the connections after the first try, where the server may have moved.

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
        "_used_at",
        "_was_tried",
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
        self._was_tried = False
        # When the last reply was read, of those that were waited for in one call.
        self._used_at = 0.0
        self.timeout_seconds = timeout_seconds
        self.released_at = 0.0
        # Goes up with every new socket, so that a caller can tell an unbroken connection.
        self.generation = 0

    def command(self, *args: Any) -> Any:
        """One command, one reply."""
        self.drop_if_idle()
        self.send(self.pack((args,)))
        reply = self.receive()
        self._used_at = time.monotonic()
        return reply

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """
        Several commands in one round trip.

        Returns:
            A reply for each; an error reply stands in the list as a `RedisReplyError`.
        """
        return self._exchange(self.pack(commands), len(commands)) if commands else []

    def _exchange(self, packed: Sequence[bytes], count: int) -> list[Any]:
        """Send packed commands, so many of them, and read their replies."""
        self.drop_if_idle()
        self.connect()
        try:
            self.send(packed)
        except RedisConnectionError as error:
            if count > 1:
                raise ReplyLostError(f"{error}; the first of {count} commands may have been executed") from error
            raise
        return self.receive_all(count)

    def receive_all(self, count: int) -> list[Any]:
        """The next replies; an error reply stands in the list as a `RedisReplyError`."""
        try:
            replies = self._replies(count)
            self._used_at = time.monotonic()
            return replies
        except redis.InvalidResponse as error:
            raise self._refusal(error) from None
        except BaseException:
            # What is unread would be taken for replies to what is asked next.
            self.close()
            raise

    def receive_skip_probe(self) -> bool:
        """Read the replies to `SKIP_PROBE`; true if the server leaves replies out."""
        is_skipped = True
        while self._reply_or_error() != _MARK:
            is_skipped = False
        return is_skipped

    def _replies(self, count: int) -> list[Any]:
        replies = [self._reply_or_error()]
        gets = self._connection._parser._reader.gets
        while len(replies) < count:
            # As a rule it came with the one before: taken as it is, without redis-py's look at each of them.
            reply = gets()
            if type(reply) not in _VALUES:
                reply = self._refusal(reply) if isinstance(reply, redis.RedisError) else self._reply_or_error()
            replies.append(reply)
        return replies

    def _reply_or_error(self) -> Any:
        try:
            return self.receive()
        except RedisReplyError as error:
            return error

    def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """
        Several commands in one round trip, with nothing of others in between; where Redis allows no transaction, as
        `batch`. Their replies hold no keys: under a namespace none would be taken off.

        Returns:
            A reply for each, as `batch`.
        """
        packed = self.pack(commands)
        packed = [_MULTI + packed[0] + _EXEC] if len(packed) == 1 else [_MULTI, *packed, _EXEC]
        begun, *replies, done = self._exchange(packed, len(commands) + 2)
        if isinstance(begun, RedisReplyError):
            return replies
        if isinstance(done, RedisReplyError):
            # One could not even be queued, so none was executed; now each says what is wrong with it.
            return self.batch(commands) if done.code == "EXECABORT" else [done] * len(commands)
        return [reply if type(reply) in _VALUES else self._refusal(reply) for reply in done]

    def pack(self, commands: Sequence[Command], unanswered: Sequence[Command] = ()) -> list[bytes]:
        """
        The bytes to send; small ones in one piece.

        Args:
            unanswered: Come first, and get no reply: on a connection where `receive_skip_probe` was true.
        """
        # The connection's own pack_commands looks at each word by itself; a job's end has some eighty.
        packed = [_SKIP_REPLY + pack_command(tuple(command)) for command in unanswered]
        packed += [pack_command(tuple(command)) for command in commands]
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

    def send_as_process_ends(self, packed: bytes) -> None:
        """
        Send what nobody is to act upon before this process has ended, which must be at once.

        Over TCP the kernel keeps the last byte until the socket closes, which comes after the end of all threads; or
        until 200 ms have passed. No reply may be unread, or it throws that byte away; its own cannot be read.
        """
        self.send([packed[:-1]])
        sock = _socket_of(self._connection)
        if sock is not None and _KEEP_BACK is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # A kernel that refuses leaves a moment in which threads may go on.
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, _KEEP_BACK, 1)
        self.send([packed[-1:]])

    def receive(self) -> Any:
        """The next reply."""
        try:
            # The connection's own read_response only adds health checks and a second net for the same errors.
            reply = self._connection._parser.read_response()
        except (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse, OSError) as error:
            raise self._refusal(error) from None
        except BaseException:
            # Half a reply may be in the buffer: nothing that comes after could be told apart.
            self.close()
            raise
        if isinstance(reply, redis.ResponseError):
            raise self._refusal(reply)
        return reply

    def _refusal(self, error: Exception) -> RedisReplyError:
        """
        Our error for one that stands in a reply's place.

        Raises:
            ReplyLostError: It is none of the server's, or one after which it hangs up.
        """
        if not isinstance(error, _OF_THE_SERVER):
            self.close()
            raise ReplyLostError(f"the connection broke before Redis answered: {self._reason(error)}") from error
        refusal = reply_error(error)
        self._is_refused |= refusal.code in FAILOVER_CODES
        return refusal

    def connect(self) -> None:
        """Open the socket if it is closed."""
        if _socket_of(self._connection) is not None:
            return
        self._refuse_if_abandoned()
        # Also after a first try in vain: the server may have moved between the making of the link and its first use.
        if self._find_again is not None and self._was_tried:
            self._connection = self._find_again(self.timeout_seconds)
        self._was_tried = True
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

    def drop_if_idle(self) -> None:
        """
        Before a request, when no reply is awaited: look at a socket that was idle, as Redis closes such (its setting
        `timeout`, a firewall). The request goes out on a new one then, with nobody the wiser. So it does where the
        server has said that it is no longer the primary.
        """
        if self._is_refused:
            self.close()
        if time.monotonic() - self._used_at > SUSPECT_IDLE_SECONDS:
            self.drop_if_stale()

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

    def pack(self, commands: Sequence[Command], unanswered: Sequence[Command] = ()) -> list[bytes]:
        """The bytes to send."""
        command = self._namespace.command
        return super().pack([command(one) for one in commands], [command(one) for one in unanswered])


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
