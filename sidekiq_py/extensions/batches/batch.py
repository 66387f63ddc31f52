"""`sidekiq.Batch`."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextvars import Token
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.client.sync_client import Client
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches import adding, callbacks, errors, retrying, state, steps
from sidekiq_py.extensions.batches.adding import Adding
from sidekiq_py.extensions.batches.callbacks import EVENTS, Callback, CallbackClass, CallbackJob, Event
from sidekiq_py.extensions.batches.changes import EVERY_SECONDS, IDLE_SECONDS, Change, Listener
from sidekiq_py.extensions.batches.errors import BatchError
from sidekiq_py.extensions.batches.member import is_bid, membership_of
from sidekiq_py.extensions.batches.pretended import pretending
from sidekiq_py.extensions.batches.rows import Rows
from sidekiq_py.extensions.batches.ruby_processes import warn_once
from sidekiq_py.extensions.batches.state import BatchStatus
from sidekiq_py.middleware.running import running_here
from sidekiq_py.wire.json_dialect import check_args

__all__ = ["Batch", "call"]

_O = TypeVar("_O")
_DAY_SECONDS = 24 * 3600
_KEPT_SECONDS = 30 * _DAY_SECONDS
_BID_BYTES = 10
_FIRST_POLL_SECONDS = 0.02
_SLOWEST_POLL_SECONDS = 1.0


class Batch:
    """
    Jobs that belong together, and what is enqueued when they are through.

        batch = sidekiq.Batch(description="Import 42")
        batch.on("success", import_done, {"import_id": 42})
        with batch.jobs():
            import_row.perform_async(1)

    It is in Redis from the first block of jobs on. A batch whose block is entered within another's is its child.

    Args:
        description: For people.
        callback_queue: Where callbacks go; by default where their jobs do.
        expires_in: Seconds or a timedelta after its last change, at which Redis forgets it.
        track: Keep a row for each job: `rows` reads them, `changes` tells of them.
        client: Of the Redis that it lives in; by default the one that pushes go to at this point.
    """

    def __init__(
        self,
        *,
        description: str = "",
        callback_queue: str | None = None,
        expires_in: float | timedelta = _KEPT_SECONDS,
        track: bool = False,
        client: Client | None = None,
    ) -> None:
        seconds = expires_in.total_seconds() if isinstance(expires_in, timedelta) else expires_in
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 1:
            raise BatchError(f"expires_in is {expires_in!r}; give a second or more, or a timedelta")
        self.bid = secrets.token_hex(_BID_BYTES)
        self.description = description
        self._callback_queue = callback_queue
        self._expires_seconds = int(seconds)
        self._is_tracked = track
        self._callbacks: list[Callback] = []
        self._client = client or sync_client.current()
        self._is_new = True

    @classmethod
    def find(cls, bid: str, *, client: Client | None = None) -> Self:
        """
        A batch that is in Redis.

        Raises:
            BatchGoneError: There is none.
            RedisError: Redis is out of reach.
        """
        batch = cls.handle(bid, client=client)
        batch.description = batch.status().description
        return batch

    @classmethod
    def handle(cls, bid: str, *, client: Client | None = None) -> Self:
        """The same, without a look whether it is there."""
        if not is_bid(bid):
            raise BatchError(f"{bid!r} is no batch's id")
        batch = cls(client=client)
        batch.bid = bid
        batch._is_new = False
        return batch

    def __repr__(self) -> str:
        return f"<Batch {self.bid} {self.description!r}>"

    @overload
    def on(self, event: Event, callback: CallbackJob[_O] | type[CallbackClass[_O]], options: _O) -> Self: ...
    @overload
    def on(self, event: Event, callback: CallbackJob[None] | type[CallbackClass[None]]) -> Self: ...
    @overload
    def on(self, event: Event, callback: str, options: Any = None) -> Self: ...
    def on(self, event: Event, callback: Any, options: Any = None) -> Self:
        """
        Enqueue a job once an event has happened: `complete`, when every job has finished an attempt; `success`, when
        all have succeeded; `death`, when the first of them dies.

        Args:
            callback: A declared job, called with the batch's id, the event and *options*; a `ruby_job`; a class by its
                name; `"Billing::ImportDone#on_success"` for a plain Ruby class that takes status and options.
            options: JSON.

        Raises:
            BatchError: The batch is open already, or the event is none.
            ArgumentTypeError: The options are not JSON.
        """
        if event not in EVENTS:
            raise BatchError(f"{event!r} is no event of a batch; use one of {', '.join(EVENTS)}")
        if not self._is_new:
            raise BatchError(f"batch {self.bid} is open already; call `on` before its first block of jobs")
        if not isinstance(callback, str) and callbacks.definition_of(callback) is None:
            raise BatchError(f"{callback!r} is no declared job; give a @job, a ruby_job, or a class by its name")
        check_args([options])
        self._callbacks.append(Callback(event, callback, options))
        return self

    def jobs(self) -> "Jobs":
        """
        A block, `with` or `async with`: what this thread or task pushes in it belongs to the batch. Left by an
        exception it keeps the batch open, so that no callback says that all is done; `close()` closes it by hand.

        Entering raises:
            BatchDoneError: All its jobs have succeeded.
            BatchGoneError: It has expired.
            RedisError: Redis is out of reach.
        """
        return Jobs(self)

    def status(self) -> BatchStatus:
        """
        Where it stands.

        Raises:
            BatchGoneError: It has expired, or has never been open.
            RedisError: Redis is out of reach.
        """
        return state.read(self._client.pool, self.bid)

    @property
    def rows(self) -> Rows:
        """A row for each of its jobs, if it was made with `track=True`; else there are none."""
        return Rows(self._client.pool, self.bid)

    def changes(self, *, every: float = EVERY_SECONDS, idle: float = IDLE_SECONDS) -> Iterator[Change]:
        """
        What happens to its rows and which events come, as it happens, without an end; for a thread of its own. Needs
        `track=True`. The first change comes at once: read the rows then, and nothing is missed.

        Args:
            every: Seconds between two changes at least; what happens between is one.
            idle: After so many seconds without one an empty change comes, so that you can look whether to go on.

        Raises:
            BatchGoneError: There is no such batch, or no more.
            RedisError: Redis forbids to subscribe. A lost connection is made again.
        """
        return Listener(self._client.pool, self.bid, every, idle).changes()

    def achanges(self, *, every: float = EVERY_SECONDS, idle: float = IDLE_SECONDS) -> AsyncIterator[Change]:
        """`changes`, for `async for`. Close it (`contextlib.aclosing`), or let its task be cancelled."""
        return Listener(self._client.pool, self.bid, every, idle).achanges()

    @property
    def is_valid(self) -> bool:
        """Whether nobody has invalidated it; asked of Redis."""
        if pretending() is not None:
            return self.status().is_valid
        return self._client.pool.command("HGET", steps.key(self.bid), "invalidated_at") is None

    def invalidate(self) -> int:
        """
        Have its jobs, and those of its children, leave without a run as their turn comes; what runs goes on and may
        look at `current_job().is_valid`. `complete` follows, `success` does not.

        Returns:
            How many batches it concerned; 0 if it was invalid already.
        """
        return int(self._call("invalidate"))

    def close(self) -> int:
        """
        Close it by hand, where whoever was adding jobs has failed or died.

        Returns:
            How many could add.
        """
        return int(self._call("close"))

    def remove(self, jids: Iterable[str]) -> int:
        """
        Take members out: the batch waits for them no more. The jobs themselves stay where they are.

        Members that have not failed yet are looked for in all queues and sets.

        Returns:
            How many were found and removed.
        """
        numbers = retrying.numbers_of(self._client.pool, self.bid, set(jids))
        return int(self._call("remove", *numbers)) if numbers else 0

    def retry_failed(self) -> int:
        """
        Put the members that wait in `retry`, and those in the dead set, back to their queues now.

        Returns:
            How many.
        """
        return retrying.retry_failed(self._client, self.bid)

    def delete(self) -> None:
        """Forget it. Its jobs run all the same, no callback follows, and a parent waits for it no more."""
        self._call("delete")

    def wait(self, timeout: float | None = None, *, until: Event = "complete") -> BatchStatus:
        """
        Wait for an event; for tests and scripts. Nobody is told, Redis is asked again and again.

        Args:
            timeout: Seconds.

        Raises:
            TimeoutError: It has not happened.
        """
        started = time.monotonic()
        pause = _FIRST_POLL_SECONDS
        while True:
            status = self.status()
            if getattr(status, f"{until}_at") is not None:
                return status
            if timeout is not None and time.monotonic() - started + pause > timeout:
                raise TimeoutError(
                    f"batch {self.bid} has no {until} after {timeout} s: {status.pending} of {status.total} pending,"
                    f" of which {status.failures} failed and {status.dead} died; {len(status.openers)} may still add"
                )
            time.sleep(pause)
            pause = min(2 * pause, _SLOWEST_POLL_SECONDS)

    def _call(self, step: str, *words: Any) -> Any:
        return call(self._client, step, self.bid, *words)

    def _begin(self) -> Adding:
        """Open it in Redis, or open it again."""
        # Without its hooks what is pushed in the block would be no member.
        program.extensions.load_installed()
        if program.extensions.find("batches") is None:
            raise BatchError(
                "the extension of batches is not loaded: install sidekiq_py anew, or call "
                "sidekiq.use(sidekiq_py.extensions.batches.extension.BatchExtension())"
            )
        running = running_here()
        payload = {} if running is None else running[0]
        membership = membership_of(payload)
        if membership is not None and membership.bid == self.bid:
            adds = Adding(self._client.pool, self.bid, str(payload.get("jid")), membership.number)
            who = str(payload.get("class"))
        else:
            adds = Adding(self._client.pool, self.bid, secrets.token_hex(8), None)
            who = f"{socket.gethostname()}:{os.getpid()}"
        number = "-" if adds.number is None else adds.number
        words: list[Any] = [adds.token, number, who, "1" if self._is_new else "0", "", 0]
        if self._is_new:
            if pretending() is None:
                warn_once(self._client.pool)
            outer = adding.current()
            if outer is not None and outer.pool is self._client.pool:
                words[4] = outer.bid
            fields = self._fields()
            words[5] = len(fields) // 2
            words += [*fields, *self._texts()]
        adds.is_tracked = self._call("open", *words) == steps.TRACKED
        self._is_new = False
        return adds

    def _fields(self) -> list[Any]:
        dialect = self._client.detection.dialect(time.time())
        fields: dict[str, Any] = {"description": self.description, "expires_in": self._expires_seconds}
        if self._callback_queue is not None:
            fields["callback_queue"] = self._callback_queue
        if isinstance(dialect.stamp(0.0), int):
            fields["ms_times"] = "1"
        if self._is_tracked:
            fields["track"] = "1"
        return [word for pair in fields.items() for word in pair]

    def _texts(self) -> list[Any]:
        words: list[Any] = []
        numbers = dict.fromkeys(EVENTS, 0)
        for callback in self._callbacks:
            number = numbers[callback.event] + 1
            text = callbacks.text_of(callback, number, self.bid, self._callback_queue, self._client)
            if text is not None:
                numbers[callback.event] = number
                words += (f"{callback.event}:{number}", text)
        return words


class Jobs:
    """The block of `Batch.jobs`."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._adding: Adding | None = None
        self._token: Token[Adding | None] | None = None

    def __enter__(self) -> Batch:
        if self._adding is not None:
            raise BatchError("this block was entered before; call batch.jobs() for each")
        self._adding = self._batch._begin()
        self._token = adding.enter(self._adding)
        return self._batch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        adds = self._left()
        if kind is None:
            self._give_up(adds)

    async def __aenter__(self) -> Batch:
        if self._adding is not None:
            raise BatchError("this block was entered before; call batch.jobs() for each")
        self._adding = await asyncio.to_thread(self._batch._begin)
        self._token = adding.enter(self._adding)
        return self._batch

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        adds = self._left()
        if kind is None:
            await asyncio.to_thread(self._give_up, adds)

    def _left(self) -> Adding:
        assert self._adding is not None
        assert self._token is not None
        adding.leave(self._token)
        return self._adding

    def _give_up(self, adds: Adding) -> None:
        # A member's token goes with its attempt: its own end could not come between two blocks otherwise.
        if adds.number is None:
            self._batch._call("leave", adds.token)


def call(client: Client, step: str, bid: str, *words: Any) -> Any:
    """
    A step of a batch, with errors of its own.

    Raises:
        BatchError: What the batch says.
        RedisError: As `Pool.run` does.
    """
    try:
        return steps.call(client.pool, step, bid, *words)
    except RedisReplyError as refusal:
        raise errors.of_refusal(str(refusal)) or refusal from refusal


def of_current_job(job: Any) -> Batch | None:
    """`current_job().batch`: the batch that the running job is a member of."""
    membership = membership_of(job.payload)
    return None if membership is None else Batch.handle(membership.bid)


def is_current_valid(job: Any) -> bool:
    """`current_job().is_valid`: nobody has invalidated the running job's batch; asked of Redis."""
    batch = of_current_job(job)
    return True if batch is None else batch.is_valid
