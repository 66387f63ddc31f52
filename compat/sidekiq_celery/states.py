"""The states of a task, and their order."""

__all__ = (
    "EXCEPTION_STATES",
    "FAILURE",
    "IGNORED",
    "PENDING",
    "PROPAGATE_STATES",
    "READY_STATES",
    "RECEIVED",
    "RETRY",
    "REVOKED",
    "STARTED",
    "SUCCESS",
    "UNREADY_STATES",
    "precedence",
    "state",
)

PENDING = "PENDING"
"""Unknown: the task is waiting, or no task has this id."""
RECEIVED = "RECEIVED"
"""A worker has received the task; used in events only."""
STARTED = "STARTED"
"""The task is running; used only with `task_track_started`."""
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"
REVOKED = "REVOKED"
REJECTED = "REJECTED"
"""Used in events only."""
RETRY = "RETRY"
"""The task is waiting for its next attempt."""
IGNORED = "IGNORED"

READY_STATES = frozenset({SUCCESS, FAILURE, REVOKED})
UNREADY_STATES = frozenset({PENDING, RECEIVED, STARTED, REJECTED, RETRY})
EXCEPTION_STATES = frozenset({RETRY, FAILURE, REVOKED})
"""The states whose result is an exception."""
PROPAGATE_STATES = frozenset({FAILURE, REVOKED})
"""The states whose exception `get()` raises."""
ALL_STATES = frozenset({PENDING, RECEIVED, STARTED, SUCCESS, FAILURE, RETRY, REVOKED})

PRECEDENCE: list[str | None] = [
    SUCCESS,
    FAILURE,
    None,
    REVOKED,
    STARTED,
    RECEIVED,
    REJECTED,
    RETRY,
    PENDING,
]
"""The strongest first; None is the position of custom states."""

PRECEDENCE_LOOKUP = {name: place for place, name in enumerate(PRECEDENCE)}
NONE_PRECEDENCE = PRECEDENCE_LOOKUP[None]


def precedence(state: str | None) -> int:
    """The position of *state* in the order; lower is stronger."""
    return PRECEDENCE_LOOKUP.get(state, NONE_PRECEDENCE)


class state(str):
    """A state that compares by strength: `state(PENDING) < state(SUCCESS)`, with custom states between them."""

    __slots__ = ()

    def __gt__(self, other: str) -> bool:
        return precedence(self) < precedence(other)

    def __ge__(self, other: str) -> bool:
        return precedence(self) <= precedence(other)

    def __lt__(self, other: str) -> bool:
        return precedence(self) > precedence(other)

    def __le__(self, other: str) -> bool:
        return precedence(self) >= precedence(other)
