"""Finds out whether batches are in Redis, or in the memory of a program under test."""

from typing import TYPE_CHECKING

from sidekiq_py import program

if TYPE_CHECKING:
    from sidekiq_py.extensions.batches.pretended import Pretending


def pretending() -> "Pretending | None":
    """The batches of the active testing mode; None outside of one, when batches are in Redis."""
    if program.interceptor is None:
        return None
    # Only loaded in tests.
    from sidekiq_py.extensions.batches.pretended import batches_of
    from sidekiq_py.testing import modes

    mode = modes.mode_here()
    return None if mode is None else batches_of(mode)
