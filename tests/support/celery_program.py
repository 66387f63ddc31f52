"""A program of Celery tasks: workers of it by the command line, and the program in this process, to send."""

import importlib
import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, signals

from tests.support.process_states import has_ended
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS, SidekiqProcess

StartWorker = Callable[..., SidekiqProcess]


def command(*arguments: str) -> list[str]:
    """The command line, as a process."""
    return [sys.executable, "-m", "sidekiq_celery", *arguments]


def environment(**more: str) -> dict[str, str]:
    """For processes to find the programs of these tests."""
    return {"PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)), "PYTHONUNBUFFERED": "1", **more}


def noted(client: redis.Redis, key: str) -> list[str]:
    """What the program has noted."""
    return [text.decode() for text in client.lrange(f"noted:{key}", 0, -1)]


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
            mark = uuid.uuid4().hex
            words = command("-A", app, "worker", *arguments)
            worker = SidekiqProcess(words, redis_url=url, environment=environment(TEST_FAMILY=mark, **more))
            stack.callback(worker.print_log_tail)
            stack.callback(end_family, worker, mark)
            return worker.start().wait_until_ready(processes=processes)

        yield start


def end_family(worker: SidekiqProcess, mark: str) -> None:
    """
    What a test leaves running is not waited for, and none of its processes stays.

    Children that outlive their parent, whoever killed it, end what they run in their own time, and would show in the
    Redis that the next tests have emptied.
    """
    members = set(_marked(mark))
    if worker.is_running:
        worker.kill()

    def is_over() -> bool:
        # A process that is ending has no environment any more, but its connections still take jobs.
        members.update(_marked(mark))
        _kill(members)
        return all(map(has_ended, members))

    eventually(is_over)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    """The processes that were started with a mark in their environment, and those that they have forked."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def wait_for_an_answer(app: Celery, **whom: Any) -> None:
    """
    Wait until a worker answers a ping: what is said before it listens is heard by nobody.

    Each ping waits longer for its answer than the last: the first may come too early, and a slow machine needs time.

    Args:
        app: Whose worker.
        whom: As of `app.control.ping`: `destination=[node]`, or `limit=1` for anyone.
    """
    timeouts = chain((0.1, 0.2, 0.4, 0.8), repeat(1.6))
    eventually(lambda: app.control.ping(timeout=next(timeouts), **whom))


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
