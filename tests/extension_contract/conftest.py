"""A small extension, and a worker of this process that has it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import pytest

from sidekiq_py import program
from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.errors import Interrupted
from sidekiq_py.extension import (
    Command,
    DeadLetter,
    Drop,
    Effect,
    Extension,
    FetchedJob,
    JobEnd,
    Maintenance,
    Postpone,
    PushSlice,
    Verb,
)
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.outcome import DecideOutcome
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import Admit, FunctionDefinition, Registry

COUNT = Verb(
    "TALLY_COUNT",
    """{
  look = function(key, words)
    if redis.call('HGET', key, 'closed') then return 'TALLYCLOSED it takes no more jobs' end
  end,
  run = function(key, words) return redis.call('HINCRBY', key, words[1], words[2]) end,
}""",
)

BLIND = Verb("TALLY_BLIND", "{run = function(key, words) return redis.call('HINCRBY', key, words[1], 1) end}")


class TallyClosed(Exception):
    """Nothing more may be pushed."""


class Tally(Extension):
    """Marks each job with a number, and counts in Redis what becomes of them."""

    name = "tally"
    phase = "count"
    payload_keys: ClassVar[Mapping[str, str]] = {"tally": "it is never counted"}
    verbs = (COUNT, BLIND)
    key = "tally"

    def __init__(self) -> None:
        self.pushed = 0
        self.is_on = True
        self.stops: set[str] = set()
        self.admits: Callable[[FetchedJob], Postpone | Drop | DeadLetter | None] = lambda job: None
        self.ends: list[JobEnd] = []
        self.at_end: Callable[[JobEnd], Iterable[Effect]] = lambda end: [("HINCRBY", self.key, end.kind, 1)]
        self.wrapped: list[str] = []
        self.rounds: list[float] = []

    def wants_pushes(self) -> bool:
        return self.is_on

    def push(self, jobs: PushSlice) -> None:
        for job in jobs:
            if job.jid in self.stops:
                job.stop()
                continue
            self.pushed += 1
            job.add("tally", self.pushed)
        jobs.write((COUNT.name, self.key, "pushed", len(jobs)))

    def admit(self, job: FetchedJob) -> Postpone | Drop | DeadLetter | None:
        return self.admits(job)

    def around(self) -> ServerMiddleware | None:
        def wrap(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
            self.wrapped.append(payload["jid"])
            return call_next()

        return wrap

    def end(self, end: JobEnd) -> Iterable[Effect]:
        self.ends.append(end)
        return self.at_end(end)

    def maintain(self) -> Sequence[Maintenance]:
        def note(pool: Pool) -> float:
            commands: list[Command] = [("HINCRBY", self.key, "rounds", 1)]
            pool.batch(commands)
            return 0.01

        return [Maintenance("tally", 60, note)]

    def explain(self, refusal: str) -> Exception | None:
        return TallyClosed(refusal) if refusal.startswith("TALLYCLOSED") else None


@pytest.fixture
def tally() -> Iterator[Tally]:
    """The extension, in use in this program."""
    extension = Tally()
    program.use(extension)
    yield extension
    program.reset()


class Worker:
    """A worker in this process, with jobs `run`, `arun`, `fail` and `pause`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ran: list[Any] = []
        self.reported: list[tuple[BaseException, dict[str, Any]]] = []
        self.client = Client(url, sidekiq_version="7.3.2")
        self.launcher: Launcher | None = None
        self.after_fail: DecideOutcome | None = None
        self.admit_run: Admit | None = None

    async def _arun(self, number: int) -> None:
        self.ran.append(number)

    def _fail(self, number: int) -> None:
        raise RuntimeError(f"job {number} fails")

    def _pause(self) -> None:
        raise Interrupted

    def start(self, *, fetcher: Any = "reliable", max_job_bytes: int = 0) -> None:
        """Begin to work the queue `default`."""
        hooks, registry = Hooks(), Registry()
        hooks.on_error(lambda error, context: self.reported.append((error, context)))
        run = FunctionDefinition("run", {}, self.ran.append, self.ran.append)
        run.admit = self.admit_run
        registry.add(run)
        registry.add(FunctionDefinition("arun", {}, self._arun, self._arun, is_async=True))
        fail = FunctionDefinition("fail", {}, self._fail, self._fail)
        fail.decide_outcome = self.after_fail
        registry.add(fail)
        registry.add(FunctionDefinition("pause", {}, self._pause, self._pause))
        config = Config(
            redis=RedisSettings(self.url),
            sidekiq_version="7.3.2",
            capsules=(CapsuleConfig("default", 2, (QueueConfig("default"),)),),
            job_log=False,
            embedded=True,
            fetcher=fetcher,
            max_job_bytes=max_job_bytes,
            poll_interval_average_seconds=0.05,
        )
        self.launcher = Launcher(
            WorkerParts(config, registry=registry, hooks=hooks, server_middleware=Chain(), client=self.client)
        )
        self.launcher.start()

    def stop(self) -> None:
        """Stop it."""
        if self.launcher is not None:
            self.launcher.stop(timeout_seconds=1)
        self.client.close()


@pytest.fixture
def worker(redis_url: str) -> Iterator[Worker]:
    """A worker that is not started yet."""
    with ExitStack() as exits:
        one = Worker(redis_url)
        exits.callback(one.stop)
        yield one
