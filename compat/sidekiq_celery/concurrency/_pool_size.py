"""What a worker shows of its pool."""

from typing import Any


class PoolSize:
    """
    The `pool` of a worker and of its consumer, for programs that look at its size.

    Args:
        worker: The worker.
    """

    is_green = False

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    @property
    def num_processes(self) -> int:
        """How many tasks run at once, in whatever the pool consists of."""
        return int(self._worker.concurrency)

    limit = num_processes

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the pool of a worker has no {name!r} here: its processes belong to the engine of sidekiq_py. "
            "app.control.pool_grow, pool_shrink and pool_restart change them",
            name=name,
            obj=self,
        )
