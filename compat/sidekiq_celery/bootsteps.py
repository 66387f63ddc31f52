"""
Bootsteps: what a program adds to a worker's start and stop.

    class Probe(bootsteps.StartStopStep):
        requires = {"celery.worker.components:Timer"}

        def start(self, worker): ...

    app.steps["worker"].add(Probe)

A worker here is not built from such steps. Celery's own steps (`worker.components`, `worker.consumer`) exist so that
they can be named in `requires`, and do not affect the order. If a step requires something that does not exist here,
the worker refuses to start and logs why.
"""

from collections.abc import Callable, Iterable
from threading import Event
from types import MappingProxyType
from typing import Any

from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.graph import DependencyGraph
from sidekiq_celery.utils.imports import symbol_by_name
from sidekiq_celery.utils.log import get_logger

__all__ = ("Blueprint", "ConsumerStep", "StartStopStep", "Step")

RUN, CLOSE, TERMINATE = 1, 2, 3

logger = get_logger(__name__)


class StepType(type):
    """Gives each step class a name."""

    name: str
    requires: Any

    def __new__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> Any:
        path = f"{attrs.get('__module__')}.{name}"
        return super().__new__(cls, name, bases, {**attrs, "name": attrs.get("name") or path, "__qualname__": path})

    def __str__(cls) -> str:
        return cls.name

    def __repr__(cls) -> str:
        return f"step:{cls.name}{{{cls.requires!r}}}"


class Step(metaclass=StepType):
    """
    A step that is created together with a worker, and is neither started nor stopped.

    Attributes:
        requires: Steps, or their import paths, that come before it in the same blueprint.
        enabled: Whether `create` is called.
        last: True if it comes after all others.
    """

    name: Any = None
    label: str | None = None
    conditional = False
    requires: Any = ()
    last = False
    enabled = True

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        pass

    def include_if(self, parent: Any) -> Any:
        """Whether the step belongs to *parent*."""
        return self.enabled

    def instantiate(self, name: Any, *args: Any, **kwargs: Any) -> Any:
        """Import *name* and call it with the given arguments."""
        return symbol_by_name(name)(*args, **kwargs)

    def include(self, parent: Any) -> bool:
        """Create the step if it belongs to *parent*. Returns True if it does."""
        return self._included(parent)[0]

    def create(self, parent: Any) -> Any:
        """Create and return what the step adds to *parent*."""

    def info(self, obj: Any) -> Any:
        """The details that `inspect stats` shows for this step."""

    @property
    def alias(self) -> str:
        """The step's short name."""
        return self.label or str(self.name).rpartition(".")[2]

    def _included(self, parent: Any) -> tuple[bool, Any]:
        return (True, self.create(parent)) if self.include_if(parent) else (False, None)

    def __repr__(self) -> str:
        return f"<step: {self.alias}>"


class StartStopStep(Step):
    """A step that is started and stopped. By default this starts and stops the object that `create` returned."""

    obj: Any = None

    def start(self, parent: Any) -> Any:
        """Called when the worker starts."""
        return self.obj.start() if self.obj else None

    def stop(self, parent: Any) -> Any:
        """
        Called when no task runs any more. If the step requires the pool, or another step that does, it is called before
        the running tasks are waited for.
        """
        return self.obj.stop() if self.obj else None

    def close(self, parent: Any) -> Any:
        """Called when the worker begins to stop."""

    def terminate(self, parent: Any) -> Any:
        """Called instead of `stop` if the worker does not wait for anything."""
        return getattr(self.obj, "terminate", self.obj.stop)() if self.obj else None

    def include(self, parent: Any) -> bool:
        """Create the step if it belongs to *parent*, and add it to the steps to start. Returns True if it does."""
        is_included, self.obj = self._included(parent)
        if is_included:
            parent.steps.append(self)
        return is_included


class ConsumerStep(StartStopStep):
    """
    A step that consumes its own messages in a worker. It cannot be used: a worker has no connection for that here.

    Raises:
        ImproperlyConfigured: Always, when a step of this class is created.
    """

    requires: Any = ("celery.worker.consumer:Connection",)
    consumers: Any = None

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        raise ImproperlyConfigured(
            f"the bootstep {self.name} is a ConsumerStep, which consumes messages of its own: a worker has no "
            "connection for that here. Run it in a program of its own, by kombu.mixins.ConsumerMixin"
        )

    def get_consumers(self, channel: Any) -> Any:
        """The message consumers; meant to be overridden."""
        raise NotImplementedError("missing get_consumers")


