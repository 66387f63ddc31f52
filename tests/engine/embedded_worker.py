"""A worker in the test's own process."""

from collections.abc import Callable
from typing import Any

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain, ClientMiddleware, ServerMiddleware
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry


class Worker:
    """A worker of one thread in this process."""

    def __init__(self, url: str) -> None:
        self.ran: list[int] = []
        self.reported: list[str] = []
        self.hooks = Hooks()
        self.registry = Registry()
        self.client = Client(url, sidekiq_version="6.4.1")
        chain: Chain[ClientMiddleware] = Chain()
        self.client.middleware = chain
        self.url = url
        self.launcher: Launcher | None = None
        self.declare("run", self.ran.append)

    def declare(self, name: str, function: Callable[..., Any], **options: Any) -> FunctionDefinition:
        """Declare a job."""
        definition = FunctionDefinition(name, {}, function, function, **options)
        self.registry.add(definition)
        return definition

    def start(self, *, job_log: bool = False, sidekiq_version: str = "6.4.1", **options: Any) -> Launcher:
        """Start it; *options* are those of a `Config`."""
        server_chain: Chain[ServerMiddleware] = Chain()
        config = Config(
            redis=RedisSettings(self.url),
            sidekiq_version=sidekiq_version,
            capsules=(CapsuleConfig(concurrency=1),),
            job_log=job_log,
            embedded=True,
            **options,
        )
        self.launcher = Launcher(
            WorkerParts(
                config, registry=self.registry, hooks=self.hooks, server_middleware=server_chain, client=self.client
            )
        )
        self.launcher.start()
        return self.launcher

    def stop(self) -> None:
        """Stop it."""
        if self.launcher is not None:
            self.launcher.stop(timeout_seconds=1)
        self.client.close()
