"""The pool of `-P asyncio`."""

from sidekiq_celery.concurrency._pool_size import PoolSize

__all__ = ("TaskPool",)


class TaskPool(PoolSize):
    """The pool of a worker with `-P asyncio`, for programs that look at its kind and size."""
