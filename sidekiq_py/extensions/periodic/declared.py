"""
The periodic jobs that this program declares, in code or in a file.

Nothing is written to Redis here: a worker writes what its program declares when it starts.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import islice, pairwise
from math import inf, isfinite
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, Unpack, get_args, overload

from sidekiq_py import program
from sidekiq_py.errors import ArgumentError, JobDeclarationError
from sidekiq_py.extensions.periodic.cron_text import CronText, CronTextError, check_zone, parse
from sidekiq_py.extensions.periodic.keys import DEFAULT_NAMESPACE
from sidekiq_py.extensions.periodic.layout import CronEntry, OwnState, json_text, message_of
from sidekiq_py.extensions.periodic.ticks import upcoming
from sidekiq_py.jobs.declaration import checked_options
from sidekiq_py.jobs.signatures import misfit
from sidekiq_py.options import checked_value, closest
from sidekiq_py.registry import definition_of, registry
from sidekiq_py.wire.json_dialect import check_args, loads
from sidekiq_py.wire.json_writer import to_s
from sidekiq_py.wire.payload import DEFAULT_OPTIONS

Overlap = Literal["allow", "skip"]
J = TypeVar("J")

# Few enough for a job that is due once in years, which takes 15 ms.
_COMPARED_TICKS = 30

OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)


class Declaration(NamedTuple):
    """
    One periodic job.

    Args:
        entry: The part that is stored for the gem.
        own: The part that only Python keeps.
        route: Finds the queue of a Celery task that is declared without one.
    """

    entry: CronEntry
    own: OwnState
    route: Callable[[], str] | None = None

    @property
    def cron(self) -> CronText:
        """Its parsed cron text."""
        return parse(self.entry.cron)

    def routed(self) -> "Declaration":
        """It with the queue that its route finds. Not before a worker needs it: an app keeps the routes it then has."""
        if self.route is None:
            return self
        message = {**loads(self.entry.message.encode()), "queue": self.route()}
        return self._replace(entry=replace(self.entry, message=json_text(message)), route=None)


class Declarations:
    """The declarations of one program."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Declaration] = {}

    def __iter__(self) -> Iterator[Declaration]:
        return iter([declaration.routed() for declaration in self._all.values()])

    def __len__(self) -> int:
        return len(self._all)

    def add(self, new: Declaration) -> None:
        """
        Add a declaration. Adding an equal one again changes nothing, as when a module is imported under two names.

        Raises:
            JobDeclarationError: Another declaration has this name.
        """
        old = self._all.setdefault((new.entry.namespace, new.entry.name), new)
        if old.entry != new.entry:
            raise JobDeclarationError(
                f"two periodic jobs are called {new.entry.name!r}: {old.entry.klass} at {old.entry.cron}, of "
                f"{old.own.by}, and {new.entry.klass} at {new.entry.cron}, of {new.own.by}; give one of them "
                "another name="
            )

    def clear(self) -> None:
        """Remove all declarations."""
        self._all.clear()


declarations = Declarations()
"""The declarations of this program."""


class PeriodicOptions(TypedDict, total=False):
    """The options of `periodic`, which says what they mean."""

    args: Sequence[Any]
    name: str | None
    tz: str | None
    overlap: Overlap
    catch_up: timedelta | float | None
    jitter: float
    description: str
    queue: str | None
    namespace: str
    once_on_dst: bool


@overload
def periodic(cron: str, job: None = None, **given: Unpack[PeriodicOptions]) -> Callable[[J], J]: ...


@overload
def periodic(cron: str, job: J, **given: Unpack[PeriodicOptions]) -> J: ...


