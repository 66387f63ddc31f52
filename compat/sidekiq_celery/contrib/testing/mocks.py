"""
Mocks for tests. Celery's mocks of broker messages are not here: no consumer reads messages, so nothing takes them;
push a task and let `start_worker` run it.
"""

from typing import Any, Self
from unittest.mock import Mock

__all__ = ("ContextMock",)


class _ContextMock(Mock):
    # `with` looks for both in the class.
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None


def ContextMock(*args: Any, **kwargs: Any) -> Any:
    """A mock for a `with`, which gives the mock itself."""
    mock: Any = _ContextMock(*args, **kwargs)
    mock.attach_mock(_ContextMock(), "__enter__")
    mock.attach_mock(_ContextMock(), "__exit__")
    mock.__enter__.return_value = mock
    # A true one would swallow exceptions.
    mock.__exit__.return_value = None
    return mock
