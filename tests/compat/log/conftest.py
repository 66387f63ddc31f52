"""Loggers as they were before each test."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.app.log import Logging

_NAMES = ("", "celery", "celery.task", "celery.redirected")


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app; what it does to logging is undone."""
    loggers = [logging.getLogger(name) for name in _NAMES]
    before = [(one, list(one.handlers), one.level, one.propagate) for one in loggers]
    streams, environment = (sys.stdout, sys.stderr), dict(os.environ)
    Logging._setup = False
    with warnings.catch_warnings():
        yield Celery("logged", set_as_current=False, fixups=[])
    Logging._setup = False
    logging.captureWarnings(False)
    sys.stdout, sys.stderr = streams
    os.environ.clear()
    os.environ.update(environment)
    for one, handlers, level, propagate in before:
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)
