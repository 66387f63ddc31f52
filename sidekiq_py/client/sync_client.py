"""
The blocking client: pushes an item, or a declared job's arguments, to Redis.

A push completes the item, runs client middleware, checks and writes the arguments (`outgoing`), then sends everything
at once and reads two replies (`redis_access.job_path.push`). A declared job without client middleware takes a shortcut
to the same bytes: a template that is made once, without a dict.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from time import time
from typing import TYPE_CHECKING, Any

from sidekiq_py import program
from sidekiq_py.client import outgoing
from sidekiq_py.client.detection import Detection
from sidekiq_py.client.jids import new_jid
from sidekiq_py.client.outgoing import ClientChain, Order
from sidekiq_py.errors import ConfigError, PushOutcomeUnknownError, ReplyLostError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import push as redis_push
from sidekiq_py.redis_access.job_path.push import Outgoing, PushBatch, PushSlice, push_batch_of
from sidekiq_py.redis_access.reads import versions
from sidekiq_py.registry import JobDefinition, Payload
from sidekiq_py.telemetry import PUSH
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.json_dialect import dump_args

if TYPE_CHECKING:
    from sidekiq_py.client import bulk

Jids = list[str | None]


class Client:
    """
    Pushes jobs to one Redis. Safe across threads and forks.

    Clients of the same Redis share its connections, so creating one for a single push costs nothing.

    Args:
        redis_url: The Redis to push to. Without it and *pool*, it is the program's configured Redis.
        pool: Use this instead of a URL: a `Pool`, or redis-py's `ConnectionPool` or `Redis`.
        sidekiq_version: The release on that Redis's Ruby side; by default the program's, which may be detected.
        namespace: The namespace of all keys there. By default, it is the program's for the program's Redis, and none
            for any other.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        pool: Any = None,
        sidekiq_version: str | None = None,
        namespace: str | None = None,
    ) -> None:
        if redis_url is not None and pool is not None:
            raise ConfigError("redis_url and pool both say where Redis is; give one of them")
        settings = program.settings()
        if pool is not None:
            self.pool = pool if isinstance(pool, Pool) and not namespace else _adopted(pool, namespace or "")
        else:
            self.pool = _pool_at(_redis_at(redis_url, namespace, settings.redis))
        version = settings.sidekiq_version if sidekiq_version is None else sidekiq_version
        self.detection = _detection_for(self.pool, version, settings.float_text)
        self.middleware: ClientChain = program.client_middleware
        """The middleware around every push; the program's own, unless you replace it."""

    def __repr__(self) -> str:
        return f"<Client {self.pool!r}>"

    def push(self, item: Mapping[str, Any]) -> str | None:
        """
        Push one job.

        Args:
            item: `class` (a name, or a declared job) and `args` (a list); optionally `queue`, `at` (epoch seconds or a
                timezone-aware datetime), `retry`, `jid` and any other key.

        Returns:
            The jid, or None if a client middleware stopped the push.

        Raises:
            PayloadError: The item is not a usable job.
            ArgumentError: An argument is not JSON.
            RedisError: The job was not enqueued; after `PushOutcomeUnknownError`, it may have been.
        """
        return self._push(outgoing.order_of_item(item), self.detection.dialect(time()))

    def prepare(self, item: Mapping[str, Any]) -> Outgoing | None:
        """
        Prepare a push without sending it, for a script that settles a job and sends the push along.

        Returns:
            The job to write, or None if a client middleware stopped the push.
        """
        return outgoing.prepare(
            outgoing.order_of_item(item), dialect=self.detection.dialect(time()), chain=self.middleware
        )

    def push_now(self, definition: JobDefinition, args: list[Any]) -> str | None:
        """`perform_async` of a declared job, without `set`."""
        now = time()
        detection = self.detection
        dialect = detection.last if detection.valid_from <= now < detection.valid_until else detection.dialect(now)
        if self.middleware or not program.is_plain or program.extensions.wants_pushes(definition.options):
            return self.push_call(definition, args)
        push_template = definition.push_template
        if (
            push_template is None
            or push_template.dialect is not dialect
            or push_template.default_options is not program.default_job_options
        ):
            push_template = definition.make_push_template(dialect, program.default_job_options)
        args_json = dump_args(args, dialect.float_text)
        jid = new_jid()
        stamp = int(now * 1000) if push_template.millisecond_times else now
        raw = push_template.render(args_json, jid, stamp, stamp)
        try:
            redis_push.push_one(self.pool, push_template.queue, raw)
        except ReplyLostError as error:
            raise PushOutcomeUnknownError([jid], error) from error
        if PUSH.handlers:
            outgoing.emit_pushed(PushBatch(push_template.queue, None, [jid], [raw]))
        return jid

    def push_call(
        self,
        definition: JobDefinition,
        args: list[Any],
        interval: float | None = None,
        set_options: Mapping[str, Any] | None = None,
    ) -> str | None:
        """
        `perform_async`, `perform_in` and `perform_at` of a declared job.

        Args:
            interval: Seconds from now or, from 1,000,000,000 on, since the epoch. None, or a time in the past, pushes
                immediately.
            set_options: The options of `set(...)`, or None if it was not called.
        """
        dialect = self.detection.dialect(time())
        order = outgoing.order_of_call(definition, args, dialect=dialect, set_options=set_options, interval=interval)
        return self._push(order, dialect)

    def push_deferred(self, order: Order) -> None:
        """Make a push that was delayed until a commit."""
        self._push(order, self.detection.dialect(time()), may_wait=False)

    def push_bulk(
        self,
        item: Mapping[str, Any],
        *,
        batch_size: int | None = None,
        spread_interval: Any = None,
    ) -> Jids:
        """
        Push many jobs of one class in few round trips.

        Args:
            item: As for `push`, but `args` is a list of lists (or a generator of lists), and `at` is one time for all
                jobs or a list with a time for each. It may also have `batch_size` and `spread_interval`.
            batch_size: How many jobs to send per round trip; by default 1,000, and 100 for scheduled jobs since Sidekiq
                8.1.
            spread_interval: Seconds or a timedelta; schedules the jobs at random times within this interval from now.

        Returns:
            The jid of each job, or None for a job that a client middleware stopped.

        Raises:
            As `push`; jobs that were sent before the error stay enqueued.
        """
        from sidekiq_py.client import bulk

        order = bulk.order_of_item_bulk(item, batch_size=batch_size, spread_interval=spread_interval)
        return self.push_slices(order)

    def push_slices(self, order: "bulk.BulkOrder") -> Jids:
        """`push_bulk`, or `perform_bulk` of a declared job."""
        from sidekiq_py.client import bulk

        dialect = self.detection.dialect(time())
        made = bulk.slices(order, dialect=dialect, chain=self.middleware)
        if program.extensions.wants_pushes(order.options):
            return self._push_extended_slices(order, made, dialect)
        jids: Jids = []
        sent: PushBatch | None = None
        try:
            with redis_push.Stream(self.pool) as stream:
                for one in made:
                    jids += one.jids
                    for batch in one.push_batches:
                        if program.interceptor is not None and program.interceptor(batch.jobs()):
                            continue
                        commands = batch.commands(self.pool.key_prefix)
                        stream.settle()
                        if sent is not None:
                            outgoing.emit_pushed(sent)
                        sent = batch
                        stream.send(commands)
        except PushOutcomeUnknownError:
            # From a push by a client middleware; it already names its own jobs.
            raise
        except ReplyLostError as error:
            raise PushOutcomeUnknownError([] if sent is None else sent.jids, error) from error
        if sent is not None:
            outgoing.emit_pushed(sent)
        return jids

    def repush(self, payload: Mapping[str, Any]) -> Outgoing | None:
        """
        Prepare a stored payload for another push, without sending it: for a poller that moves a due job, or for a job
        that was interrupted.

        Args:
            payload: The parsed payload.

        Returns:
            The queue and the bytes, and the score for `schedule` if an `at` says that the job has to wait; or None if a
            client middleware stopped it.
        """
        dialect = self.detection.dialect(time())
        return outgoing.repushed(payload, dialect=dialect, chain=self.middleware)

    @classmethod
    @contextmanager
    def via(cls, pool: Any) -> Iterator["Client"]:
        """
        A context manager that sends every push of this thread or task to another Redis.

        Args:
            pool: As for the constructor, or a URL, or a `Client`.

        Raises:
            ConfigError: *pool* is None.
        """
        if pool is None:
            # Without this, a shard that was looked up and not found would be the program's own Redis.
            raise ConfigError("via() needs to know which Redis: give it a URL, a pool or a Client, not None")
        client = of_pool(pool)
        token = _via.set(client)
        try:
            yield client
        finally:
            _via.reset(token)

    def close(self) -> None:
        """Close the connections that are not in use; the next push opens new ones."""
        self.pool.close()

    def _push(self, order: Order, dialect: Dialect, *, may_wait: bool = True) -> str | None:
        """
        Push one job.

        Args:
            may_wait: True if it waits for the commit of an open transaction.
        """
        later = outgoing.deferred(order, dialect, self.push_deferred) if may_wait else None
        if later is not None:
            return later
        ready = outgoing.prepare(order, dialect=dialect, chain=self.middleware)
        if ready is None:
            return None
        if program.extensions.wants_pushes(order.options):
            jobs = [push_batch_of(ready)]
            pushed = PushSlice(jobs, order.fields["class"], order.options, self.pool, dialect)
            program.extensions.push(pushed)
            self.send_slice(pushed)
            return None if pushed.stopped_jids else ready.jid
        self.send(ready)
        return ready.jid

    def shown(
        self,
        jobs: Sequence[Outgoing],
        class_name: str,
        definition: JobDefinition | None = None,
        *,
        follows: Payload | None = None,
    ) -> PushSlice | None:
        """
        Show jobs from `prepare` to the extensions. Pass the result to `send_slice`, or to a script that settles a job.

        Args:
            class_name: The class that the payloads name.
            follows: The payload of the job whose end pushes these.

        Returns:
            None if no extension wants to see them.

        Raises:
            Exception: A hook raised; nothing must be pushed.
        """
        options = outgoing.options_of(definition)
        if not program.extensions.wants_pushes(options, follows):
            return None
        dialect = self.detection.dialect(time())
        push_batches = [push_batch_of(job) for job in jobs]
        return program.extensions.push(PushSlice(push_batches, class_name, options, self.pool, dialect, follows))

    def _push_extended_slices(self, order: "bulk.BulkOrder", slices: "Iterable[bulk.Slice]", dialect: Dialect) -> Jids:
        """Push the slices of a bulk push that extensions take part in."""
        from sidekiq_py.client import extended_push  # a program without extensions does not need it

        jids: Jids = []
        with extended_push.Slices(self.pool) as sending:
            for one in slices:
                pushed = PushSlice(one.jobs, order.fields["class"], order.options, self.pool, dialect)
                program.extensions.push(pushed)
                if not extended_push.is_left_to_others(pushed):
                    sending.send(pushed)
                stopped = pushed.stopped_jids
                jids += [None if jid in stopped else jid for jid in one.jids] if stopped else one.jids
        return jids

    def send_slice(self, pushed: PushSlice) -> None:
        """
        Send the jobs that extensions have not stopped, together with the extensions' commands.

        Raises:
            RedisError: It was not enqueued; after `PushOutcomeUnknownError`, it may have been.
            Exception: An extension's own command was refused; nothing was pushed.
        """
        from sidekiq_py.client import extended_push  # as above

        if not extended_push.is_left_to_others(pushed):
            extended_push.send(self.pool, pushed)

    def send(self, ready: Outgoing) -> None:
        """
        Send a job from `prepare`.

        Raises:
            RedisError: It was not enqueued; after `PushOutcomeUnknownError`, it may have been.
        """
        if program.interceptor is not None and program.interceptor([ready]):
            return
        try:
            redis_push.push_one(self.pool, ready.queue, ready.payload, ready.score)
        except ReplyLostError as error:
            raise PushOutcomeUnknownError([ready.jid], error) from error
        if PUSH.handlers:
            outgoing.emit_pushed(push_batch_of(ready))


