"""
Share one Redis between Python and Ruby processes through Sidekiq.

    import sidekiq_py as sidekiq

    @sidekiq.job(queue="critical", name="HardWorker")
    def hard_worker(name, count): ...

    hard_worker.perform_async("bob", 5)

This module re-exports the public names and defines nothing itself. Each name is imported on first use, so a test run
with the pytest plug-in installed, or a program that only enqueues, loads nothing else.

Because the distribution has a pytest plug-in, pytest would rewrite the asserts of the whole package, and it warns if
that is already loaded, as with `sidekiq-celery run -m pytest`. There are no asserts here, so: PYTEST_DONT_REWRITE
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from sidekiq_py.client.async_client import AsyncClient as AsyncClient
    from sidekiq_py.client.sync_client import Client as Client
    from sidekiq_py.engine.embedding import embed as embed
    from sidekiq_py.errors import JobFailed as JobFailed
    from sidekiq_py.errors import Shutdown as Shutdown
    from sidekiq_py.errors import SidekiqError as SidekiqError
    from sidekiq_py.errors import SoftTimeLimitError as SoftTimeLimitError
    from sidekiq_py.errors import Stopped as Stopped
    from sidekiq_py.extensions.batches.batch import Batch as Batch
    from sidekiq_py.extensions.batches.errors import BatchClosedError as BatchClosedError
    from sidekiq_py.extensions.batches.errors import BatchDoneError as BatchDoneError
    from sidekiq_py.extensions.batches.errors import BatchError as BatchError
    from sidekiq_py.extensions.batches.errors import BatchGoneError as BatchGoneError
    from sidekiq_py.extensions.periodic.declared import periodic as periodic
    from sidekiq_py.jobs.decorators import job as job
    from sidekiq_py.jobs.decorators import ruby_job as ruby_job
    from sidekiq_py.jobs.iterable import IterableJob as IterableJob
    from sidekiq_py.jobs.iterable import cancel as cancel
    from sidekiq_py.jobs.job_class import Job as Job
    from sidekiq_py.program import client_middleware as client_middleware
    from sidekiq_py.program import configure as configure
    from sidekiq_py.program import on as on
    from sidekiq_py.program import on_death as on_death
    from sidekiq_py.program import on_error as on_error
    from sidekiq_py.program import server_middleware as server_middleware
    from sidekiq_py.program import use as use
    from sidekiq_py.running_job import CurrentJob as CurrentJob
    from sidekiq_py.running_job import current_job as current_job

_HOMES = {
    "AsyncClient": "sidekiq_py.client.async_client",
    "Client": "sidekiq_py.client.sync_client",
    "CurrentJob": "sidekiq_py.running_job",
    "IterableJob": "sidekiq_py.jobs.iterable",
    "Job": "sidekiq_py.jobs.job_class",
    "JobFailed": "sidekiq_py.errors",
    "Shutdown": "sidekiq_py.errors",
    "SidekiqError": "sidekiq_py.errors",
    "SoftTimeLimitError": "sidekiq_py.errors",
    "Stopped": "sidekiq_py.errors",
    "cancel": "sidekiq_py.jobs.iterable",
    "client_middleware": "sidekiq_py.program",
    "configure": "sidekiq_py.program",
    "current_job": "sidekiq_py.running_job",
    "embed": "sidekiq_py.engine.embedding",
    "job": "sidekiq_py.jobs.decorators",
    "on": "sidekiq_py.program",
    "on_death": "sidekiq_py.program",
    "on_error": "sidekiq_py.program",
    "ruby_job": "sidekiq_py.jobs.decorators",
    "server_middleware": "sidekiq_py.program",
    "use": "sidekiq_py.program",
}

__all__ = [
    "AsyncClient",
    "Client",
    "CurrentJob",
    "IterableJob",
    "Job",
    "JobFailed",
    "Shutdown",
    "SidekiqError",
    "SoftTimeLimitError",
    "Stopped",
    "cancel",
    "client_middleware",
    "configure",
    "current_job",
    "embed",
    "job",
    "on",
    "on_death",
    "on_error",
    "ruby_job",
    "server_middleware",
    "use",
]


if not TYPE_CHECKING:  # or every misspelled name would have the type Any

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return _version()
        home = _HOMES.get(name) or _home_of_an_extension(name)
        if home is None:
            raise AttributeError(f"module 'sidekiq_py' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # reads files, and few programs need it

    try:
        return version("sidekiq-py")
    except PackageNotFoundError:
        return "unknown: a source tree that is not installed"


def _home_of_an_extension(name: str) -> str | None:
    # Python also calls `__getattr__` for submodules before it imports them.
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is not None:
        return None
    from sidekiq_py.program import extensions

    return extensions.lookup(name, lambda extension: extension.public_names)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
