"""
A program's handlers for lifecycle events, errors and deaths of jobs.

The events, in the order in which a process fires them: `startup`, `heartbeat` (the first beat, and the next one after
Redis has forgotten the process), `beat` (every beat), `quiet`, `shutdown`, `exit`. Handlers of the last three run in
reverse order of registration. All but `beat` and `heartbeat` fire once. Source: Sidekiq 8.1.7, config.rb and
component.rb.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, TypeVar, get_args

from sidekiq_py.errors import ConfigError, ExtensionError, PayloadError, RedisError, rights_hint
from sidekiq_py.logs import error_fields, log
from sidekiq_py.redaction import current

Event = Literal["startup", "heartbeat", "beat", "quiet", "shutdown", "exit"]
EVENTS: tuple[Event, ...] = get_args(Event)
_REVERSED = ("quiet", "shutdown", "exit")

EventHandler = Callable[[], Any]
ErrorHandler = Callable[[BaseException, dict[str, Any]], Any]
DeathHandler = Callable[[dict[str, Any], BaseException], Any]
F = TypeVar("F", bound=Callable[..., Any])
OnEvent = TypeVar("OnEvent", bound=EventHandler)
# Their types are not checked: a program may well say that it only expects an Exception.
OfTwo = TypeVar("OfTwo", bound=Callable[[Any, Any], Any])


def returns_coroutine(function: Callable[..., Any]) -> bool:
    """True for an `async def`, an object whose `__call__` is one, and a job that is one."""
    # Imported here, because it is heavier than everything else that a program imports to enqueue jobs.
    from inspect import iscoroutinefunction

    # A plain function around a job has its attributes, too, but may run it to its end.
    is_handle = hasattr(type(function), "perform_async")
    return (
        iscoroutinefunction(function)
        or iscoroutinefunction(type(function).__call__)
        or (is_handle and function.__sidekiq_job__.is_async)  # type: ignore[attr-defined]
    )


def _checked(handler: F, name: str, arguments: str) -> F:
    if not callable(handler):
        raise ConfigError(f"{handler!r} is not a handler for {name}; give a function {arguments}")
    if returns_coroutine(handler):
        raise ConfigError(
            f"{handler!r} is an `async def`, which {name} would not await; give a plain function {arguments}"
        )
    return handler


class Hooks:
    """The handlers of one program."""

    def __init__(self) -> None:
        self._events: dict[str, list[EventHandler]] = {name: [] for name in EVENTS}
        self._errors: list[ErrorHandler] = []
        self._deaths: list[tuple[DeathHandler, type[BaseException]]] = []

    def on(self, event: Event) -> Callable[[OnEvent], OnEvent]:
        """A decorator that registers a function to be called, without arguments, at *event*."""
        if event not in self._events:
            raise ConfigError(f"{event!r} is not a lifecycle event; there are {', '.join(EVENTS)}")

        def register(handler: OnEvent) -> OnEvent:
            self._events[event].append(_checked(handler, f"on({event!r})", "without arguments"))
            return handler

        return register

    def on_error(self, handler: OfTwo) -> OfTwo:
        """
        Call `handler(exception, context)` for every error. The dict *context* has `context`, a sentence, and `job` or
        `jobstr` if known.
        """
        self._errors.append(_checked(handler, "on_error", "of (exception, context)"))
        return handler

    def on_death(self, handler: OfTwo, of: type[BaseException] = BaseException) -> OfTwo:
        """
        Call `handler(payload, exception)` when a job will not be retried. It is called at least once: if the process
        is killed before it can call the handler, another process calls it with `PoisonPillError` or `LateDeathError`.

        Args:
            of: Only call the handler for jobs that failed with this exception.
        """
        self._deaths.append((_checked(handler, "on_death", "of (payload, exception)"), of))
        return handler

    @property
    def has_death_handlers(self) -> bool:
        """True if there is a death handler, even one for certain errors only."""
        return bool(self._deaths)

    def has_death_handler_for(self, error: BaseException) -> bool:
        """True if a death handler is called for jobs that failed with *error*."""
        return any(isinstance(error, of) for _, of in self._deaths)

    def clear(self) -> None:
        """Remove all handlers."""
        self.__init__()  # type: ignore[misc]

    def fire(self, event: str, *, reraise: bool = False) -> None:
        """
        Call the handlers of *event*. If one raises, even SystemExit, the error is reported and the next handler is
        called, unless *reraise* is set.
        """
        handlers = list(self._events[event])
        if event in _REVERSED:
            handlers.reverse()
        for handler in handlers:
            try:
                handler()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                    raise
                self.report(error, {"context": f"Exception during Sidekiq lifecycle event: {event}", "event": event})
                if reraise:
                    raise

    def report(self, error: BaseException, context: dict[str, Any], *, then: str = "") -> None:
        """
        Log *error*, with its traceback if a job raised it, and pass it to every error handler.

        As in Ruby, it is logged whatever handlers a program adds. Source: Sidekiq 8.1.7, config.rb, `ERROR_HANDLER`.

        Args:
            then: What follows from the error, for the log alone: `, next try in 16 s`.
        """
        is_a_jobs = "job" in context or "jobstr" in context
        redacted = current().error(error, context.get("job"))
        traceback = _traceback_in_the_program(error)
        # Without a traceback, the lines would only repeat the message.
        is_shown = is_a_jobs and (traceback or error.__cause__) and not _is_of_an_outage(error)
        shown = (type(redacted), redacted, traceback) if is_shown else None
        fields = error_fields(error, context.get("job"))
        what = context.get("context", "error")
        log.warning(
            "%s: %s: %s%s",
            f"{what}{then}",
            type(error).__name__,
            fields["error_message"],
            "" if "docs/redis.md" in what else rights_hint(error),
            exc_info=shown,
            extra=fields,
        )
        self.call_error_handlers(error, context)

    def call_error_handlers(self, error: BaseException, context: dict[str, Any]) -> None:
        """Pass *error*, which is already logged, to every error handler."""
        for handler in self._errors:
            try:
                handler(error, context)
            except BaseException:  # noqa: BLE001 — a handler that exits must not end a worker thread
                log.exception("!!! ERROR HANDLER THREW AN ERROR !!!")

    def announce_death(self, payload: dict[str, Any], error: BaseException) -> None:
        """Call every death handler for *error*. If one raises, that is reported and the next one is called."""
        for handler, of in self._deaths:
            if not isinstance(error, of):
                continue
            try:
                handler(payload, error)
            except BaseException as failure:  # noqa: BLE001 — as above
                self.report(failure, {"context": "Error calling death handler", "job": payload})


def _is_of_an_outage(error: BaseException) -> bool:
    """True if an extension failed because Redis is away; no traceback says more than that."""
    cause = error.__cause__
    return isinstance(error, ExtensionError) and isinstance(cause, RedisError) and not cause.is_lasting


def _traceback_in_the_program(error: BaseException) -> TracebackType | None:
    """
    The traceback without the frames of this library that led to the program's code. None if they led nowhere: where
    the library reads a payload says nothing about what is wrong with it, and anyone may push many such payloads.
    """
    step = error.__traceback__
    while step is not None and step.tb_frame.f_globals.get("__name__", "").startswith("sidekiq_py."):
        step = step.tb_next
    return step or (None if isinstance(error, PayloadError) else error.__traceback__)