_via: ContextVar[Client | None] = ContextVar("sidekiq_via", default=None)
_default: Client | None = None


def current() -> Client:
    """The client of the innermost `Client.via` block, or else that of the program's own Redis."""
    return _via.get() or _default or _make_default()


def for_job(definition: JobDefinition) -> Client:
    """The client that pushes a declared job: that of `Client.via`, or of the job's own pool, or the program's."""
    return for_pool(definition.pool)


def for_pool(pool: Any) -> Client:
    """The client for a push to a pool (or URL, or client): that of `Client.via`, or the pool's, or the program's."""
    via = _via.get()
    if via is not None:
        return via
    return (_default or _make_default()) if pool is None else of_pool(pool)


def for_later(push: Callable[[], None]) -> Callable[[], None]:
    """*push*, with the `Client.via` and the extensions that apply to it now; for what waits for a commit by itself."""
    around, via = program.extensions.deferred(), _via.get()
    if via is not None:
        around.append(Client.via(via))
    return partial(outgoing.push_within, around, push)


def of_pool(pool: Any) -> Client:
    """The client for a pool (or URL, or client). Always returns the same client for the same pool."""
    if isinstance(pool, Client):
        return pool
    return _of_pool(pool)


@lru_cache(maxsize=64)
def _of_pool(pool: Any) -> Client:
    return Client(pool=pool)


