"""
Callbacks: created when the batch is opened, as the bytes of a job that lacks nothing but `enqueued_at`.

The process that ends the last member, in whichever language, enqueues them as they are. It does not need to know the
options of the callback's job, and the client middleware has already run.
"""

import hashlib
import re
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args

from sidekiq_py.client.sync_client import Client
from sidekiq_py.extensions.batches.errors import BatchError
from sidekiq_py.jobs.signatures import misfit
from sidekiq_py.registry import registry

Event = Literal["complete", "success", "death"]
EVENTS: tuple[Event, ...] = get_args(Event)

RUBY_RUNNER = "SidekiqPy::Batch::Callback"
"""The Ruby job in the support file that calls `on_<event>(status, options)` of a plain class."""

_STAMP = re.compile(rb',"enqueued_at":[0-9.eE+-]+\}\Z')

O_contra = TypeVar("O_contra", contravariant=True)


class CallbackJob(Protocol[O_contra]):
    """A declared job that can be a callback: it takes the batch's id, the event, and the options."""

    def perform_async(self, bid: str, event: str, options: O_contra, /) -> str | None:
        """The method that every declared job has."""


class CallbackClass(Protocol[O_contra]):
    """A job class as a callback. Pyright does not accept its `perform_async` for the protocol above."""

    def perform(self, bid: str, event: str, options: O_contra, /) -> Any:
        """May also be an `async def`."""


class CallbackTask(Protocol):
    """A Celery task as a callback; type checkers do not see what it takes."""

    def __sidekiq_queue__(self, args: Any) -> str:
        """Every task of `sidekiq_celery` has it."""


class Callback(NamedTuple):
    """
    A callback to enqueue.

    Args:
        target: A declared job, or the class name for the payload; `"Billing::ImportDone#on_success"` is a method of a
            plain Ruby class.
        options: JSON, passed to the job.
    """

    event: Event
    target: Any
    options: Any


def jid_of(bid: str, event: str, number: int) -> str:
    """The id of a callback's job, the same whichever process enqueues it."""
    return hashlib.sha1(f"{bid}:{event}:{number}".encode(), usedforsecurity=False).hexdigest()[:24]


def check_parameters(target: Any) -> None:
    """
    Raises:
        BatchError: The function of a declared job does not take a callback's arguments, so that each run would fail.
    """
    found = misfit(target, ("bid", "event", "options"))
    if found is not None:
        takes, error = found
        raise BatchError(
            f"the callback {target!r} takes {takes}, but is called with the batch's id, the event and the options: "
            f"{error}"
        ) from error


def text_of(callback: Callback, number: int, bid: str, queue: str | None, client: Client) -> bytes | None:
    """
    The text that is stored for a callback: its queue, a line feed, and its bytes up to `enqueued_at`. None if a client
    middleware stopped it.

    Raises:
        SidekiqError: No job can be made from it.
    """
    event, target, options = callback
    item: dict[str, Any]
    if isinstance(target, str) and "#" in target:
        item = {"class": RUBY_RUNNER, "args": [bid, event, options, target]}
    else:
        # A `ruby_job` is not registered by name: its options are the target's own.
        definition = registry.find(target) if isinstance(target, str) else None
        item = {"class": target if definition is None else definition.job, "args": [bid, event, options]}
    if isinstance(item["class"], str):
        # So that a test that drains its jobs leaves this one in place, like a `ruby_job`.
        registry.add_elsewhere(item["class"])
    if queue is not None:
        item["queue"] = queue
    item["jid"] = jid_of(bid, event, number)
    ready = client.prepare(item)
    if ready is None:
        return None
    if ready.score is not None or _STAMP.search(ready.payload) is None:
        raise BatchError(
            f"the callback {target!r} of batch {bid} cannot be scheduled; a client middleware has set `at`"
        )
    if "\n" in ready.queue:
        raise BatchError(f"the callback {target!r} of batch {bid} goes to {ready.queue!r}, which is not a queue name")
    return ready.queue.encode() + b"\n" + _STAMP.sub(b"", ready.payload)
