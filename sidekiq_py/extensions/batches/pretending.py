"""Finds out whether batches are in Redis, or in the memory of a program under test."""

from typing import TYPE_CHECKING, Any

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


def waiting_payloads() -> list[dict[str, Any]]:
    """The payloads of the jobs that wait in the active testing mode; in the inline mode none do."""
    from sidekiq_py.testing import modes

    mode = modes.mode_here()
    return [] if mode is None or mode.enqueued is None else [job.payload for job in mode.enqueued.jobs()]
