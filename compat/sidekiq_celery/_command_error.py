"""An error of the command line, apart from the others as it imports click."""

from click import ClickException

__all__ = ("CeleryCommandException",)


class CeleryCommandException(ClickException):
    """
    A command cannot be carried out.

    Args:
        exit_code: Of the process.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message=message)
        self.exit_code = exit_code  # type: ignore[misc]
