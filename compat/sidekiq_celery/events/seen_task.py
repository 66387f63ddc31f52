"""`Task`: what events report about one task; and the indexes in which tasks are found."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakSet

from sidekiq_celery import states

TASK_EVENT_TO_STATE = {
    "sent": states.PENDING,
    "received": states.RECEIVED,
    "started": states.STARTED,
    "failed": states.FAILURE,
    "retried": states.RETRY,
    "succeeded": states.SUCCESS,
    "revoked": states.REVOKED,
    "rejected": states.REJECTED,
}


class Task:
    """
    A task as its events describe it. Attributes that no event has reported are None.

    Args:
        uuid: The task's id.
        cluster_state: The `State` in which its parent, root and children are looked up.
        children: The ids of its children.
        kwargs: Attributes.
    """

    name: Any = None
    received = sent = started = succeeded = failed = retried = revoked = rejected = None
    args = kwargs = eta = expires = retries = worker = result = exception = timestamp = runtime = traceback = None
    exchange = routing_key = root_id = parent_id = client = None
    state: str = states.PENDING
    clock = 0

    _fields = (
        *("uuid", "name", "state", "received", "sent", "started", "rejected", "succeeded", "failed", "retried"),
        *("revoked", "args", "kwargs", "eta", "expires", "retries", "worker", "result", "exception", "timestamp"),
        *("runtime", "traceback", "exchange", "routing_key", "clock", "client", "root", "root_id", "parent"),
        *("parent_id", "children"),
    )
    merge_rules: ClassVar[dict[str, tuple[str, ...]]] = {
        states.RECEIVED: ("name", "args", "kwargs", "parent_id", "root_id", "retries", "eta", "expires"),
    }
    """For each state, the fields taken from an event that arrives after those of a later state."""
    _info_fields = (
        *("args", "kwargs", "retries", "result", "eta", "runtime", "expires", "exception", "exchange"),
        *("routing_key", "root_id", "parent_id"),
    )

    def __init__(
        self,
        uuid: Any = None,
        cluster_state: Any = None,
        children: Iterable[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.uuid = uuid
        self.cluster_state = cluster_state
        known = {} if cluster_state is None else cluster_state.tasks
        self.children: WeakSet[Task] = WeakSet(known[each] for each in children or () if each in known)
        self.__dict__.update(kwargs)

    def event(
        self, type_: str, timestamp: Any = None, local_received: Any = None, fields: Any = None, **_: Any
    ) -> None:
        """
        Apply an event.

        Args:
            type_: The type without its group. An unknown type is a custom state of the program.
            timestamp: When it was sent. It is kept in the attribute named after the type.
        """
        fields = {} if fields is None else fields
        state = TASK_EVENT_TO_STATE.get(type_)
        if state is None:
            state = type_.upper()
        else:
            setattr(self, type_, timestamp)
        is_late = states.precedence(state) > states.precedence(self.state)
        if is_late and states.RETRY not in (state, self.state):
            kept = self.merge_rules.get(state)
            if kept is not None:
                fields = {name: value for name, value in fields.items() if name in kept}
        else:
            fields.update(state=state, timestamp=timestamp)
        self.__dict__.update(fields)

    def info(self, fields: Iterable[str] | None = None, extra: Iterable[str] | None = None) -> dict[str, Any]:
        """The known attributes among *fields* and *extra*, for display."""
        names = [*(self._info_fields if fields is None else fields), *(extra or ())]
        found = {name: getattr(self, name, None) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def as_dict(self) -> dict[str, Any]:
        """All fields, with other tasks given by id."""
        found = {name: getattr(self, name) for name in self._fields if name not in ("children", "root", "parent")}
        others = {"children": [child.id for child in self.children], "root": self.root_id, "parent": self.parent_id}
        return {**found, **others}

    @property
    def id(self) -> Any:
        """The task's id, `uuid`."""
        return self.uuid

    @property
    def origin(self) -> Any:
        """The last sender of its events: a worker, or the client that sent the task."""
        return self.client if self.worker is None else self.worker.id

    @property
    def ready(self) -> bool:
        """True if the task has ended."""
        return self.state in states.READY_STATES

    @cached_property
    def parent(self) -> Any:
        """The task that called it."""
        return self._known(self.parent_id)

    @cached_property
    def root(self) -> Any:
        """The first task of its workflow."""
        return self._known(self.root_id)

    def _known(self, task_id: Any) -> Any:
        # Bypasses the cache's own access, which would mark the other task as recently used.
        return None if not task_id or self.cluster_state is None else self.cluster_state.tasks.data.get(task_id)

    def __eq__(self, other: object) -> bool:
        return self.uuid == other.uuid if isinstance(other, Task) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.uuid)

    def __repr__(self) -> str:
        return f"<Task: {self.name}({self.uuid}) {self.state} clock:{self.clock}>"

    def __reduce__(self) -> Any:
        return _depickle_task, (type(self), self.as_dict())


def _depickle_task(cls: type[Task], fields: dict[str, Any]) -> Task:
    return cls(**fields)


class CallableDefaultdict(defaultdict[str, Any]):
    """
    An index of sets that can also be called.

    Args:
        fun: The function that a call runs.
    """

    def __init__(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.fun = fun
        super().__init__(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)
