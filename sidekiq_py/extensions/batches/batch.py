"""`sidekiq.Batch`."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextvars import Token
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.client.sync_client import Client
from sidekiq_py.extensions.batches import adding, callbacks, retrying, state, steps
from sidekiq_py.extensions.batches.adding import Adding
from sidekiq_py.extensions.batches.callbacks import EVENTS, Callback, CallbackClass, CallbackJob, CallbackTask, Event
from sidekiq_py.extensions.batches.changes import EVERY_SECONDS, IDLE_SECONDS, Change, Listener
from sidekiq_py.extensions.batches.errors import BatchError, BatchGoneError
from sidekiq_py.extensions.batches.member import is_bid, membership_of
from sidekiq_py.extensions.batches.pretending import pretending
from sidekiq_py.extensions.batches.rows import Rows
from sidekiq_py.extensions.batches.ruby_processes import warn_once
from sidekiq_py.extensions.batches.state import BatchStatus
from sidekiq_py.middleware.running import running_here
from sidekiq_py.options import complaint_about_queue
from sidekiq_py.redis_access.connection.replies import flat
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.registry import definition_of, registry
from sidekiq_py.wire.json_dialect import check_args

__all__ = ["Batch"]

_O = TypeVar("_O")
_DAY_SECONDS = 24 * 3600
_KEPT_SECONDS = 30 * _DAY_SECONDS
# Some thousand years; Redis cannot add much more to the time.
_LONGEST_SECONDS = 2**35
_BID_BYTES = 10
# The most members that one step removes; Lua can pass about 8,000 values to a function.
_SLICE = 1000
_FIRST_POLL_SECONDS = 0.02
_SLOWEST_POLL_SECONDS = 1.0


class Batch:
    """
    A group of jobs, with callbacks that are enqueued when they finish.

        batch = sidekiq.Batch(description="Import 42")
        batch.on("success", import_done, {"import_id": 42})
        with batch.jobs():
            import_row.perform_async(1)

    It exists in Redis from the first block of jobs on. A batch whose block is entered within another's block becomes
    its child.

    Args:
        description: A text for people.
        callback_queue: The queue for callbacks; by default that of each callback's job.
        expires_in: Seconds or a timedelta after its last change, after which Redis deletes it.
        track: Keep a row for each job: `rows` reads them, and `changes` reports changes to them.
        client: A client for its Redis; by default the one that pushes use at this point.
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
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1 <= seconds <= _LONGEST_SECONDS:
            raise BatchError(f"expires_in is {expires_in!r}; give 1 to {_LONGEST_SECONDS} seconds, or a timedelta")
        if callback_queue is not None and not isinstance(callback_queue, str):
            raise BatchError(f"callback_queue is {callback_queue!r}; give the queue's name")
        complaint = complaint_about_queue(callback_queue, f"callback_queue is {callback_queue!r}")
        if complaint is not None:
            raise BatchError(complaint)
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
        Find an existing batch.

        Raises:
            BatchGoneError: There is no such batch.
            RedisError: Redis cannot be reached.
        """
        batch = cls.handle(bid, client=client)
        batch.description = batch.status().description
        return batch

    @classmethod
    def handle(cls, bid: str, *, client: Client | None = None) -> Self:
        """Like `find`, but without a check that the batch exists."""
        if not is_bid(bid):
            raise BatchError(f"{bid!r} is not the id of a batch")
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
    def on(self, event: Event, callback: str | CallbackTask, options: Any = None) -> Self: ...
    def on(self, event: Event, callback: Any, options: Any = None) -> Self:
        """
        Enqueue a job when an event happens: `complete`, when every job has finished an attempt; `success`, when all
        have succeeded; `death`, when the first of them dies.

        Args:
            callback: A declared job or a Celery task, which is called with the batch's id, the event and *options*; a
                `ruby_job`; the name of a class; or `"Billing::ImportDone#on_success"` for a plain Ruby class whose
                method takes status and options.
            options: JSON.

        Raises:
            BatchError: The batch is already open, there is no such event, or the callback takes other arguments.
            ArgumentTypeError: The options are not JSON.
        """
        _refuse_unknown_event(event)
        if not self._is_new:
            raise BatchError(f"batch {self.bid} is already open; call `on` before its first block of jobs")
        active_job = callback if isinstance(callback, str) else getattr(callback, "job_class", None)
        if registry.is_active_job(active_job):
            raise BatchError(
                f"{active_job} is an Active Job, which cannot be a callback; give a @job that calls its perform_later"
            )
        if callback == "" or (not isinstance(callback, str) and definition_of(callback) is None):
            raise BatchError(f"{callback!r} is not a declared job; give a @job, a ruby_job, or a class by its name")
        check_args([options])
        callbacks.check_parameters(callback)
        self._callbacks.append(Callback(event, callback, options))
        return self

    def jobs(self) -> "Jobs":
        """
        A block, for `with` or `async with`: jobs that this thread or task pushes in it belong to the batch. If an
        exception leaves the block, the batch stays open, so that no callback reports it as done; `close()` closes it by
        hand.

        Entering raises:
            BatchDoneError: All its jobs have succeeded.
            BatchGoneError: It has expired.
            RedisError: Redis cannot be reached.
        """
        return Jobs(self)

    def _is_no_block(self, *_: object) -> NoReturn:
        raise BatchError(
            "`with` needs the batch's block of jobs, not the batch: `with batch.jobs():`, in async code "
            "`async with batch.jobs():`"
        )

    # Type checkers do not see these, so they reject `with batch:` as before.
    if not TYPE_CHECKING:
        __enter__ = __exit__ = __aenter__ = __aexit__ = _is_no_block

    def status(self) -> BatchStatus:
        """
        Read its current state.

        Raises:
            BatchGoneError: It has expired, or was never opened.
            RedisError: Redis cannot be reached.
        """
        return state.read(self._client.pool, self.bid)

    @property
    def rows(self) -> Rows:
        """The rows of its jobs, if it was created with `track=True`; otherwise empty."""
        return Rows(self._client.pool, self.bid)

    def changes(self, *, every: float = EVERY_SECONDS, idle: float = IDLE_SECONDS) -> Iterator[Change]:
        """
        Yield changes to its rows and events as they happen, forever; for a separate thread. Needs `track=True`. The
        first change comes at once: read the rows then, and you miss nothing.

        Args:
            every: The least time between two changes, in seconds; changes in between are merged.
            idle: After this many seconds without a change an empty one is yielded, so that you can decide whether to go
                on.

        Raises:
            BatchGoneError: The batch does not exist, or no longer exists.
            RedisError: Redis does not allow subscribing. Lost connections are restored.
        """
        return Listener(self._client.pool, self.bid, every, idle).changes()

    def achanges(self, *, every: float = EVERY_SECONDS, idle: float = IDLE_SECONDS) -> AsyncIterator[Change]:
        """`changes`, for `async for`. Close it (`contextlib.aclosing`), or cancel its task."""
        return Listener(self._client.pool, self.bid, every, idle).achanges()

    @property
    def is_valid(self) -> bool:
        """True if it was not invalidated; asks Redis."""
        if pretending() is not None:
            return self.status().is_valid
        return self._client.pool.command("HGET", steps.key(self.bid), "invalidated_at") is None

    def invalidate(self) -> int:
        """
        Make its remaining jobs, and those of its children, end without running when their turn comes. Running jobs go
        on, and may check `current_job().is_valid`. `complete` follows, `success` does not.

        Returns:
            The number of batches that were invalidated; 0 if all were already invalid.
        """
        count, waiting, seen = 0, [(self.bid, b"0")], {self.bid}
        while waiting:
            bid, cursor = waiting.pop()
            try:
                done, following, *parents = steps.call(self._client.pool, "invalidate", bid, cursor)
            except BatchGoneError:
                if bid == self.bid:
                    raise
                continue  # A child was deleted meanwhile.
            count += done
            if following != b"0":
                waiting.append((bid, following))
            # Another program may have made a batch its own ancestor.
            fresh = {name.decode() for name in parents} - seen
            seen |= fresh
            waiting += [(name, b"0") for name in fresh]
        return count

    def close(self) -> int:
        """
        Close it by hand, if the program that was adding jobs has failed or died.

        Returns:
            The number of blocks that could still add jobs.
        """
        return int(self._call("close"))

    def remove(self, jids: Iterable[str]) -> int:
        """
        Remove members, so that the batch no longer waits for them. The jobs themselves stay where they are.

        Members that have not failed yet are searched for in all queues and sets.

        Returns:
            The number of members that were found and removed.

        Raises:
            BatchError: *jids* is a single id, or not a list at all.
        """
        if isinstance(jids, str) or not isinstance(jids, Iterable):
            raise BatchError(f"jids is {jids!r}; give a list of ids, such as [jid]")
        numbers = retrying.numbers_of(self._client.pool, self.bid, set(jids))
        return sum(int(self._call("remove", *part)) for part in slices_of(numbers, _SLICE))

    def retry_failed(self) -> int:
        """
        Move the members that are in `retry` or in the dead set back to their queues now.

        Returns:
            The number of jobs moved.
        """
        return retrying.retry_failed(self._client, self.bid)

    def delete(self) -> None:
        """Delete it. Its jobs still run, no callback follows, and its parent no longer waits for it."""
        self._call("delete")

    def wait(self, timeout: float | None = None, *, until: Event = "complete") -> BatchStatus:
        """
        Wait for an event, by polling Redis; for tests and scripts.

        Args:
            timeout: Seconds.

        Raises:
            TimeoutError: The event has not happened in time.
            BatchError: There is no such event.
        """
        _refuse_unknown_event(until)
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
        return steps.call(self._client.pool, step, self.bid, *words)

    def _begin(self) -> Adding:
        """Open it in Redis, or reopen it."""
        # Without the extension's hooks, jobs pushed in the block would not become members.
        program.extensions.load_installed()
        if program.extensions.find("batches") is None:
            raise BatchError(
                "the extension of batches is not loaded: reinstall sidekiq_py, or call "
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
        return flat(fields)

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

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        adds = self._left()
        if kind is None:
            self._give_up(adds)

    async def __aenter__(self) -> Batch:
        if self._adding is not None:
            raise BatchError("this block was entered before; call batch.jobs() for each")
        self._adding = await asyncio.to_thread(self._batch._begin)
        self._token = adding.enter(self._adding)
        return self._batch

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        adds = self._left()
        if kind is None:
            await asyncio.to_thread(self._give_up, adds)

    def _left(self) -> Adding:
        assert self._adding is not None
        assert self._token is not None
        adding.leave(self._token)
        return self._adding

    def _give_up(self, adds: Adding) -> None:
        # A member's token is removed at the end of its attempt; otherwise the member could end between two blocks.
        if adds.number is None:
            self._batch._call("leave", adds.token)


def of_current_job(job: Any) -> Batch | None:
    """`current_job().batch`: the batch that the running job is a member of."""
    membership = membership_of(job.payload)
    return None if membership is None else Batch.handle(membership.bid)


def is_current_valid(job: Any) -> bool:
    """`current_job().is_valid`: True unless the running job's batch was invalidated; asks Redis."""
    batch = of_current_job(job)
    return True if batch is None else batch.is_valid


def _refuse_unknown_event(event: str) -> None:
    if event not in EVENTS:
        raise BatchError(f"{event!r} is not an event of a batch; use one of {', '.join(EVENTS)}")
