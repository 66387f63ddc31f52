"""A program of Celery tasks: workers of it by the command line, and the program in this process, to send."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

import pytest
from sidekiq_celery import signals

from tests.support.worker_process import SOURCE_ROOTS, SidekiqProcess

StartWorker = Callable[..., SidekiqProcess]


def command(*arguments: str) -> list[str]:
    """The command line, as a process."""
    return [sys.executable, "-m", "sidekiq_celery", *arguments]


def environment(**more: str) -> dict[str, str]:
    """For processes to find the programs of these tests."""
    return {"PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)), "PYTHONUNBUFFERED": "1", **more}


@contextmanager
def starting(program: str, redis_url: str) -> Iterator[StartWorker]:
    """
    Starts workers of a program, and kills those that a test leaves running.

    Args:
        program: The module, as `-A` takes it.

    `start("-c", "2", processes=2, url=…, app=…, VARIABLE="value")` waits until the worker's processes are registered.
    """
    with ExitStack() as stack:

        def start(
            *arguments: str, processes: int = 1, url: str = redis_url, app: str = program, **more: str
        ) -> SidekiqProcess:
            words = command("-A", app, "worker", *arguments)
            worker = SidekiqProcess(words, redis_url=url, environment=environment(**more))
            stack.callback(worker.print_log_tail)
            # What a test leaves running is not waited for.
            stack.callback(lambda: worker.kill() if worker.is_running else None)
            return worker.start().wait_until_ready(processes=processes)

        yield start


@contextmanager
def imported(program: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program in this process, to send tasks; the signals that it listens to are as before afterwards."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    known = [getattr(signals, name) for name in signals.__all__]
    receivers = [(signal, list(signal.receivers or ())) for signal in known]
    sys.modules.pop(program, None)
    module = importlib.import_module(program)
    yield module
    module.app.close()
    for signal, before in receivers:
        signal.receivers = before
    sys.modules.pop(program, None)
