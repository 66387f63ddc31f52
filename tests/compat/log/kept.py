"""Leaving logging as it was."""

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from sidekiq_celery.app.log import Logging

_NAMES = ("", "celery", "celery.task", "celery.redirected")


@contextmanager
def logging_kept() -> Iterator[None]:
    """What is done to loggers, streams, warnings and the environment within is undone."""
    loggers = [logging.getLogger(name) for name in _NAMES]
    before = [(one, list(one.handlers), one.level, one.propagate) for one in loggers]
    streams, environment = (sys.stdout, sys.stderr), dict(os.environ)
    hooks = sys.excepthook, threading.excepthook
    Logging._setup = False
    try:
        with warnings.catch_warnings():
            yield
    finally:
        Logging._setup = False
        logging.captureWarnings(False)
        sys.stdout, sys.stderr = streams
        sys.excepthook, threading.excepthook = hooks
        os.environ.clear()
        os.environ.update(environment)
        for one, handlers, level, propagate in before:
            one.handlers[:], one.propagate = handlers, propagate
            one.setLevel(level)
