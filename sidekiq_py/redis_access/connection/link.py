"""
One connection, used by one thread at a time. It sends commands and reads replies, and never silently repeats anything.
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

from sidekiq_py.copied_threads import is_copied, rest_if_copied
from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.connections import PrimaryFinder
from sidekiq_py.redis_access.connection.namespace import Namespace
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES, not_connected, reply_error

Command = Sequence[Any]

# hiredis annotates the argument as "a tuple of one part".
pack_command: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

_SystemSocket = socket.socket

# redis-py treats two of these error replies as lost connections.
_OF_THE_SERVER = (redis.ResponseError, redis.exceptions.BusyLoadingError, redis.exceptions.AuthenticationError)

# The server may have closed a socket that was idle for longer; it is checked before a command is sent on it. Of a push
# in a tight loop, which takes 16 µs, the check would make one of 18; under gevent, one of 21 would become one of 44.
SUSPECT_IDLE_SECONDS = 0.01

# Up to this size, a copy costs less than another send.
_ONE_PIECE_BYTES = 65_536

# Linux's name for it; macOS has the same option under a name that Python does not know.
_KEEP_BACK: int | None = getattr(socket, "TCP_CORK", 4 if sys.platform == "darwin" else None)
_MULTI, _EXEC = pack_command(("MULTI",)), pack_command(("EXEC",))
_SKIP_REPLY = pack_command(("CLIENT", "REPLY", "SKIP"))
_MARK = b"skipped?"
# Send this once on a connection before you skip replies there; `Link.receive_skip_probe` reads the result. A proxy may
# not know the command, and a user may not be allowed to use it.
SKIP_PROBE: Sequence[Command] = (("CLIENT", "REPLY", "SKIP"), ("PING",), ("PING", _MARK))
# The types of replies other than errors.
_VALUES = frozenset({bytes, int, list, type(None)})


class Link:
    """
    One connection.

    Args:
        connection: The first connection; not connected yet.
        timeout_seconds: How long to wait for a reply.
        primary: Makes the connections after the first try, if the server may move.

    Raises from every call:
        RedisConnectionError: Nothing was executed.
        ReplyLostError: The command was sent, but its reply was not read: it may have been executed.
        RedisReplyError: Redis answered with an error.
    """

    def __init__(
        self,
        connection: AbstractConnection,
        timeout_seconds: float,
        primary: PrimaryFinder | None = None,
    ) -> None:
        self._connection = connection
        self._primary = primary
        # True if the server said that it is no longer the primary. The next command then uses a new connection.
        self._is_refused = False
        self._is_abandoned = False
        self._was_tried = False
        # When `command` or `receive_all` last read its replies.
        self._used_at = 0.0
        self.timeout_seconds = timeout_seconds
        self.released_at = 0.0
        # Counts the sockets, so that a caller can tell if the connection is still the same one.
        self.generation = 0

    def command(self, *args: Any) -> Any:
        """Send one command and return its reply."""
        reply = self._exchange(self.pack((args,)), 1)[0]
        if isinstance(reply, RedisReplyError):
            raise reply
        return reply

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """
        Send several commands in one round trip.

        Returns:
            A reply for each; an error reply is in the list as a `RedisReplyError`.
        """
        return self._exchange(self.pack(commands), len(commands)) if commands else []

    def _exchange(self, packed: Sequence[bytes], count: int) -> list[Any]:
        """Send *count* packed commands and read their replies."""
        self.drop_if_idle()
        self.connect()
        try:
            self.send(packed)
            return self.receive_all(count)
        except RedisConnectionError as error:
            if count > 1:
                raise ReplyLostError(f"{error}; the first of {count} commands may have been executed") from error
            raise
        except RedisError:
            raise
        except BaseException:
            # A time limit may be raised between the two; the unread replies must not answer the next commands.
            self.close()
            raise

    def receive_all(self, count: int) -> list[Any]:
        """The next *count* replies; an error reply is in the list as a `RedisReplyError`."""
        replies: list[Any] = []
        # For the first reply it returns what hiredis returns if a reply is not complete: False.
        gets: Callable[[], Any] = bool
        try:
            while len(replies) < count:
                reply = gets()
                if type(reply) not in _VALUES:
                    try:
                        reply = self._refusal(reply) if isinstance(reply, redis.RedisError) else self.receive()
                    except RedisReplyError as error:
                        reply = error
                if not replies:
                    # Usually the rest arrived with it, so that is taken directly, without redis-py's checks of each
                    # reply.
                    gets = self._connection._parser._reader.gets
                replies.append(reply)
        except redis.InvalidResponse as error:
            raise self._refusal(error) from None
        except BaseException:
            # Unread replies would be mistaken for those to the next commands.
            self.close()
            raise
        self._used_at = time.monotonic()
        return replies

    def receive_skip_probe(self) -> bool:
        """
        Read the replies to `SKIP_PROBE`. Returns True if the server skips replies.

        Raises:
            RedisReplyError: Redis refused all of it, for example because it is busy, so nobody can tell which replies
                were skipped. The connection is closed.
        """
        [first] = self.receive_all(1)
        if first == _MARK:
            return True
        # Otherwise an error is the reply to CLIENT.
        is_refused = isinstance(first, RedisReplyError) and (
            first.code not in ("ERR", "NOPERM") or "'ping'" in str(first)
        )
        last = first if is_refused else self.receive_all(2)[1]
        if last == _MARK:
            return False
        self.close()
        raise last if isinstance(last, RedisReplyError) else RedisReplyError(f"ERR PING was answered with {last!r}")

    def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """
        Send several commands in one round trip, as a transaction; if Redis does not allow transactions, like `batch`.
        Do not use it for commands that reply with keys: a namespace would not be removed from them.

        Returns:
            A reply for each, as from `batch`.
        """
        packed = self.pack(commands)
        packed = [_MULTI + packed[0] + _EXEC] if len(packed) == 1 else [_MULTI, *packed, _EXEC]
        begun, *replies, done = self._exchange(packed, len(commands) + 2)
        if isinstance(begun, RedisReplyError):
            return replies
        if isinstance(done, RedisReplyError):
            # A command could not be queued, or EXEC was refused, so none was executed. Sent by itself, each returns its
            # own error.
            return self.batch(commands)
        return [reply if type(reply) in _VALUES else self._refusal(reply) for reply in done]

    def pack(self, commands: Sequence[Command], unanswered: Sequence[Command] = ()) -> list[bytes]:
        """
        The bytes to send, in one piece if they are small.

        A name that came from Redis goes back as the bytes that came: those that are not UTF-8 are in a `str` as
        `surrogateescape` leaves them.

        Args:
            unanswered: Commands that come first and get no reply. Only for a connection where `receive_skip_probe`
                returned True.

        Raises:
            UnicodeEncodeError: A word contains a surrogate that stands for no byte.
        """
        # The connection's own pack_commands checks each word separately; a job's end has about 80 words.
        try:
            packed = [_SKIP_REPLY + pack_command(tuple(command)) for command in unanswered]
            packed += [pack_command(tuple(command)) for command in commands]
        except UnicodeEncodeError:
            packed = [_SKIP_REPLY + pack_command(_in_bytes(command)) for command in unanswered]
            packed += [pack_command(_in_bytes(command)) for command in commands]
        return [b"".join(packed)] if sum(map(len, packed)) <= _ONE_PIECE_BYTES else packed

    def send(self, packed: Sequence[bytes] | bytes) -> None:
        """Send packed commands. The caller must read a reply for each."""
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
        Send commands that take effect only once all bytes have arrived. Any that take effect earlier must be safe to
        repeat.

        If an open socket breaks, everything is sent once more on a fresh one: the end was not sent, so it was not
        executed. No reply may be pending.
        """
        self.drop_if_moved()
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
        Send a command that Redis must not execute before this process has ended. The process must exit right after.

        Over TCP, the kernel holds back the last byte until the socket closes, which happens after all threads have
        ended, or until 200 ms have passed. No reply may be unread, or the kernel discards that byte. The command's own
        reply cannot be read.
        """
        self.send([packed[:-1]])
        sock = _socket_of(self._connection)
        if sock is not None and _KEEP_BACK is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # If the kernel refuses, threads may go on for a moment after Redis has executed the command.
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, _KEEP_BACK, 1)
        self.send([packed[-1:]])

    def receive(self) -> Any:
        """The next reply."""
        try:
            # The connection's own read_response only adds health checks and catches the same errors a second time.
            reply = self._connection._parser.read_response()
        except (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse, OSError) as error:
            raise self._refusal(error) from None
        except BaseException:
            # Half a reply may be in the buffer, so nothing that follows could be parsed.
            self.close()
            raise
        if isinstance(reply, redis.ResponseError):
            raise self._refusal(reply)
        return reply

    def _refusal(self, error: Exception) -> RedisReplyError:
        """
        Our error for one that came in place of a reply.

        Raises:
            ReplyLostError: It is not an error reply from the server, or one after which the server hangs up.
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
        rest_if_copied()
        self._refuse_if_abandoned()
        primary = self._primary
        if primary is not None and primary.has_moved(self._connection):
            self._connection = primary.follow(self.timeout_seconds)
        # Also after a failed first try: the server may have moved between the link's creation and its first use.
        elif primary is not None and self._was_tried:
            self._connection = primary(self.timeout_seconds)
        self._was_tried = True
        try:
            self._connection.connect()
        except BaseException as error:
            self.close()
            if isinstance(error, redis.RedisError | OSError):
                # It was this process that hung up, so advice about the server would mislead.
                self._refuse_if_abandoned()
                raise not_connected(error) from error
            raise
        if is_copied():
            # The fork came in the middle, so the socket is the parent's.
            self.close()
        self._refuse_if_abandoned()
        if primary is not None:
            primary.succeeded(self._connection)
        _let_the_kernel_wait(_socket_of(self._connection), self.timeout_seconds)
        self.generation += 1

    def abandon(self) -> None:
        """Fail a pending read with `ReplyLostError` and refuse all further commands. Safe to call from any thread."""
        self._is_abandoned = True
        sock = _socket_of(self._connection)
        if sock is not None:
            # TLS would first send its closing message, during another thread's read.
            plain = _SystemSocket if isinstance(sock, _SystemSocket) else type(sock)
            with suppress(OSError):
                plain.shutdown(sock, socket.SHUT_RDWR)

    def forget_inherited(self) -> None:
        """In a forked child, close only the child's copy of the socket. A QUIT or shutdown would affect the parent."""
        sock = _socket_of(self._connection)
        if sock is not None:
            sock.close()
            setattr(self._connection, "_sock", None)  # noqa: B010

    def _refuse_if_abandoned(self) -> None:
        if self._is_abandoned:
            self.close()
            raise RedisConnectionError("Redis has not answered for too long, so no more commands are sent")

    def _reason(self, error: BaseException) -> str:
        """The error's text, except for a timeout, which the kernel calls a resource that is temporarily unavailable."""
        if isinstance(error.__context__, BlockingIOError):
            return f"nothing came within {self.timeout_seconds:g} seconds"
        return str(error)

    def close(self) -> None:
        """Close the socket; the next command opens a new one."""
        self._is_refused = False
        self._connection.disconnect()
        # A copy that was waiting for a reply gets here, because `forget_inherited` has closed its socket.
        rest_if_copied()

    @property
    def is_open(self) -> bool:
        """True if there is a socket. If the other side is still there only shows in use."""
        return _socket_of(self._connection) is not None

    def fileno(self) -> int:
        """The socket's file descriptor, for `select`."""
        sock = _socket_of(self._connection)
        if sock is None:
            rest_if_copied()
            raise RedisConnectionError("this link has no open socket")
        return sock.fileno()

    def wait_readable(self, seconds: float, *wakers: int) -> bool:
        """
        Wait up to *seconds*, or until one of the file descriptors *wakers* can be read.

        Returns:
            True once a reply (or the end of the connection) can be read.
        """
        fd = self.fileno()
        return fd in readable((fd, *wakers), seconds)

    @property
    def has_unread(self) -> bool:
        """True if more data has arrived than was read, and is in the parser's buffer rather than in the socket."""
        return bool(self._connection._parser._reader.has_data())

    def drop_if_idle(self) -> None:
        """
        Drop a stale connection before a request, while no reply is pending. Redis (its setting `timeout`) or a firewall
        may close an idle socket; the request then uses a new one, and the caller does not notice. The same happens if
        the server said that it is no longer the primary, or if another connection found the primary elsewhere.
        """
        if self._is_refused:
            self.close()
        self.drop_if_moved()
        if time.monotonic() - self._used_at > SUSPECT_IDLE_SECONDS:
            self.drop_if_stale()

    def drop_if_moved(self) -> None:
        """Close the socket if another connection has found the primary elsewhere. No reply may be pending."""
        if self._primary is not None and self._primary.has_moved(self._connection):
            self.close()

    def drop_if_stale(self) -> None:
        """Close the socket if the server has closed it, or if unexpected data has arrived."""
        if self.is_open and self.wait_readable(0):
            self.close()


