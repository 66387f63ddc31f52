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
"""Not known: waiting, or nobody's id."""
RECEIVED = "RECEIVED"
"""A worker has it; in events only."""
STARTED = "STARTED"
"""Running; where `task_track_started` asks for it."""
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"
REVOKED = "REVOKED"
REJECTED = "REJECTED"
"""In events only."""
RETRY = "RETRY"
"""Waiting for its next try."""
IGNORED = "IGNORED"

READY_STATES = frozenset({SUCCESS, FAILURE, REVOKED})
UNREADY_STATES = frozenset({PENDING, RECEIVED, STARTED, REJECTED, RETRY})
EXCEPTION_STATES = frozenset({RETRY, FAILURE, REVOKED})
"""The result is an exception."""
PROPAGATE_STATES = frozenset({FAILURE, REVOKED})
"""`get()` raises it."""
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
"""The strongest first; None is the place of a program's own states."""

PRECEDENCE_LOOKUP = {name: place for place, name in enumerate(PRECEDENCE)}
NONE_PRECEDENCE = PRECEDENCE_LOOKUP[None]


def precedence(state: str | None) -> int:
    """The place of *state* in the order; lower is stronger."""
    return PRECEDENCE_LOOKUP.get(state, NONE_PRECEDENCE)


class state(str):
    """A state that compares by strength: `state(PENDING) < state(SUCCESS)`, and a program's own between them."""

    __slots__ = ()

    def __gt__(self, other: str) -> bool:
        return precedence(self) < precedence(other)

    def __ge__(self, other: str) -> bool:
        return precedence(self) <= precedence(other)

    def __lt__(self, other: str) -> bool:
        return precedence(self) > precedence(other)

    def __le__(self, other: str) -> bool:
        return precedence(self) >= precedence(other)