class Blueprint:
    """
    An ordered set of steps.

    Args:
        steps: Step classes, or their import paths.
        on_start, on_close, on_stopped: Called before the start, before the stop, and after it.
    """

    name: str | None = None
    default_steps: Iterable[Any] = ()
    state_to_name = MappingProxyType({0: "initializing", RUN: "running", CLOSE: "closing", TERMINATE: "terminating"})

    def __init__(
        self,
        steps: Iterable[Any] | None = None,
        name: str | None = None,
        on_start: Callable[[], Any] | None = None,
        on_close: Callable[[], Any] | None = None,
        on_stopped: Callable[[], Any] | None = None,
    ) -> None:
        self.name = name or self.name or type(self).__qualname__
        self.types = {*(steps or ()), *self.default_steps}
        self.on_start, self.on_close, self.on_stopped = on_start, on_close, on_stopped
        self.state: int | None = None
        self.started = 0
        self.steps: dict[str, Any] = {}
        self.order: list[Any] = []
        self.shutdown_complete = Event()

    def apply(self, parent: Any, **kwargs: Any) -> "Blueprint":
        """
        Create the steps, and let each include itself in *parent*.

        Raises:
            ImproperlyConfigured: A step does not exist here.
        """
        for step in _in_order(self.types):
            made = step(parent, **kwargs)
            self.steps[step.name] = made
            self.order.append(made)
        for made in self.order:
            made.include(parent)
        return self

    def human_state(self) -> str:
        """Return the phase in words, such as `running`."""
        return self.state_to_name[self.state or 0]

    def start(self, parent: Any) -> None:
        """Start the steps of *parent*."""
        self.state = RUN
        if self.on_start:
            self.on_start()
        for step in parent.steps:
            logger.debug("| %s: Starting %s", self.name, step.alias)
            self.started += 1
            step.start(parent)

    def close(self, parent: Any) -> None:
        """Tell the steps that the stop begins."""
        if self.state == RUN:
            if self.on_close:
                self.on_close()
            self.state = CLOSE
            self.send_all(parent, "close", reverse=False, propagate=False)

    def stop(self, parent: Any, close: bool = True, terminate: bool = False) -> None:
        """Stop the steps that were started, last one first. An error in one step does not prevent the others."""
        if self.state in (RUN, CLOSE):
            self.close(parent)
            self.send_all(parent, "terminate" if terminate else "stop", propagate=False)
            if self.on_stopped:
                self.on_stopped()
        self.state = TERMINATE
        self.shutdown_complete.set()

    def stop_dependents(self, parent: Any, of: type[Step], terminate: bool = False) -> None:
        """Stop the steps that were started and that require *of*, or another step that does, last one first."""
        early = [step for step in parent.steps[: self.started] if _requires(type(step), of)]
        _send(reversed(early), parent, "terminate" if terminate else "stop")
        parent.steps = [step for step in parent.steps if step not in early]
        self.started -= len(early)

    def send_all(
        self,
        parent: Any,
        method: str,
        description: str | None = None,
        reverse: bool = True,
        propagate: bool = True,
        args: Any = (),
    ) -> None:
        """Call *method* on all started steps that have it."""
        steps = parent.steps[: self.started]
        _send(reversed(steps) if reverse else steps, parent, method, description, propagate, args)

    def info(self, parent: Any) -> dict[str, Any]:
        """The details of all steps, merged into one dict."""
        facts: dict[str, Any] = {}
        for step in parent.steps:
            facts |= step.info(parent) or {}
        return facts

    def join(self, timeout: float | None = None) -> None:
        """Wait until the blueprint has stopped."""
        self.shutdown_complete.wait(timeout)

    def __getitem__(self, name: str) -> Any:
        return self.steps[name]


def _send(
    steps: Iterable[Any],
    parent: Any,
    method: str,
    description: str | None = None,
    propagate: bool = False,
    args: Any = (),
) -> None:
    for step in steps:
        call = getattr(step, method, None)
        if call is None:
            continue
        try:
            call(parent, *args)
        except Exception as error:
            if propagate:
                raise
            logger.exception("Error on %s %s: %r", description or method, step.alias, error)


def _requires(step: Any, wanted: type[Step]) -> bool:
    return any(one is wanted or _requires(one, wanted) for one in map(symbol_by_name, step.requires))


def _in_order(types: Iterable[Any]) -> list[Any]:
    """The step classes and the ones they require, each after its requirements."""
    waiting = [_found(step, None) for step in types]
    required: dict[Any, list[Any]] = {}
    while waiting:
        step = waiting.pop()
        if step not in required:
            required[step] = [_found(path, step) for path in step.requires]
            waiting += required[step]
    return sorted(DependencyGraph(required.items()).topsort(), key=lambda step: step.last)


def _found(path: Any, wanted_by: Any) -> Any:
    try:
        return symbol_by_name(path)
    except (ImportError, AttributeError) as error:
        asking = f"the bootstep {wanted_by.name} requires {path}" if wanted_by else f"there is no bootstep {path}"
        raise ImproperlyConfigured(
            f"{asking}, which a worker does not have here: {error}. Leave it out, or use the signals worker_init, "
            "worker_ready and worker_shutdown"
        ) from error
