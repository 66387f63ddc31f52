"""`ExceptionInfo`: an exception with its traceback as text, as passed to hooks and signals."""

import sys
import traceback as _traceback
from functools import cached_property
from types import TracebackType
from typing import Any

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class ExceptionInfo:
    """
    An exception, for hooks and signals.

    Args:
        exc_info: Type, exception and traceback; None for the exception being handled.
        internal: True if it was raised outside the task's own code.

    Attributes:
        type, error, tb: The parts of *exc_info*.
        exception: The exception in an `ExceptionWithTraceback`, as Celery hands it to hooks and signals.
        traceback: The traceback as Python prints it.
    """

    def __init__(self, exc_info: ExcInfo | None = None, internal: bool = False) -> None:
        self.type, self.error, self.tb = exc_info or sys.exc_info()
        self.internal = internal
        self._text: str | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # Instrumentation unwraps it if `isinstance` takes it for the class that Celery uses, which is billiard's.
        billiard = sys.modules.get("billiard.einfo")
        return ExceptionInfo if billiard is None else billiard.ExceptionInfo

    @cached_property
    def exception(self) -> Any:
        """The exception with its traceback; None if there is none."""
        return None if self.error is None else ExceptionWithTraceback(self.error, self.traceback)

    @property
    def traceback(self) -> str:
        """The text of the traceback, formatted on first use."""
        if self._text is None:
            self._text = "".join(_traceback.format_exception(self.type, self.error, self.tb))
        return self._text

    @property
    def exc_info(self) -> Any:
        """Type, exception and traceback, as loggers take them: the exception itself."""
        return self.type, self.error, self.tb

    def __str__(self) -> str:
        return self.traceback

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.error!r}>"

    def __reduce__(self) -> Any:
        # A traceback cannot be pickled; its text can.
        return _restored, (self.type, self.error, self.traceback, self.internal)


class ExceptionWithTraceback(Exception):
    """
    An exception that prints its traceback, also where only its text arrives.

    Args:
        exc: The exception itself.
        tb: The text of its traceback.
    """

    def __init__(self, exc: BaseException, tb: str) -> None:
        super().__init__()
        self.exc = exc
        self.tb = f'\n"""\n{tb}"""'

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # As above: tools that find billiard's class take `exc` out of it.
        return getattr(sys.modules.get("billiard.einfo"), "ExceptionWithTraceback", ExceptionWithTraceback)

    def __str__(self) -> str:
        return self.tb

    def __reduce__(self) -> Any:
        return _itself, (self.exc,)


def _itself(exc: BaseException) -> BaseException:
    return exc


def _restored(kind: Any, exception: Any, text: str, internal: bool) -> ExceptionInfo:
    info = ExceptionInfo((kind, exception, None), internal)
    info._text = text
    return info
