"""
Mocks for tests. Celery's mocks of broker messages are not available: there is no consumer that reads messages. Push a
task and let `start_worker` run it instead.
"""

from typing import Any, Self
from unittest.mock import Mock

__all__ = ("ContextMock",)


class _ContextMock(Mock):
    # `with` looks both up in the class.
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None


def ContextMock(*args: Any, **kwargs: Any) -> Any:
    """Create a mock for `with` statements. Entering it returns the mock itself."""
    mock: Any = _ContextMock(*args, **kwargs)
    mock.attach_mock(_ContextMock(), "__enter__")
    mock.attach_mock(_ContextMock(), "__exit__")
    mock.__enter__.return_value = mock
    # A true value would swallow exceptions.
    mock.__exit__.return_value = None
    return mock
