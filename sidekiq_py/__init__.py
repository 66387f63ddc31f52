"""
Python and Ruby processes share one Redis through Sidekiq.

    import sidekiq_py as sidekiq

    @sidekiq.job(queue="critical", name="HardWorker")
    def hard_worker(name, count): ...

    hard_worker.perform_async("bob", 5)

The public names are re-exported here; nothing is defined here. What a program that only enqueues can do without is
imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sidekiq_py.client import Client
from sidekiq_py.errors import Shutdown, SidekiqError, SoftTimeLimitError
from sidekiq_py.jobs import job, registry, ruby_job
from sidekiq_py.program import client_middleware, configure, hooks, server_middleware

if TYPE_CHECKING:
    from sidekiq_py.async_client import AsyncClient as AsyncClient
    from sidekiq_py.engine.embedding import embed as embed
    from sidekiq_py.iterable import IterableJob as IterableJob
    from sidekiq_py.iterable import cancel as cancel
    from sidekiq_py.job_class import Job as Job
    from sidekiq_py.running import CurrentJob as CurrentJob
    from sidekiq_py.running import current_job as current_job

on = hooks.on
on_error = hooks.on_error
on_death = hooks.on_death

_LAZY = {
    "AsyncClient": "sidekiq_py.async_client",
    "CurrentJob": "sidekiq_py.running",
    "IterableJob": "sidekiq_py.iterable",
    "Job": "sidekiq_py.job_class",
    "cancel": "sidekiq_py.iterable",
    "current_job": "sidekiq_py.running",
    "embed": "sidekiq_py.engine.embedding",
}

__all__ = [
    "AsyncClient",
    "Client",
    "CurrentJob",
    "IterableJob",
    "Job",
    "Shutdown",
    "SidekiqError",
    "SoftTimeLimitError",
    "cancel",
    "client_middleware",
    "configure",
    "current_job",
    "embed",
    "hooks",
    "job",
    "on",
    "on_death",
    "on_error",
    "registry",
    "ruby_job",
    "server_middleware",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'sidekiq_py' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
