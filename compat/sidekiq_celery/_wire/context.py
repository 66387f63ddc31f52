"""`Task.request`: the details of the call that a task runs for."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sidekiq_celery._wire.message import shown

_UNSET = object()
# RabbitMQ assumes that a message with these headers is going in circles.
_OF_DEAD_LETTERS = frozenset(
    {
        "x-death",
        *(f"x-{turn}-death-{what}" for turn in ("first", "last") for what in ("exchange", "queue", "reason")),
    }
)


class _AlwaysSent:
    """
    A field that Celery's messages always have, and payloads only if the caller gave it. A `__getattr__` in its place
    would make each access to any field slower: 2 % of a no-op task.

    Args:
        value_of: Returns the value in a worker.
        without_message: The value elsewhere. Without it, the field is an AttributeError there.
    """

    def __init__(self, value_of: Callable[["Context"], Any], *, without_message: Any = _UNSET) -> None:
        self._value_of = value_of
        self._without_message = without_message
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, request: "Context | None", owner: type) -> Any:
        if request is not None and not request.called_directly and not request.is_eager:
            return self._value_of(request)
        if self._without_message is _UNSET:
            raise AttributeError(f"'Context' object has no attribute {self._name!r}")
        return self._without_message


class Context:
    """
    The call that a task runs for. Reading an unknown name raises AttributeError; a known one that was not given is
    None, or has its default from this class.

    Args:
        args, kwargs: As for `dict`. Any name that is not listed below is a header from the caller, and is also in
            `headers`.
    """

    _children: list[Any] | None = None
    # The next step, if it is known before it is needed; and the query for the step after it.
    _next_step: Any = None
    _question: Any = None
    # The number with which the task's own code has called `retry(max_retries=…)` in this attempt.
    _own_max_retries: int | None = None
    _protected = 0
    args: Any = None
    callbacks: Any = None
    called_directly: bool = True
    chain: Any = None
    chord: Any = None
    correlation_id: Any = None
    delivery_info: Any = None
    errbacks: Any = None
    eta: Any = None
    expires: Any = None
    group: Any = None
    group_index: Any = None
    headers: Any = None
    hostname: Any = None
    id: Any = None
    ignore_result: Any = False
    is_eager: bool = False
    kwargs: Any = None
    logfile: Any = None
    loglevel: Any = None
    origin: Any = None
    parent_id: Any = None
    # Stored, so that what a task writes into it is there when it is read again.
    properties: Any = _AlwaysSent(lambda request: vars(request).setdefault("properties", {}), without_message=None)
    retries: int = 0
    reply_to: Any = None
    replaced_task_nesting: int = 0
    root_id: Any = None
    shadow: Any = None
    taskset: Any = None
    timelimit: Any = None
    time_limit: Any = None
    soft_time_limit: Any = None
    utc: Any = None
    stamped_headers: Any = None
    stamps: Any = None
    argsrepr: Any = _AlwaysSent(lambda request: shown(tuple(request.args)))
    kwargsrepr: Any = _AlwaysSent(lambda request: shown(request.kwargs))
    lang: Any = _AlwaysSent(lambda request: "py")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.update(*args, **kwargs)
        if self.headers is None:
            self.headers = self._get_custom_headers(*args, **kwargs)

    def _get_custom_headers(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        given = dict(*args, **kwargs)
        own = {key: value for key, value in given.items() if key not in _KNOWN}
        return own or None

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set fields, given as for `dict.update`. A `timelimit` also sets `time_limit` and `soft_time_limit`."""
        before = self.__dict__.get("timelimit", _UNSET)
        self.__dict__.update(*args, **kwargs)
        now = self.__dict__.get("timelimit", _UNSET)
        if now is before:
            return
        is_pair = isinstance(now, list | tuple) and len(now) >= 2
        self.time_limit, self.soft_time_limit = now[:2] if is_pair else (None, None)

    def clear(self) -> None:
        """Remove all fields that were given."""
        self.__dict__.clear()

    def get(self, key: str, default: Any = None) -> Any:
        """A field, or *default* for an unknown name."""
        return getattr(self, key, default)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _ALWAYS_SENT or hasattr(self, name)]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The caller's headers are fields, too."""

    def __repr__(self) -> str:
        return f"<Context: {vars(self)!r}>"

    @property
    def children(self) -> list[Any]:
        """The results of the tasks that this one has called."""
        if self._children is None:
            self._children = []
        return self._children

    def as_execution_options(self) -> dict[str, Any]:
        """The options with which `apply_async` repeats this call."""
        time_limit, soft_time_limit = self.timelimit or (None, None)
        options = {
            **{name: getattr(self, name) for name in _REPEATED},
            "task_id": self.id,
            "group_id": self.group,
            "link": self.callbacks,
            "link_error": self.errbacks,
            "soft_time_limit": soft_time_limit,
            "time_limit": time_limit,
            "headers": {key: value for key, value in (self.headers or {}).items() if key not in _OF_DEAD_LETTERS},
        }
        if self.stamps is not None and self.stamped_headers is not None:
            options["stamped_headers"] = self.stamped_headers
            options |= {key: value for key, value in self.stamps.items() if key in self.stamped_headers}
        return options


# Fields that are also options of a call, by the same name.
_REPEATED = (
    *("root_id", "parent_id", "group_index", "shadow", "chord", "chain"),
    *("expires", "retries", "reply_to", "replaced_task_nesting", "origin"),
)
_ALWAYS_SENT = frozenset(name for name, field in vars(Context).items() if isinstance(field, _AlwaysSent))
_FIELDS = [name for name, field in vars(Context).items() if name[0] != "_" and not callable(field)]
_FIELDS.remove("children")
# The last two are fields of a message, and no headers of the caller either.
_KNOWN = frozenset({*vars(Context), "task", "compression"})


def as_dict(request: Context) -> dict[str, Any]:
    """The request as a dict, with the fields that have their defaults."""
    given = {name: value for name, value in vars(request).items() if name[0] != "_"}
    return {**{name: request.get(name) for name in _FIELDS}, **given}


def get_actual_ignore_result(task: Any, req: Context | None) -> Any:
    """Whether the result is ignored, by the call's option or else by the task's."""
    if isinstance(req, Context):
        # The class's default does not count as a choice.
        wanted = req.__dict__.get("ignore_result")
    else:
        wanted = None if req is None else getattr(req, "ignore_result", None)
    return task.ignore_result if wanted is None else wanted
