"""
Awaitable pushes over redis-py's asyncio connections, with the same guarantees as `push.py`.

A connection belongs to the event loop that opened it. Each loop has its own connections, at most `pool_size`, which are
closed when the loop shuts down. Further callers wait in order of arrival.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import redis
from redis.asyncio import connection as aio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from sidekiq_py.errors import ConfigError, RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.redis_access.connection.adopted_pool import AWAITED, AdoptedPool
from sidekiq_py.redis_access.connection.connections import fixed_options, probes, sentinels_of, timeouts, wrong_option
from sidekiq_py.redis_access.connection.link import SUSPECT_IDLE_SECONDS, Command, readable
from sidekiq_py.redis_access.connection.pool import Pool, check_links
from sidekiq_py.redis_access.connection.replies import FAILOVER_CODES, not_connected, reply_error
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.push import refused_for_good, refused_twice


class AsyncLink:
    """
    One connection, like `Link`. But after a failure while sending, the commands count as sent, because asyncio buffers
    them.

    Args:
        connection: The first connection; not connected yet.
        make: Makes the connections after the first try, as the primary may have moved.
    """

    __slots__ = ("_connection", "_make", "_was_tried", "released_at")

    def __init__(
        self, connection: aio.AbstractConnection, make: Callable[[], Awaitable[aio.AbstractConnection]]
    ) -> None:
        # Any, because redis-py's annotations are incomplete.
        self._connection: Any = connection
        self._make = make
        self._was_tried = False
        self.released_at = 0.0

    async def exchange(self, packed: Sequence[bytes], count: int) -> list[Any]:
        """
        Send packed commands and read their replies.

        Returns:
            *count* replies; an error reply is in the list as a `RedisReplyError`.

        Raises:
            RedisConnectionError: Nothing was sent.
            ReplyLostError: It may have been executed.
        """
        await self._connect()
        try:
            await self._connection.send_packed_command(packed, check_health=False)
            return [await self._receive() for _ in range(count)]
        except (TimeoutError, redis.RedisError, OSError) as error:
            self.abort()
            raise ReplyLostError(f"the connection broke before Redis answered: {error}") from error
        except BaseException:
            self.abort()
            raise

    async def _receive(self) -> Any:
        try:
            return await self._connection.read_response(disconnect_on_error=False)
        except (redis.exceptions.BusyLoadingError, redis.exceptions.AuthenticationError) as error:
            return reply_error(error)
        except redis.ConnectionError:
            raise
        except redis.ResponseError as error:
            return reply_error(error)

    async def _connect(self) -> None:
        if self._connection.is_connected and not self._is_stale():
            return
        self.abort()
        if self._was_tried:
            self._connection = await self._make()
        self._was_tried = True
        try:
            await self._connection.connect()
        except BaseException as error:
            self.abort()
            # A TimeoutError is an OSError.
            if isinstance(error, redis.RedisError | OSError):
                raise not_connected(error) from error
            raise

    def _is_stale(self) -> bool:
        """True if the server has closed the connection, or if unexpected data has arrived."""
        writer, reader = self._connection._writer, self._connection._reader
        if writer.is_closing() or reader.at_eof():
            return True
        if time.monotonic() - self.released_at < SUSPECT_IDLE_SECONDS:
            return False
        return bool(readable([writer.get_extra_info("socket").fileno()], 0))

    def abort(self) -> None:
        """Close the socket immediately; the next command opens a new one."""
        writer = self._connection._writer
        self._connection._writer = self._connection._reader = None
        if writer is not None:
            writer.transport.abort()

    async def close(self) -> None:
        """Close the socket and wait until it is closed."""
        await self._connection.disconnect()


class AsyncPool:
    """
    Awaitable links to the Redis of a pool.

    Args:
        pool: Its settings are used, its links are not. `pool_size` is the most links that one loop opens.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.settings: RedisSettings = pool.settings
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopLinks] = WeakKeyDictionary()

    async def push(self, commands: Sequence[bytes]) -> None:
        """
        Run one push; send what a failover refuses of it once more.

        Raises:
            RedisConnectionError: Nothing was done.
            ReplyLostError: It may or may not have been done.
            RedisReplyError: Redis refused it.
        """
        async with self._link() as link:
            refusals = _refusals(await link.exchange([b"".join(commands)], len(commands)))
            if refusals:
                final = refused_for_good(refusals, count=len(commands))
                if final is not None:
                    raise final
                link.abort()
                again = [commands[index] for index, _ in refusals]
                still = _refusals(await link.exchange([b"".join(again)], len(again)))
                if still:
                    raise refused_twice(refusals, still, count=len(commands))

    async def batch(self, commands: Sequence[Command]) -> list[Any]:
        """Send several commands that only read values in one round trip. Raises the first error among the replies."""
        namespace = self._pool.namespace
        if namespace is not None:
            commands = [namespace.command(command) for command in commands]
        async with self._link() as link:
            packed = link._connection.pack_commands(commands)
            replies = await link.exchange(packed, len(commands))
        for _, error in _refusals(replies):
            raise error
        return replies

    async def run_script(self, call: Command, full_call: Command, *, idempotent: bool) -> None:
        """
        Run a script. After a failover, run it once more on a fresh connection, like `Pool.run`.

        Args:
            call: The command that runs it by digest.
            full_call: The command that sends its text along.
            idempotent: Also run it once more after a lost reply.

        Raises:
            RedisConnectionError: Nothing was done.
            ReplyLostError: It may or may not have been done.
            RedisReplyError: Redis refused it.
        """
        lost: ReplyLostError | None = None
        async with self._link() as link:
            try:
                return await self._run_script(link, call, full_call)
            except RedisReplyError as error:
                if error.code not in FAILOVER_CODES:
                    raise
            except ReplyLostError as error:
                if not idempotent:
                    raise
                lost = error
            link.abort()
            try:
                await self._run_script(link, call, full_call)
            except RedisError as error:
                if lost is not None and error.is_about_server:
                    # The outcome of the first try is still unknown.
                    raise lost from error
                raise

    async def _run_script(self, link: AsyncLink, call: Command, full_call: Command) -> None:
        namespace = self._pool.namespace
        for command in (call, full_call):
            spelled = command if namespace is None else namespace.command(command)
            [reply] = await link.exchange(link._connection.pack_commands([spelled]), 1)
            if not isinstance(reply, RedisReplyError):
                return
            if reply.code != "NOSCRIPT":
                raise reply
        raise reply

    async def close(self) -> None:
        """Close the free links of this loop."""
        links = self._loops.pop(asyncio.get_running_loop(), None)
        if links is not None:
            await links.closer.aclose()

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[AsyncLink]:
        """
        A context manager that acquires a link and releases it at the end. While all of this loop's links are in use,
        the caller waits.

        Raises:
            RedisConnectionError: This caller never got a link, and Redis has not answered any command for as long as a
                reply may take.
        """
        links = await self._links()
        called_at = time.monotonic()
        async with links.turns:
            # Without this, the callers of a Redis that hangs would time out ten at a time, the last of 5,000 after 40
            # minutes.
            waited = time.monotonic() - called_at
            if waited >= self.settings.socket_timeout_seconds and links.answered_at < called_at:
                raise RedisConnectionError(
                    f"Redis is out of reach: it has answered nothing for {waited:.1f} s, while this command waited for "
                    f"one of {self.settings.pool_size} connections; nothing was sent"
                )
            link = links.free.pop() if links.free else AsyncLink(await self._connection(), self._connection)
            try:
                yield link
                links.answered_at = time.monotonic()
            except RedisReplyError:
                links.answered_at = time.monotonic()
                raise
            finally:
                links.release(link)

    async def _links(self) -> "_LoopLinks":
        loop = asyncio.get_running_loop()
        links = self._loops.get(loop)
        if links is None:
            self._forget_closed_loops()
            self._loops[loop] = links = _LoopLinks(self.settings.pool_size)
            # The loop's shutdown closes a generator that was started, and its links with it.
            await anext(links.closer)
        return links

    def _forget_closed_loops(self) -> None:
        """
        Drop the connections of loops that were closed without `shutdown_asyncgens`.

        They refer to their loop, so the weak keys alone would keep each of them open for good.
        """
        for reference in self._loops.keyrefs():
            loop = reference()
            if loop is not None and loop.is_closed():
                self._loops.pop(loop, None)

    async def _connection(self) -> aio.AbstractConnection:
        """A connection that is not open yet."""
        check_links()
        kind, options = await self._recipe()
        common = timeouts(self.settings, self.settings.socket_timeout_seconds) | fixed_options()
        try:
            return kind(**{**probes(options), **options, **common, "retry": Retry(NoBackoff(), 0)})
        except (TypeError, redis.RedisError) as error:
            raise wrong_option(self.settings, error) from error

    async def _recipe(self) -> tuple[type[aio.AbstractConnection], dict[str, Any]]:
        if isinstance(self._pool, AdoptedPool):
            kind = AWAITED.get(self._pool.connection_class)
            if kind is None:
                raise ConfigError(
                    f"a pool of {self._pool.connection_class.__name__} cannot be awaited; "
                    "give AsyncClient a redis_url, for Sentinel redis+sentinel://host:26379/service/0"
                )
            return kind, self._pool.connection_options
        if "+sentinel://" in self.settings.url:
            return await self._primary_recipe()
        options: dict[str, Any] = dict(aio.parse_url(self.settings.url))
        options.pop("max_connections", None)
        return options.pop("connection_class", aio.Connection), options

    async def _primary_recipe(self) -> tuple[type[aio.AbstractConnection], dict[str, Any]]:
        """The options for the primary that the sentinels name. They are asked in a thread."""

        def ask() -> tuple[type[aio.AbstractConnection], dict[str, Any]]:
            connection: Any = self._pool.new_link()._connection
            place = {"host": connection.host, "port": connection.port}
            return AWAITED[type(connection)], {**sentinels_of(self.settings).options, **place}

        return await asyncio.to_thread(ask)


class _LoopLinks:
    """The links of one event loop: the free ones, and a semaphore that limits how many are in use."""

    def __init__(self, most: int) -> None:
        self.free: deque[AsyncLink] = deque()
        # Callers are served in order of arrival, and a caller that is cancelled while it waits does not use a turn.
        self.turns = asyncio.Semaphore(max(1, most))
        self.answered_at = float("-inf")
        self.is_closed = False
        self.closer = self._close_at_the_end()

    def release(self, link: AsyncLink) -> None:
        if self.is_closed:
            link.abort()
            return
        link.released_at = time.monotonic()
        self.free.append(link)

    async def _close_at_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.is_closed = True
            while self.free:
                await self.free.pop().close()


def _refusals(replies: Sequence[Any]) -> list[tuple[int, RedisReplyError]]:
    return [(index, reply) for index, reply in enumerate(replies) if isinstance(reply, RedisReplyError)]