def periodic(cron: str, job: Any = None, **given: Any) -> Any:
    """
    Push a job periodically.

        sidekiq.periodic("*/5 * * * *", report, args=[1], tz="Europe/Berlin")

        @sidekiq.periodic("every weekday at noon")
        @sidekiq.job
        def lunch(): ...

    Args:
        cron: As in crontab(5), with seconds in front if there are six fields; `@daily` and the like; or an English
            phrase that `docs/periodic.md` lists.
        job: A `@job`, a job class, a `ruby_job`, or the name of a class. Without it, a decorator is returned.
        args: The arguments of each push.
        name: The name in all listings; by default the job's own name.
        tz: The time zone, such as `Europe/Berlin`; by default UTC, or the zone at the end of *cron*.
        overlap: `skip` skips a tick while the last run is still going; a job that waits for a retry is not running.
        catch_up: Ticks that were missed for no longer than this (timedelta or seconds) are made up for once a worker is
            back, at most a hundred. By default only the last one, for up to a minute, as the gem does.
        jitter: Each tick is pushed up to this many seconds late, at random, so that jobs do not all start at once.
        description: A text for people.
        queue: A queue to use instead of the job's own.
        namespace: The namespace of sidekiq-cron (since 2.0).
        once_on_dst: Count a time that the clocks show twice once; by default it counts twice, as in the gem.

    Raises:
        CronTextError: *cron* cannot be read; the message says where and why.
        JobDeclarationError: Another argument is invalid, or the name is taken.
        TypeError: An option does not exist.
    """
    options = PeriodicOptions.__annotations__
    unknown = sorted(given.keys() - options)
    if unknown:
        near = closest(unknown[0], options)
        raise TypeError(
            f"periodic() has no option {unknown[0]!r}; "
            + (f"did you mean {near!r}?" if near else f"it has {', '.join(sorted(options))}")
        )
    if job is None:

        def decorate(decorated: J) -> J:
            if inspect.isfunction(decorated) and definition_of(decorated) is None:
                name = decorated.__qualname__
                raise JobDeclarationError(f"{name} is not a job yet; put @sidekiq.job below @sidekiq.periodic")
            declare(cron, decorated, by=_place_of(decorated), **given)
            return decorated

        return decorate
    declare(cron, job, by=_place_of(), **given)
    return job


def declare(cron: str, job: Any, *, by: str, **given: Any) -> Declaration:
    """Like `periodic`, with the name of the place that declares it."""
    declaration = make(cron, job, by=by, **given)
    declarations.add(declaration)
    return declaration


def make(
    cron: str,
    job: Any,
    *,
    by: str = "",
    args: Sequence[Any] = (),
    name: str | None = None,
    tz: str | None = None,
    overlap: str = "allow",
    catch_up: timedelta | float | None = None,
    jitter: float = 0,
    description: str = "",
    queue: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    once_on_dst: bool = False,
    date_as_argument: bool = False,
    status: str = "enabled",
    retry: int | bool | None = None,
) -> Declaration:
    """
    Build and validate a periodic job.

    Args:
        by: The module or file that declares it; empty for a job that is added by hand.

    Raises:
        ConfigError: As for `periodic`.
    """
    klass, options = _class_and_options(job)
    called = name or klass
    owner = f"the periodic job {called!r}"
    text = _zoned(cron, tz)
    _check_values(
        owner,
        overlap=overlap,
        args=args,
        namespace=namespace,
        texts={"name": called, "description": description},
        status=status,
        once_on_dst=once_on_dst,
    )
    if queue is not None:
        options = {**options, "queue": checked_value("queue", queue, owner)}
    if retry is not None:
        options = {**options, "retry": retry}
    message = _message(klass, args, options, owner)
    _fit(job, [*args, 0.0] if date_as_argument else list(args), owner)
    entry = CronEntry(
        name=called,
        klass=klass,
        cron=text,
        message=message,
        args=json_text(list(args)),
        namespace=namespace,
        description=str(description),
        date_as_argument=date_as_argument,
        status=status,
        retry=to_s(options.get("retry")),
    )
    own = OwnState(
        by=by,
        overlap=overlap,
        catch_up_seconds=None if catch_up is None else _seconds("catch_up", catch_up, owner),
        jitter_seconds=_seconds("jitter", jitter, owner),
        once_on_dst=once_on_dst,
        is_ours=True,
    )
    # A Celery task has no options of ours; its app's routes say where it runs.
    route = getattr(job, "__sidekiq_queue__", None) if queue is None else None
    declaration = Declaration(entry, own, route and partial(route, args))
    _check_jitter(declaration, owner)
    return declaration


