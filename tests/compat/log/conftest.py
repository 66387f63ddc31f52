"""Loggers as they were before each test."""

from collections.abc import Iterator

import pytest
from sidekiq_celery import Celery

from tests.compat.log.kept import logging_kept


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app; what it does to logging is undone."""
    with logging_kept():
        yield Celery("logged", set_as_current=False, fixups=[])