class NamespacedLink(Link):
    """A link that adds the namespace to the keys in commands and removes it from those in replies."""

    def __init__(
        self,
        connection: AbstractConnection,
        timeout_seconds: float,
        primary: PrimaryFinder | None,
        namespace: Namespace,
    ) -> None:
        super().__init__(connection, timeout_seconds, primary)
        self._namespace = namespace

    def command(self, *args: Any) -> Any:
        """Send one command and return its reply."""
        return self._namespace.reply(args, super().command(*args))

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """Send several commands in one round trip."""
        replies = super().batch(commands)
        return [
            reply if isinstance(reply, RedisReplyError) else self._namespace.reply(command, reply)
            for command, reply in zip(commands, replies, strict=True)
        ]

    def pack(self, commands: Sequence[Command], unanswered: Sequence[Command] = ()) -> list[bytes]:
        """The bytes to send."""
        command = self._namespace.command
        return super().pack([command(one) for one in commands], [command(one) for one in unanswered])


def _in_bytes(command: Command) -> tuple[Any, ...]:
    """
    The words of a command whose names are not all UTF-8. Other programs choose such names, so they are rare, and the
    usual commands must not pay for a check of each word.
    """
    return tuple(word.encode(errors="surrogateescape") if isinstance(word, str) else word for word in command)


def readable(fds: Sequence[int], seconds: float) -> list[int]:
    """Wait up to *seconds* until something can be read from one of *fds*. Returns those that can be read."""
    if not hasattr(select, "poll"):  # eventlet removes it, and Windows has none
        return select.select(fds, [], [], seconds)[0]
    # Everywhere else, because `select` refuses a descriptor above 1023: a web server has thousands of connections.
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1000)]


def _socket_of(connection: AbstractConnection) -> socket.socket | None:
    # redis-py has no public name for the socket, and its own code annotates it as never set.
    sock: socket.socket | None = getattr(connection, "_sock", None)
    return sock


def _let_the_kernel_wait(sock: socket.socket | None, seconds: float) -> None:
    """
    Let the kernel time out reads and writes.

    Python's own timeout costs a `poll` before each read or write: a tenth of a round trip on one machine. TLS and the
    sockets of gevent and eventlet, which have their own classes, keep Python's timeout. So does Windows, where these
    options are no `timeval`.
    """
    if type(sock) is not _SystemSocket or _SystemSocket.__module__ != "socket" or sys.platform == "win32":
        return
    whole = int(seconds)
    timeval = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
    sock.settimeout(None)
