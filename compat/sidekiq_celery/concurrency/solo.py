"""The pool of `-P solo`."""

from sidekiq_celery.concurrency._pool_size import PoolSize

__all__ = ("TaskPool",)


class TaskPool(PoolSize):
    """The pool of a worker with `-P solo`, for programs that look at its kind and size."""
