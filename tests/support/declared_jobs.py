"""The jobs that this process has declared."""

from collections.abc import Iterator
from contextlib import contextmanager

from sidekiq_py.registry import registry


@contextmanager
def no_jobs_declared() -> Iterator[None]:
    """A program without jobs. Those of other tests are there again afterwards."""
    kept = list(registry)
    registry.clear()
    try:
        yield
    finally:
        registry.clear()
        for definition in kept:
            registry.add(definition)
