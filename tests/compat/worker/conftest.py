"""Workers of `tests.compat.worker.project`, started by the command line."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType

import pytest
from sidekiq_celery import _state

from tests.support.worker_process import SOURCE_ROOTS, SidekiqProcess

StartWorker = Callable[..., SidekiqProcess]
_PROJECT = "tests.compat.worker.project"


def command(*arguments: str) -> list[str]:
    """The command line, as a process."""
    return [sys.executable, "-m", "sidekiq_celery", "-A", _PROJECT, *arguments]


def environment() -> dict[str, str]:
    """For processes to find the project."""
    return {"PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def start(redis_url: str) -> Iterator[StartWorker]:
    """`start("-c", "2", processes=2)` starts a worker and waits until its processes are registered."""
    with ExitStack() as stack:

        def run(*arguments: str, processes: int = 1, **more: str) -> SidekiqProcess:
            worker = SidekiqProcess(
                command("worker", *arguments), redis_url=redis_url, environment={**environment(), **more}
            )
            stack.callback(worker.print_log_tail)
            # What a test leaves running is not waited for.
            stack.callback(lambda: worker.kill() if worker.is_running else None)
            return worker.start().wait_until_ready(processes=processes)

        yield run


@pytest.fixture
def project(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program in this process, to send tasks."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    finalizers, current = dict(_state._on_app_finalizers), _state._tls.current_app
    receivers = _receivers()
    sys.modules.pop(_PROJECT, None)
    module = importlib.import_module(_PROJECT)
    yield module
    module.app.close()
    _state._on_app_finalizers.clear()
    _state._on_app_finalizers.update(finalizers)
    _state._set_current_app(current)
    for signal, before in receivers:
        signal.receivers = before
    sys.modules.pop(_PROJECT, None)


def _receivers() -> list[tuple[object, object]]:
    from sidekiq_celery import signals

    known = [getattr(signals, name) for name in signals.__all__]
    return [(one, list(one.receivers or ())) for one in known]
