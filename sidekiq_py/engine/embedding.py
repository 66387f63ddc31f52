"""
A worker inside another program: a web server, a script, a test.

    worker = sidekiq.embed(concurrency=2, queues=["critical", "default"])
    worker.start()
    ...
    worker.stop()

It takes no signals and cannot be stopped from a Web UI: the program around it decides. Source: Sidekiq 8.1.7,
embedded.rb.
"""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.errors import ConfigError
from sidekiq_py.logs import counted
from sidekiq_py.registry import registry

_log = logging.getLogger("sidekiq")


class EmbeddedWorker:
    """
    Starting does not block; starting twice, stopping twice and stopping before a start is fine. After a stop it can be
    started again. As a context manager it works within the block.

    A program that forks (gunicorn with --preload) starts it in the child: threads do not survive a fork.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._launcher: Launcher | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<EmbeddedWorker {self._launcher or 'not running'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def identity(self) -> str | None:
        """Under which it is registered in Redis; None while it does not run."""
        return self._launcher.identity if self._launcher is not None else None

    def start(self) -> None:
        """
        Begin to work.

        Raises:
            ConfigError: No job is declared.
            UnsupportedRedisError: This Redis is too old, or a Cluster.
            RedisError: Redis is out of reach.
        """
        with self._lock:
            if self._launcher is not None:
                return
            if not len(registry):
                raise ConfigError("no job is declared; import the modules that declare your jobs before starting")
            launcher = Launcher(
                WorkerParts(
                    self.config,
                    registry=registry,
                    hooks=program.hooks,
                    server_middleware=program.server_middleware,
                    client=sync_client.current(),
                )
            )
            launcher.start()
            self._launcher = launcher

    def quiet(self) -> None:
        """Fetch no more jobs; those that run go on."""
        with self._lock:
            if self._launcher is not None:
                self._launcher.quiet()

    def stop(self, *, timeout_seconds: float | None = None) -> None:
        """
        Stop; busy jobs are given until the timeout, then Shutdown is raised in them, and they go back to their queues.

        Args:
            timeout_seconds: Instead of the config's 25.
        """
        with self._lock:
            launcher, self._launcher = self._launcher, None
            if launcher is None:
                return
            stubborn = launcher.stop(timeout_seconds=timeout_seconds)
            if stubborn:
                _log.warning(
                    "Shutdown was not heeded by %s; what it did not stop still runs in this program, "
                    "and will run again elsewhere",
                    counted(len(stubborn), "job"),
                )


def embed(*, concurrency: int = 2, queues: Sequence[Any] | str = ("default",), **settings: Any) -> EmbeddedWorker:
    """
    A worker for this program; call its `start` and `stop`.

    Args:
        concurrency: Threads that run jobs. 2 by default, as in Ruby, as the program has other work to do.
        queues: Names, `"name,weight"` or `("name", weight)`, in order of precedence.
        settings: Any field of `Config`, such as `shutdown_timeout_seconds=8`. Redis and the release of the Ruby side
        are
            as configured.

    Raises:
        ConfigError: A setting is unusable.
    """
    given = program.settings()
    named = [queues] if isinstance(queues, str) else queues
    capsule = CapsuleConfig("default", concurrency, tuple(QueueConfig.parse(queue) for queue in named))
    usual: dict[str, Any] = {
        "redis": given.redis,
        "sidekiq_version": given.sidekiq_version,
        "float_text": given.float_text,
        "extension_keys": given.extension_keys,
        "capsules": (capsule,),
        "tag": Path.cwd().name,
        "embedded": True,
    }
    try:
        return EmbeddedWorker(Config(**{**usual, **settings}))
    except TypeError as error:
        raise ConfigError(f"embed does not know this setting: {error}") from error
