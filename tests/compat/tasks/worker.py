"""A worker in this process that runs the tasks of one app."""

from collections.abc import Sequence
from typing import Any

from sidekiq_celery import Celery
from sidekiq_celery._send.clients import client_of
from sidekiq_celery.worker.registering import register_tasks

from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import Registry


class TaskWorker:
    """
    Not started yet.

    Args:
        url: Where its jobs are.
        queues: Which it serves.
    """

    def __init__(self, app: Celery, url: str, queues: Sequence[str] = ("celery",)) -> None:
        self.app = app
        self.hooks = Hooks()
        self.registry = Registry()
        self.middleware: Chain[ServerMiddleware] = Chain()
        self.launcher: Launcher | None = None
        self._url = url
        self._queues = queues

    def start(self, *, max_job_bytes: int = 0, concurrency: int = 2, **options: Any) -> None:
        """Start it; other *options* are those of `register_tasks`."""
        register_tasks(self.app, self.registry, hooks=self.hooks, **options)
        config = Config(
            redis=RedisSettings(self._url),
            sidekiq_version="6.4.1",
            capsules=(CapsuleConfig(concurrency=concurrency, queues=tuple(map(QueueConfig, self._queues))),),
            max_job_bytes=max_job_bytes,
            job_log=False,
            embedded=True,
        )
        self.launcher = Launcher(
            WorkerParts(
                config,
                registry=self.registry,
                hooks=self.hooks,
                server_middleware=self.middleware,
                client=client_of(self.app),
            )
        )
        self.launcher.start()

    def stop(self) -> None:
        """Stop it."""
        if self.launcher is not None:
            self.launcher.stop(timeout_seconds=1)
        client_of(self.app).close()
