"""The table of remote control commands, and how a program adds its own."""

from collections import UserDict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple


class controller_info_t(NamedTuple):
    """
    What is known about a command.

    Args:
        alias: Another name for the command.
        type: `control` (it changes something) or `inspect`.
        visible: True if `--list` shows it and the command line accepts it.
        default_timeout: Seconds.
        help: One line.
        signature: The arguments, written for people.
        args: Names and types of the command-line arguments, in order.
        variadic: The argument that takes all remaining values.
    """

    alias: str | None = None
    type: str = "control"
    visible: bool = True
    default_timeout: float = 1.0
    help: str = ""
    signature: str | None = None
    args: Sequence[tuple[str, Callable[[str], Any]]] | None = None
    variadic: str | None = None


class Panel(UserDict[str, Any]):
    """
    All remote control commands of this process. `data` maps names to functions, `meta` to `controller_info_t`.

    Remote control calls a command as `command(state, **arguments)`; the command returns something JSON can carry.
    `sidekiq_celery.worker.remote_control` describes `state`.
    """

    data: ClassVar[dict[str, Callable[..., Any]]] = {}  # type: ignore[misc]
    meta: ClassVar[dict[str, controller_info_t]] = {}

    @classmethod
    def register(cls, *args: Any, **kwargs: Any) -> Any:
        """Add a command. Works as a decorator, with or without options; those are the fields of `controller_info_t`."""
        if args:
            return cls._register(**kwargs)(*args)
        return cls._register(**kwargs)

    @classmethod
    def _register(cls, name: str | None = None, **fields: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        about = controller_info_t(**fields)

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            command = name or function.__name__
            cls.data[command] = function
            cls.meta[command] = about._replace(help=about.help or (function.__doc__ or "").strip().split("\n")[0])
            if about.alias:
                cls.data[about.alias] = function
            return function

        return add


def control_command(**kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a command that changes something: `@control_command(args=[("n", int)], signature="[N=1]")`."""
    return Panel._register(type="control", **kwargs)


def inspect_command(**kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a command that only reports something."""
    return Panel._register(type="inspect", **kwargs)


def ok(value: Any) -> dict[str, Any]:
    """The reply of a command that succeeded."""
    return {"ok": value}


def nok(value: Any) -> dict[str, Any]:
    """The reply of a command that failed; *value* says why."""
    return {"error": value}
