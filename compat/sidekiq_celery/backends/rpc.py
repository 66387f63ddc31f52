"""An error of a result backend that does not exist here. Programs that can run with it catch the error."""

__all__ = ("BacklogLimitExceeded",)


class BacklogLimitExceeded(Exception):
    """Never raised: the state of a task is one value in Redis, not a queue of messages."""
