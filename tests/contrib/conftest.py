"""A separate program for each test, and a worker that runs what it has pushed."""

from collections.abc import Callable, Iterator

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import telemetry
from tests.support.documents import empty_program
from tests.support.waiting import eventually


@pytest.fixture
def own_program(redis_url: str) -> Iterator[None]:
    """A program without jobs, middleware and handlers, on an empty server."""
    with empty_program(redis_url):
        yield


@pytest.fixture
def work_off(own_program: None) -> Callable[..., None]:
    """Runs a worker in this process until this many jobs have ended: `work_off(2)`."""

    def work_off(count: int, **settings: object) -> None:
        ended: list[str] = []
        names = ["sidekiq.job.stop", "sidekiq.job.exception"]
        telemetry.attach("work_off", names, lambda name, _: ended.append(name))
        with sidekiq.embed(**{"concurrency": 1, **settings}):  # type: ignore[arg-type]
            eventually(lambda: len(ended) >= count)
        telemetry.detach("work_off")

    return work_off