@lru_cache(maxsize=64)
def _pool_at(settings: RedisSettings) -> Pool:
    return Pool(settings)


@lru_cache(maxsize=64)
def _adopted(pool: Any, namespace: str) -> Pool:
    from sidekiq_py.redis_access.connection.adopted_pool import pool_of

    return _pool_at(RedisSettings(pool, namespace=namespace)) if isinstance(pool, str) else pool_of(pool, namespace)


def _redis_at(url: str | None, namespace: str | None, usual: RedisSettings) -> RedisSettings:
    if url:
        return RedisSettings(url, namespace=namespace or "")
    return usual if namespace is None else replace(usual, namespace=namespace)


@lru_cache(maxsize=64)
def _detection_for(pool: Pool, sidekiq_version: str | None, float_text: FloatText | None) -> Detection:
    pinned = Dialect.asked_for(sidekiq_version, float_text, namespace=pool.settings.namespace)
    return Detection(pinned, float_text, lambda: versions.infos(pool))


def _make_default() -> Client:
    global _default
    while True:
        settings = program.settings()
        _default = client = Client()
        # If another thread has changed the settings meanwhile, every later push would still follow the old ones.
        if program.settings() is settings:
            return client


@program.when_changed
def _forget_clients() -> None:
    global _default
    if _default is not None:
        _default.close()
    _default = None
    _of_pool.cache_clear()
    _detection_for.cache_clear()
