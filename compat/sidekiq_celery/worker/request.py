"""What Celery's consumer makes of a message. Here the engine runs jobs without one; see `Task.request` instead."""

from typing import Any, NoReturn

__all__ = ("Request",)


class Request:
    """
    A name for annotations, and a base of classes that are also used on Celery; `Task.Request` has no effect here.

    Raises:
        NotImplementedError: It is made.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "there is no consumer here that makes requests of messages; use the task's own `request`, its hooks, such "
            "as on_failure, or signals, such as task_revoked"
        )
