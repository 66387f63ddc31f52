"""Workers of `tests.compat.worker.project`, started by the command line."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.support.celery_program import StartWorker, imported, starting

PROJECT = "tests.compat.worker.project"


@pytest.fixture
def start(redis_url: str) -> Iterator[StartWorker]:
    """`start("-c", "2", processes=2)` starts a worker and waits until its processes are registered."""
    with starting(PROJECT, redis_url) as start:
        yield start


@pytest.fixture
def project(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program in this process, to send tasks."""
    with imported(PROJECT, redis_url, monkeypatch) as module:
        yield module
