"""The command line's error. It has a module of its own because it imports click."""

from click import ClickException


class CeleryCommandException(ClickException):
    """
    A command cannot be carried out.

    Args:
        exit_code: The process's exit code.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message=message)
        self.exit_code = exit_code  # type: ignore[misc]
