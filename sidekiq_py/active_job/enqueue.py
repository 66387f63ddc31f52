"""
Enqueue jobs for Rails classes, as Rails' own Sidekiq adapter does.

    perform_later("Billing::InvoiceJob", 42, queue="billing", wait=300)
    perform_all_later([new_job("Billing::InvoiceJob", n) for n in (1, 2)])

Pass keyword arguments for Ruby's `perform` as a trailing `Keywords(format="csv")`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from time import time, time_ns
from typing import Any, NamedTuple
from uuid import uuid4

from sidekiq_py import program
from sidekiq_py.active_job.arguments import serialize
from sidekiq_py.active_job.current import current_active_job
from sidekiq_py.active_job.job_object import JobObject, Placement, due_at_ns, push_item
from sidekiq_py.active_job.rails import Rails
from sidekiq_py.client import async_client, sync_client
from sidekiq_py.errors import PayloadError
from sidekiq_py.wire.dialect import Dialect


@dataclass(frozen=True, slots=True)
class Options:
    """
    How to enqueue a job; None keeps the value of its declaration or Rails' default.

    Args:
        queue: By default "default".
        wait: Seconds or a timedelta from now.
        wait_until: An aware datetime or epoch seconds, instead of *wait*.
        priority: Stored for the Rails side.
        locale: By default the one that `persist_locale` passes on, that of the Active Job running here, or "en".
        timezone: Rails' name of a zone; by default that of the Active Job running here.
        job_id: A UUID; by default a new one.
        sidekiq_options: The options that the Ruby class declares with `sidekiq_options`, such as {"retry": 5}.
        rails_version: The Rails release at the other end, such as "7.1"; by default derived from the Sidekiq release
            there.
    """

    queue: str | None = None
    wait: Any = None
    wait_until: Any = None
    priority: int | None = None
    locale: str | None = None
    timezone: str | None = None
    job_id: str | None = None
    sidekiq_options: Mapping[str, Any] | None = None
    rails_version: str | None = None

    def merged(self, changes: Mapping[str, Any]) -> "Options":
        """
        These options, overridden by *changes*.

        Raises:
            PayloadError: An option does not exist.
        """
        try:
            return replace(self, **changes)
        except TypeError:
            known = [option.name for option in fields(self)]
            unknown = ", ".join(name for name in changes if name not in known)
            raise PayloadError(
                f"perform_later has no option {unknown}; it has {', '.join(known)}. "
                f"For Ruby's keyword arguments pass Keywords({unknown.split(',')[0]}=…) as the last argument"
            ) from None


@dataclass(frozen=True, slots=True)
class PendingJob:
    """
    A job that is not enqueued yet. Create it with `new_job`.

    Args:
        job_class: The Ruby class's name.
        arguments: Python values.
        options: How to enqueue it.
        job_id: Its id in Active Job.
    """

    job_class: str
    arguments: tuple[Any, ...]
    options: Options
    job_id: str = field(default_factory=lambda: str(uuid4()))

    def item(self, dialect: Dialect, now_ns: int, *, is_in_bulk: bool = False) -> dict[str, Any]:
        """The item for `Client.push`, or for this job in a bulk push."""
        options = self.options
        rails = rails_beside(dialect, options.rails_version)
        placement = Placement(
            options.queue or "default", options.priority, due_at_ns(options.wait, options.wait_until, now_ns)
        )
        return push_item(
            self._job_object(rails),
            placement,
            jid=None,
            wrapper=dialect.active_job_wrapper,
            sidekiq_options=options.sidekiq_options or {},
            rails=rails,
            now_ns=now_ns,
            is_in_bulk=is_in_bulk,
        )

    def _job_object(self, rails: Rails) -> JobObject:
        around, options = current_active_job(), self.options
        return {
            "job_class": self.job_class,
            "job_id": self.job_id,
            "arguments": serialize(self.arguments, rails),
            "executions": 0,
            "exception_executions": {},
            "locale": options.locale or program.current_locale() or (around.locale if around else None),
            "timezone": options.timezone or (around.timezone if around else None),
        }


declared_options: dict[str, Options] = {}
"""The options that `@active_job` declares for each class. Options of a call override them."""


def new_job(job_class: str, /, *arguments: Any, **options: Any) -> PendingJob:
    """
    Create a job for `perform_all_later`, or one whose `job_id` you need before it is enqueued.

    Args:
        job_class: The Ruby class's name.
        arguments: For its `perform`.
        options: The fields of `Options`.

    Raises:
        PayloadError: An option does not exist, or *job_class* is not a name.
    """
    if not isinstance(job_class, str) or not job_class:
        raise PayloadError(f"the job class is {job_class!r}; give the Ruby class's name, such as 'Billing::InvoiceJob'")
    merged = declared_options.get(job_class, Options()).merged(options)
    if merged.job_id is not None:
        return PendingJob(job_class, arguments, merged, merged.job_id)
    return PendingJob(job_class, arguments, merged)


def perform_later(job_class: str, /, *arguments: Any, **options: Any) -> str | None:
    """
    Enqueue a job that Rails or an `@active_job` here runs.

    Args:
        job_class: The Ruby class's name.
        arguments: For its `perform`: plain values and everything that Active Job serialises; `Keywords` for keyword
            arguments.
        options: `queue`, `wait`, `wait_until`, `priority` and the other fields of `Options`.

    Returns:
        The jid, or None if a client middleware stopped it.

    Raises:
        ArgumentTypeError: Active Job cannot serialise a type.
        ArgumentValueError: Active Job cannot serialise a value, or the Rails at the other end cannot read it.
        PayloadError: An option is invalid.
        RedisError: As for `Client.push`.
    """
    return enqueue(new_job(job_class, *arguments, **options))


async def aperform_later(job_class: str, /, *arguments: Any, **options: Any) -> str | None:
    """`perform_later`, awaited."""
    return await aenqueue(new_job(job_class, *arguments, **options))


def perform_all_later(jobs: Iterable[PendingJob]) -> list[str | None]:
    """
    Enqueue many jobs in a few round trips, grouped by class and queue as Rails' `perform_all_later` does.

    Returns:
        The jids in the order of *jobs*; None for a job that a client middleware stopped.
    """
    here = sync_client.current()
    return _in_order(
        [(places, here.push_bulk(item)) for places, item in _grouped(jobs, here.detection.dialect(time()))]
    )


async def aperform_all_later(jobs: Iterable[PendingJob]) -> list[str | None]:
    """`perform_all_later`, awaited."""
    here = async_client.current()
    groups = _grouped(jobs, await here.dialect())
    return _in_order([(places, await here.push_bulk(item)) for places, item in groups])


def enqueue(job: PendingJob) -> str | None:
    """Push one pending job. Returns as `perform_later` does."""
    here = sync_client.current()
    return here.push(job.item(here.detection.dialect(time()), time_ns()))


async def aenqueue(job: PendingJob) -> str | None:
    """`enqueue`, awaited."""
    here = async_client.current()
    return await here.push(job.item(await here.dialect(), time_ns()))


def rails_beside(dialect: Dialect, rails_version: str | None) -> Rails:
    """The Rails at the other end: the given release, or the probable one."""
    return Rails.pinned(rails_version) if rails_version else Rails.beside(dialect)


def _grouped(jobs: Iterable[PendingJob], dialect: Dialect) -> list[tuple[list[int], dict[str, Any]]]:
    """Items for `push_bulk` by class and queue, each with the positions of its jobs among *jobs*."""
    if not isinstance(jobs, Iterable):
        raise PayloadError(f"jobs is {jobs!r}; give a list of what new_job('Billing::InvoiceJob', 42) returns")
    classes: dict[str, dict[tuple[str, str], dict[bool, _Group]]] = {}
    now_ns = time_ns()
    for place, job in enumerate(jobs):
        if not isinstance(job, PendingJob):
            raise PayloadError(f"{job!r} is not a job; give what new_job('Billing::InvoiceJob', 42) returns")
        item = job.item(dialect, now_ns, is_in_bulk=True)
        # All jobs of one bulk push have the same Sidekiq options.
        shared = item["queue"], repr(job.options.sidekiq_options)
        halves = classes.setdefault(item["wrapped"], {}).setdefault(shared, {})
        group = halves.setdefault("at" in item, _Group([], []))
        group.places.append(place)
        group.items.append(item)
    return [
        (group.places, _bulk_item(group.items))
        for queues in classes.values()
        for halves in queues.values()
        for _, group in sorted(halves.items())
    ]


class _Group(NamedTuple):
    places: list[int]
    items: list[dict[str, Any]]


def _bulk_item(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {**items[0], **{key: [item[key] for item in items] for key in ("args", "at") if key in items[0]}}


def _in_order(pushed: list[tuple[list[int], list[str | None]]]) -> list[str | None]:
    placed = {place: jid for places, jids in pushed for place, jid in zip(places, jids, strict=True)}
    return [placed[place] for place in sorted(placed)]
