"""
How a worker's remote control talks to the processes that run tasks, and to their parent.

A message has a *kind* and named values that JSON can carry. `on_message` registers the function for a kind, in any
process:

    @on_message("limits")
    def set_limits(recipient, task, soft): ...      # returns something JSON can carry, for callers that ask

`recipient` describes where the function runs. With prefork, messages go through the engine's pipes
(`sidekiq_py.engine.prefork.sidecar`). In a worker with a single process, the function is called directly; that process
counts as both child and parent.
"""

import json
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sidekiq_celery.utils.serialization import safe_repr
from sidekiq_py.worker import ALL, Message, Parent, Questions

if TYPE_CHECKING:
    from sidekiq_py.worker import Launcher, Supervisor

logger = logging.getLogger("celery.worker.control")


class Recipient(NamedTuple):
    """
    The place where a message arrived.

    Args:
        worker: The `WorkController`, or this process's copy of it.
        launcher: The process's launcher if it runs tasks (a child, or a worker's single process); else None.
        supervisor: Set in the parent of prefork children, which must neither wait nor connect to Redis; else None.
        counts_of_the_gone: In the process that runs remote control, how often each task was tried in children that have
            exited; else None.
    """

    worker: Any
    launcher: "Launcher | None" = None
    supervisor: "Supervisor | None" = None
    counts_of_the_gone: Counter[str] | None = None


class Answer(NamedTuple):
    """
    One process's answer.

    Args:
        pid: The process that answered.
        value: The function's return value; None if it failed.
        error: The text of the exception if it failed, else None.
    """

    pid: int
    value: Any
    error: str | None = None


_functions: dict[str, Callable[..., Any]] = {}


def on_message(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call the function as `function(recipient, **about)` for messages of *kind*. Its module has to be imported."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _functions[kind] = function
        return function

    return add


@on_message("heard")
def confirm_handled(recipient: Recipient) -> bool:
    """Answer once all earlier messages have been handled."""
    return True


def handle_message(recipient: Recipient, text: str) -> str:
    """Call the function for a message and return its answer as one line. Does not raise."""
    try:
        message = json.loads(text)
        value = _functions[message["kind"]](recipient, **message["about"])
        return json.dumps({"value": value}, default=safe_repr)
    except BaseException as error:
        logger.exception("a message from the worker's remote control could not be handled: %.200s", text)
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def text_of(kind: str, about: dict[str, Any]) -> str:
    """Encode a message as one line."""
    return json.dumps({"kind": kind, "about": about}, default=safe_repr)


def _answer(pid: int, text: str) -> Answer:
    try:
        read = json.loads(text)
        return Answer(pid, read.get("value"), read.get("error"))
    except (ValueError, AttributeError):
        return Answer(pid, None, "no answer")


class WorkerProcesses(Protocol):
    """A worker's processes, as remote control reaches them."""

    def tell(self, who: str, kind: str, about: dict[str, Any]) -> None:
        """Have the kind's function called there, without waiting."""

    def ask(self, who: str, kind: str, about: dict[str, Any], timeout_seconds: float) -> list[Answer]:
        """Have it called and wait for the return values. Late answers are dropped."""


class OneProcess:
    """
    A worker without children: a message is a plain call, whoever it is for. A message for all is handled once.

    Args:
        here: This process.
    """

    def __init__(self, here: Recipient) -> None:
        self._here = here

    def tell(self, who: str, kind: str, about: dict[str, Any]) -> None:
        """See `WorkerProcesses`."""
        self.ask(who, kind, about, 0.0)

    def ask(self, who: str, kind: str, about: dict[str, Any], timeout_seconds: float) -> list[Answer]:
        """See `WorkerProcesses`."""
        return [_answer(os.getpid(), handle_message(self._here, text_of(kind, about)))]


class OverPipes:
    """
    The processes of a prefork worker, seen from its sidecar.

    Args:
        parent: The pipes to the parent.
        here: The recipient of messages that children send to remote control.
    """

    def __init__(self, parent: Parent, here: Recipient) -> None:
        self._parent = parent
        self._here = here
        self._questions = Questions(parent)

    def tell(self, who: str, kind: str, about: dict[str, Any]) -> None:
        """See `WorkerProcesses`."""
        text = text_of(kind, about)
        self._parent.say("TELL", who, text)
        if who == ALL:
            # This process has its own copy of the app.
            handle_message(self._here, text)

    def ask(self, who: str, kind: str, about: dict[str, Any], timeout_seconds: float) -> list[Answer]:
        """See `WorkerProcesses`."""
        question = self._questions.ask(who, text_of(kind, about), timeout_seconds)
        return [_answer(int(pid), text) for pid, text in question.answers.items()]

    def handle(self, message: Message) -> None:
        """Handle a message from the parent."""
        self._questions.handle(message)
        if message.word == "SAID":
            handle_message(self._here, " ".join(message.details[1:]))
