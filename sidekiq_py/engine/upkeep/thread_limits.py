"""What a worker says whose system lets it start no more threads."""

from collections.abc import Iterator
from contextlib import contextmanager

from sidekiq_py.errors import SidekiqError


@contextmanager
def explaining_thread_limits() -> Iterator[None]:
    """
    Turn a system that allows no more threads into an error that says what to do.

    Raises:
        SidekiqError: A thread could not be started.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != "can't start new thread":
            raise
        raise SidekiqError(
            "The system lets this process start no more threads. Lower --concurrency (-c), or raise the limit on "
            "processes (ulimit -u, or the container's limit on PIDs) or on memory (ulimit -v)."
        ) from error
