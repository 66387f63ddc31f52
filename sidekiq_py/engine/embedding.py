"""
A worker inside another program: a web server, a script, a test.

    worker = sidekiq.embed(concurrency=2, queues=["critical", "default"])
    worker.start()
    ...
    worker.stop()

It handles no signals and cannot be stopped from a Web UI: the surrounding program decides. Source: Sidekiq 8.1.7,
embedded.rb.
"""

import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from sidekiq_py import program
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.errors import ConfigError
from sidekiq_py.logs import counted, log
from sidekiq_py.options import closest
from sidekiq_py.registry import registry


class EmbeddedWorker:
    """
    A worker that runs inside this program. Starting does not block. Starting twice, stopping twice and stopping before
    a start are fine. After a stop it can be started again. As a context manager it runs for the duration of the block.

    Threads do not survive a fork, and with gevent their copies do nothing. So in a forked child, such as gunicorn's
    with --preload, it is not running: the child may start one of its own, and a stop there leaves the parent's alone.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._launcher: Launcher | None = None
        self._lock = threading.Lock()
        _workers.add(self)

    def __repr__(self) -> str:
        return f"<EmbeddedWorker {self._launcher or 'not running'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def identity(self) -> str | None:
        """The worker's identity in Redis; None while it is not running."""
        return self._launcher.identity if self._launcher is not None else None

    def start(self) -> None:
        """
        Start the worker.

        Raises:
            ConfigError: No job is declared.
            UnsupportedRedisError: The Redis server is too old, or a Cluster.
            RedisError: Redis is unreachable.
        """
        with self._lock:
            if self._launcher is not None:
                return
            if not len(registry):
                raise ConfigError("no job is declared; import the modules that declare your jobs before starting")
            launcher = Launcher(WorkerParts(self.config))
            launcher.start()
            self._launcher = launcher

    def quiet(self) -> None:
        """Stop fetching jobs. Running jobs continue."""
        with self._lock:
            if self._launcher is not None:
                self._launcher.quiet()

    def stop(self, *, timeout_seconds: float | None = None) -> None:
        """
        Stop the worker. Busy jobs have until the timeout; then Shutdown is raised in them and they go back to their
        queues.

        Args:
            timeout_seconds: Overrides the config's timeout (25 seconds by default).
        """
        with self._lock:
            launcher, self._launcher = self._launcher, None
            if launcher is None:
                return
            stubborn = launcher.stop(timeout_seconds=timeout_seconds)
            if stubborn:
                log.warning(
                    "Shutdown did not stop %s; whatever still runs in this program will run again elsewhere",
                    counted(len(stubborn), "job"),
                )


def _directory_name() -> str:
    """The name of the working directory; empty if it was deleted, as an old release is after a deploy."""
    try:
        return Path.cwd().name
    except FileNotFoundError:
        return ""


_workers: weakref.WeakSet[EmbeddedWorker] = weakref.WeakSet()


def _forget_inherited() -> None:
    # A child that stopped the parent's worker would put back jobs that the parent has.
    for worker in _workers:
        worker._launcher, worker._lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_inherited)


# Fields of `Config` that the command line puts into effect.
_OF_THE_COMMAND = ("processes", "max_memory_mb", "probe_port")


def embed(
    *, concurrency: int = 2, queues: Sequence[Any] | Mapping[str, int] | str = ("default",), **settings: Any
) -> EmbeddedWorker:
    """
    Create a worker that runs inside this program. Call its `start` and `stop`.

    Args:
        concurrency: The number of threads that run jobs. The default is 2, as in Ruby, because the program has other
            work to do.
        queues: `"name"`, `"name,weight"` or `("name", weight)`, in order of precedence; or a mapping from names to
            weights.
        settings: Any field of `Config`, such as `shutdown_timeout_seconds=8`. The Redis settings and the release of the
            Ruby side come from the program's configuration.

    Raises:
        ConfigError: A setting is invalid.
    """
    known = {field.name for field in fields(Config)}
    unknown = next((name for name in settings if name not in known), None)
    if unknown is not None:
        meant = closest(unknown, {*known, "concurrency", "queues"})
        advice = f"did you mean {meant}?" if meant else "it takes concurrency, queues and the fields of Config"
        raise ConfigError(f"embed has no setting {unknown!r}; {advice}")
    without_effect = next((name for name in _OF_THE_COMMAND if settings.get(name) is not None), None)
    if without_effect is not None:
        raise ConfigError(
            f"embed has no setting {without_effect!r}, which is for a process of its own: sidekiq-py worker"
        )
    given = program.settings()
    named = [queues] if isinstance(queues, str) else queues.items() if isinstance(queues, Mapping) else queues
    if not isinstance(named, Iterable):
        raise ConfigError(f"queues is {queues!r}; give a list of names")
    capsule = CapsuleConfig("default", concurrency, tuple(QueueConfig.parse(queue) for queue in named))
    usual: dict[str, Any] = {
        "redis": given.redis,
        "sidekiq_version": given.sidekiq_version,
        "float_text": given.float_text,
        "extension_keys": given.extension_keys,
        "capsules": (capsule,),
        "tag": _directory_name(),
        "embedded": True,
    }
    try:
        return EmbeddedWorker(Config(**{**usual, **settings}))
    except TypeError as error:
        raise ConfigError(f"a setting of embed has the wrong type: {error}") from error