def _check_values(
    owner: str, *, overlap: Any, args: Any, namespace: Any, texts: dict[str, Any], status: Any, once_on_dst: Any
) -> None:
    if overlap not in OVERLAPS:
        raise JobDeclarationError(f"{owner} has overlap={overlap!r}; give one of {', '.join(OVERLAPS)}")
    if not isinstance(args, (list, tuple)):
        raise JobDeclarationError(f"{owner} has args={args!r}; give a list")
    if not isinstance(namespace, str) or not namespace or ":" in namespace or namespace == "*":
        raise JobDeclarationError(f"{owner} has namespace={namespace!r}; give a text without a colon")
    for name, value in texts.items():
        # A number without quotes in a schedule file is a text for the gem, too.
        if not isinstance(value, (str, int, float)):
            raise JobDeclarationError(f"{owner} has {name}={value!r}; give a text")
    if status not in ("enabled", "disabled"):
        raise JobDeclarationError(f"{owner} has status={status!r}; give enabled or disabled")
    if not isinstance(once_on_dst, bool):
        raise JobDeclarationError(f"{owner} has once_on_dst={once_on_dst!r}; give True or False, without quotes")


def _message(klass: str, args: Sequence[Any], options: dict[str, Any], owner: str) -> str:
    try:
        check_args(list(args))
        return message_of(klass, args, options)
    except ArgumentError as error:
        raise JobDeclarationError(f"{owner} has arguments that cannot be written as JSON: {error}") from error


def _check_jitter(declaration: Declaration, owner: str) -> None:
    """Reject a jitter by which a tick may overtake the one before, which would then never be pushed."""
    jitter = declaration.own.jitter_seconds
    if not jitter:
        return
    ticks = islice(upcoming(declaration.cron, 0.0), _COMPARED_TICKS)
    shortest = min((later - earlier for earlier, later in pairwise(ticks)), default=inf)
    if jitter > shortest:
        raise JobDeclarationError(
            f"{owner} has jitter={jitter:g}, but its ticks can be only {shortest:g} s apart; give that or less, "
            "or a tick may overtake the one before"
        )


def _zoned(cron: str, tz: str | None) -> str:
    """The text with its zone at the end, after a check that it is the zone that was meant."""
    if not isinstance(cron, str):
        raise JobDeclarationError(f"a cron text must be a string, not {cron!r}")
    stripped = cron.strip()
    if tz is not None:
        if not isinstance(tz, str) or not tz:
            raise JobDeclarationError(f"tz={tz!r}: give the name of a time zone, such as 'Europe/Berlin'")
        try:
            check_zone(tz)
        except CronTextError as error:
            raise JobDeclarationError(f"tz={tz!r}: {error.reason}") from None
        own = parse(stripped).zone
        if own not in (None, tz):
            raise JobDeclarationError(f"{cron!r} names the zone {own}, and tz={tz!r} another one; give one of them")
    return str(parse(stripped, zone=tz))


def _class_and_options(job: Any) -> tuple[str, dict[str, Any]]:
    """
    The class in the payload, and the options that Ruby's gem would put into the message for a class that it knows.
    """
    is_name = isinstance(job, str) and job
    definition = registry.find(job) if is_name else definition_of(job)
    defaults = checked_options(program.default_job_options, "default_job_options")
    active_job = job if is_name else getattr(job, "job_class", None)
    if definition is None and active_job is not None and registry.is_active_job(active_job):
        raise JobDeclarationError(
            f"{active_job} is an Active Job, which cannot be periodic; declare a @job that calls its perform_later"
        )
    if definition is None and is_name:
        return job, {"queue": "default", **defaults}
    if definition is None:
        raise JobDeclarationError(f"{job!r} is not a job; give a @job, a job class, a ruby_job, or a class's name")
    return definition.name, {**DEFAULT_OPTIONS, **defaults, **definition.options}


def _fit(job: Any, args: list[Any], owner: str) -> None:
    """Reject arguments that would fail at each tick, if the function is known."""
    found = misfit(job, args)
    if found is not None:
        takes, error = found
        problem = f"{owner} does not fit its job, which takes {takes}: {error}; give args=[…]"
        raise JobDeclarationError(problem) from error


def _seconds(name: str, value: Any, owner: str) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not isfinite(seconds) or seconds < 0:
        raise JobDeclarationError(f"{owner} has {name}={value!r}; give seconds, or a timedelta")
    return float(seconds)


def _place_of(decorated: Any = None) -> str:
    """The module of what is decorated, or else the one that calls `periodic`."""
    return str(getattr(decorated, "__module__", None) or sys._getframe(2).f_globals.get("__name__", "?"))


def with_program(declaration: Declaration, program: str) -> Declaration:
    """*declaration* as it is stored: with the program's name before the place of the declaration."""
    return declaration._replace(own=replace(declaration.own, by=f"{program}:{declaration.own.by}"))
