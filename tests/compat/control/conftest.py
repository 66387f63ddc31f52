"""Workers of `tests.compat.control.project` that are asked; those of a module share one worker for each pool."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery

from tests.support.celery_program import command, environment, wait_for_an_answer
from tests.support.real_celery import python_with_celery
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

PROJECT = "tests.compat.control.project"
NODE = "w1@here"
SECONDS = 60


@dataclass(frozen=True, slots=True)
class Asked:
    """A worker, and an app by which it is asked."""

    process: SidekiqProcess
    app: Celery
    redis: redis.Redis
    pool: str

    def inspect(self, command: str, /, *arguments: Any, **options: Any) -> Any:
        """What the worker answers."""
        given = {"destination": [NODE], "timeout": SECONDS, **options}
        replies = getattr(self.app.control.inspect(**given), command)(*arguments)
        assert replies is not None, self.process.log_tail()
        return replies[NODE]

    def broadcast(self, command: str, **arguments: Any) -> Any:
        """The same, for any command."""
        replies = self.app.control.broadcast(
            command, arguments=arguments, destination=[NODE], timeout=SECONDS, reply=True
        )
        assert replies, self.process.log_tail()
        return replies[0][NODE]

    def send(self, key: str, **kwargs: Any) -> str:
        """Have a task run until `release`; its id, once it runs."""
        known = self.redis.llen(f"held:{key}")
        task_id: str = self.app.send_task(f"{PROJECT}.hold", (key,), kwargs).id
        eventually(lambda: self.redis.llen(f"held:{key}") > known, within_seconds=SECONDS)
        return task_id

    def release(self, key: str) -> None:
        """Let it end, and wait until it has."""
        self.redis.rpush(f"release:{key}", "now")

        def is_over() -> bool:
            return all(task["args"] != [key] for task in self.inspect("active"))

        eventually(is_over, within_seconds=SECONDS)


@contextmanager
def running(
    server: RedisServer, pool: str, *arguments: str, answers: bool = True, broker: str = "", **variables: str
) -> Iterator[Asked]:
    """A worker with two slots, where the pool has as many; *broker*: its URL and the app's, with a user."""
    concurrency = "1" if pool == "solo" else "2"
    words = ["worker", "-P", pool, "-c", concurrency, "-n", NODE, "-l", "INFO", *arguments]
    worker = SidekiqProcess(
        command("-A", PROJECT, *words),
        redis_url=server.url,
        environment=environment(BROKER=broker or server.url, **variables),
        namespace=variables.get("KEY_PREFIX", "").removesuffix(":") or None,
    )
    app = Celery("client", broker=broker or server.url, backend=server.url, set_as_current=False, fixups=[])
    if "KEY_PREFIX" in variables:
        app.conf.broker_transport_options = {"global_keyprefix": variables["KEY_PREFIX"]}
        app.conf.control_exchange = "other"
    with server.client() as client, worker.start():
        worker.wait_until_ready(processes=2 if pool == "prefork" else 1)
        asked = Asked(worker, app, client, pool)
        if answers:
            wait_for_an_answer(app, destination=[NODE])
        yield asked
    app.close()


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis for the workers of a module: the shared one is emptied before each test."""
    with RedisServer() as one:
        yield one


@pytest.fixture(scope="module")
def ask_a_real_client(server: RedisServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ask("inspect", "ping", "-j")`: what Celery's own command line gets from our worker."""
    python = python_with_celery()

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        given = [python, "-m", "celery", "-b", server.url, *words, "-d", NODE, "-t", str(SECONDS)]
        return subprocess.run(given, capture_output=True, text=True, timeout=2 * SECONDS, check=False)

    return ask


@pytest.fixture
def start(server: RedisServer) -> Iterator[Callable[..., Asked]]:
    """`start("prefork")`: a worker for one test."""
    with ExitStack() as stack:
        yield lambda pool, *words, **more: stack.enter_context(running(server, pool, *words, **more))
