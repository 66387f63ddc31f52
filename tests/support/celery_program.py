"""A program of Celery tasks: workers of it by the command line, and the program in this process, to send."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest
from sidekiq_celery import signals

from tests.support.waiting import eventually
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
            stack.callback(end_family, worker)
            return worker.start().wait_until_ready(processes=processes)

        yield start


def end_family(worker: SidekiqProcess) -> None:
    """
    What a test leaves running is not waited for, and none of its processes stays.

    Children that outlive their parent would show in the Redis that the next test has emptied.
    """
    if not worker.is_running:
        return
    family = _descendants(worker.pid)
    worker.kill()
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(_runs, family)))


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(word), *_descendants(int(word))]
    return found


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def imported(program: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program in this process, to send tasks; the signals that it listens to are as before afterwards."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    known = [getattr(signals, name) for name in signals.__all__]
    receivers = [(one, list(one.receivers or ())) for one in known]
    sys.modules.pop(program, None)
    module = importlib.import_module(program)
    yield module
    module.app.close()
    for one, before in receivers:
        one.receivers = before
    sys.modules.pop(program, None)
