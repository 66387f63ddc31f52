"""Jobs with a key of Pro, Enterprise or a gem: refused with their queue, sent to `dead`, or run: never half of it."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, ExtensionPolicy, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.errors import ExtensionKeyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
from sidekiq_py.wire.process_info import ProcessInfo, parse_info
from tests.engine.fetch.in_flight_jobs import digest
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually

BATCHED = job_text(900, "run", queue="mixed", bid="b-7KyWqDV3Z0Pg")


class Worker:
    """A worker in this process."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ran: list[int] = []
        self.reported: list[tuple[BaseException, dict[str, Any]]] = []
        self.dead: list[tuple[dict[str, Any], BaseException]] = []
        # From the queue `mixed`, in order.
        self.given_back: list[str] = []
        self.client = Client(url, sidekiq_version="7.3.2")
        self.launcher: Launcher | None = None

    async def _arun(self, number: int) -> None:
        self.ran.append(number)

    def start(
        self,
        *queues: str,
        concurrency: int = 1,
        capsules: tuple[CapsuleConfig, ...] = (),
        policies: Mapping[str, ExtensionPolicy] | None = None,
        **settings: Any,
    ) -> Launcher:
        """Start it with one capsule of *queues*, or with *capsules*."""
        hooks, registry = Hooks(), Registry()
        hooks.on_error(lambda error, context: self.reported.append((error, context)))
        hooks.on_death(lambda payload, error: self.dead.append((payload, error)))
        registry.add(FunctionDefinition("run", {}, self.ran.append, self.ran.append))
        registry.add(FunctionDefinition("arun", {}, self._arun, self._arun, is_async=True))
        one = CapsuleConfig("default", concurrency, tuple(map(QueueConfig.parse, queues or ("default",))))
        config = Config(
            redis=RedisSettings(self.url),
            sidekiq_version="7.3.2",
            capsules=capsules or (one,),
            job_log=False,
            embedded=True,
            extension_keys=policies or {},
            **settings,
        )
        self.launcher = Launcher(
            WorkerParts(config, registry=registry, hooks=hooks, server_middleware=Chain(), client=self.client)
        )
        self._watch(self.launcher)
        self.launcher.start()
        return self.launcher

    def _watch(self, launcher: Launcher) -> None:
        for manager in launcher.parts.managers:
            manager.fetcher.requeue = self._note(manager.fetcher.requeue)  # type: ignore[method-assign]

    def _note(self, requeue: Callable[[Sequence[UnitOfWork]], None]) -> Callable[[Sequence[UnitOfWork]], None]:
        def noted(units: Sequence[UnitOfWork]) -> None:
            self.given_back += [unit.raw.decode() for unit in units if unit.queue == "mixed"]
            requeue(units)

        return noted

    @property
    def refusals(self) -> list[ExtensionKeyError]:
        """What was reported about such jobs."""
        return [error for error, _ in self.reported if isinstance(error, ExtensionKeyError)]

    def stop(self) -> None:
        """Stop it."""
        if self.launcher is not None:
            self.launcher.stop(timeout_seconds=1)
        self.client.close()


@pytest.fixture
def new_worker(redis_url: str) -> Iterator[Callable[[], Worker]]:
    """Workers that are not started yet."""
    with ExitStack() as exits:

        def make() -> Worker:
            worker = Worker(redis_url)
            exits.callback(worker.stop)
            return worker

        yield make


@pytest.fixture
def worker(new_worker: Callable[[], Worker]) -> Worker:
    """One of them."""
    return new_worker()


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines of level ERROR so far."""
    caplog.set_level(logging.INFO, logger="sidekiq")
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def texts_of(client: redis.Redis, queue: str) -> list[str]:
    """What stands in a queue; the next to run comes first."""
    return [raw.decode() for raw in reversed(client.lrange(f"queue:{queue}", 0, -1))]


def in_flight(client: redis.Redis) -> int:
    """How many jobs are."""
    return len(jobs_in_flight(client))


def info_of(client: redis.Redis, launcher: Launcher) -> ProcessInfo:
    """What the process says of itself."""
    found = parse_info(client.hget(launcher.identity, "info") or b"")
    assert found is not None
    return found


def test_a_job_of_a_batch_goes_back_and_its_queue_is_served_no_more(
    worker: Worker, redis_client: redis.Redis, errors: Callable[[], list[str]]
) -> None:
    """What stands before it is run, what stands behind it is left in its order, and other queues go on."""
    behind = [job_text(number, "run", queue="mixed") for number in (3, 4)]
    push_jobs(redis_client, [job_text(1, "run"), job_text(2, "run"), BATCHED, *behind], "mixed")
    push_jobs(redis_client, [job_text(5, "run")], "own")

    launcher = worker.start("mixed", "own")

    eventually(lambda: worker.ran == [1, 2, 5])
    eventually(lambda: len(worker.refusals) == 1)
    eventually(lambda: in_flight(redis_client) == 0)
    assert texts_of(redis_client, "mixed") == [BATCHED, *behind]
    [line] = errors()
    assert line.startswith(f"run (jid {900:024x}, queue mixed) has the key 'bid', a batch (Sidekiq Pro")
    assert "--extension-key bid=run" in line
    assert line.endswith("no longer serves mixed until it is restarted; it still serves own")
    [(error, context)] = [entry for entry in worker.reported if isinstance(entry[0], ExtensionKeyError)]
    assert (error.key, error.queue, error.job_class) == ("bid", "mixed", "run")  # type: ignore[attr-defined]
    assert (context["job"], context["jobstr"]) == (json.loads(BATCHED), BATCHED.encode())
    eventually(lambda: info_of(redis_client, launcher).queues == ("own",))
    eventually(lambda: redis_client.get("stat:processed") == b"3")
    assert redis_client.get("stat:failed") in (None, b"0")
    assert not redis_client.exists("retry", "dead", "sidekiq_py:suspects")

    push_jobs(redis_client, [job_text(6, "run")], "mixed")
    push_jobs(redis_client, [job_text(7, "run")], "own")
    eventually(lambda: worker.ran == [1, 2, 5, 7])
    assert len(texts_of(redis_client, "mixed")) == 4


def test_an_idle_worker_hands_the_job_back_once_and_does_not_meet_it_again(
    worker: Worker, redis_client: redis.Redis, errors: Callable[[], list[str]]
) -> None:
    """Its own blocking moves on that queue have run out before."""
    launcher = worker.start("mixed", "own", concurrency=4)
    fetcher = launcher.parts.managers[0].fetcher
    eventually(lambda: fetcher.awaits("mixed") and fetcher.awaits("own"))

    push_jobs(redis_client, [BATCHED], "mixed")

    eventually(lambda: worker.refusals)
    push_jobs(redis_client, [job_text(number, "run") for number in range(20)], "own")
    eventually(lambda: sorted(worker.ran) == list(range(20)))
    assert worker.given_back == [BATCHED]
    assert texts_of(redis_client, "mixed") == [BATCHED]
    assert not fetcher.awaits("mixed")
    assert (len(errors()), len(worker.refusals)) == (1, 1)


def test_many_such_jobs_are_one_refusal(
    worker: Worker, redis_client: redis.Redis, errors: Callable[[], list[str]]
) -> None:
    """All threads meet one at the same time."""
    batch = [job_text(number, "run", queue="mixed", bid="b") for number in range(30)]
    push_jobs(redis_client, batch, "mixed")

    worker.start("mixed", concurrency=8)

    eventually(lambda: worker.refusals)
    eventually(lambda: sorted(texts_of(redis_client, "mixed")) == sorted(batch))
    assert in_flight(redis_client) == 0
    assert worker.ran == []
    assert (len(errors()), len(worker.refusals)) == (1, 1)


def test_no_capsule_serves_the_queue_any_more(
    worker: Worker, redis_client: redis.Redis, errors: Callable[[], list[str]]
) -> None:
    """The one that did not fetch the job would meet it next."""
    weighted = (QueueConfig("mixed", 5), QueueConfig("b", 1))
    launcher = worker.start(
        capsules=(
            CapsuleConfig("default", 2, (QueueConfig("mixed"), QueueConfig("a"))),
            CapsuleConfig("other", 2, weighted),
            CapsuleConfig("third", 1, (QueueConfig("c"),)),
        )
    )
    fetchers = [manager.fetcher for manager in launcher.parts.managers]
    eventually(lambda: fetchers[0].awaits("mixed") and fetchers[1].awaits("mixed"))

    push_jobs(redis_client, [BATCHED], "mixed")

    eventually(lambda: worker.refusals)
    assert texts_of(redis_client, "mixed") == [BATCHED]
    for number, queue in enumerate("abc"):
        push_jobs(redis_client, [job_text(number, "run")], queue)
    eventually(lambda: sorted(worker.ran) == [0, 1, 2])
    eventually(lambda: info_of(redis_client, launcher).queues == ("a", "b", "c"))
    capsules = info_of(redis_client, launcher).capsules
    assert [dict(capsule.weights) for capsule in capsules] == [{"a": 0}, {"b": 1}, {"c": 0}]
    assert errors()[0].endswith("it still serves a, b, c")
    assert worker.given_back == [BATCHED]
    assert texts_of(redis_client, "mixed") == [BATCHED]


@pytest.mark.parametrize(
    "more",
    [
        {"encrypt": True},
        {"encrypted_args": [1], "args": [1, "$AES$:XPRfI4yJ0AxFgEO2"]},
        {"unique_token": "unique:9f2c", "unlocks_at": "1700000000.5"},
        {"overrated": 3},
        {"lock_digest": "uniquejobs:6e47d668", "lock": "until_executed"},
        {"unique_digest": "uniquejobs:d0ed14fb", "lock": "until_executed", "unique_args": [1]},
    ],
    ids=lambda more: next(iter(more)),
)
def test_each_of_the_keys_is_refused(worker: Worker, redis_client: redis.Redis, more: dict[str, Any]) -> None:
    """Unless it is said otherwise."""
    text = job_text(1, "run", queue="mixed", **more)
    push_jobs(redis_client, [text], "mixed")

    worker.start("mixed")

    eventually(lambda: [error.key for error in worker.refusals] == [next(iter(more))])
    assert (worker.ran, texts_of(redis_client, "mixed")) == ([], [text])


def test_keys_that_mean_nothing_or_belong_to_nobody_are_run(worker: Worker, redis_client: redis.Redis) -> None:
    """Null and false are nothing in Ruby either."""
    nothing = {"bid": None, "encrypt": False, "overrated": 0, "unique_for": 60, "lock": "until_executed"}
    push_jobs(redis_client, [job_text(1, "run", **nothing)])

    worker.start("default")

    eventually(lambda: worker.ran == [1])
    assert worker.refusals == []


def test_with_the_policy_run_it_is_a_job_like_any_other(worker: Worker, redis_client: redis.Redis) -> None:
    """And other keys are still refused."""
    push_jobs(redis_client, [BATCHED, job_text(1, "run", bid="b", overrated=2)], "mixed")

    worker.start("mixed", policies={"bid": "run", "overrated": "run"})

    eventually(lambda: worker.ran == [900, 1])
    eventually(lambda: redis_client.get("stat:processed") == b"2")
    encrypted = job_text(2, "run", bid="b", encrypt=True)
    push_jobs(redis_client, [encrypted], "mixed")
    eventually(lambda: [error.key for error in worker.refusals] == ["encrypt"])
    assert texts_of(redis_client, "mixed") == [encrypted]


def test_with_the_policy_bury_it_goes_to_dead_as_it_is(worker: Worker, redis_client: redis.Redis) -> None:
    """Death handlers hear of it, and the queue goes on."""
    push_jobs(redis_client, [BATCHED, job_text(1, "run")], "mixed")

    launcher = worker.start("mixed", policies={"bid": "bury"})

    eventually(lambda: worker.ran == [1] and worker.dead)
    assert redis_client.zrange("dead", 0, -1) == [BATCHED.encode()]
    [(payload, error)] = worker.dead
    assert payload == json.loads(BATCHED)
    assert isinstance(error, ExtensionKeyError)
    assert len(worker.refusals) == 1
    eventually(lambda: in_flight(redis_client) == 0)
    eventually(lambda: redis_client.mget("stat:processed", "stat:failed") == [b"2", b"1"])
    assert info_of(redis_client, launcher).queues == ("mixed",)


def test_of_several_keys_the_most_careful_policy_counts(worker: Worker, redis_client: redis.Redis) -> None:
    """A job that may go to `dead` for one key is still to be refused for the other."""
    both = job_text(1, "run", queue="mixed", bid="b", encrypt=True)
    push_jobs(redis_client, [job_text(2, "run", bid="b"), both], "mixed")

    worker.start("mixed", policies={"bid": "bury", "overrated": "run"})

    eventually(lambda: [error.key for error in worker.refusals] == ["bid", "encrypt"])
    assert texts_of(redis_client, "mixed") == [both]
    assert redis_client.zcard("dead") == 1


def test_the_basic_fetcher_refuses_as_well(
    worker: Worker, redis_client: redis.Redis, errors: Callable[[], list[str]]
) -> None:
    """Also where all of its threads wait at that queue."""
    worker.start("mixed", "own", concurrency=3, fetcher="basic")
    eventually(lambda: sum(client["cmd"] == "brpop" for client in redis_client.client_list()) == 3)

    push_jobs(redis_client, [BATCHED], "mixed")

    eventually(lambda: worker.refusals)
    push_jobs(redis_client, [job_text(number, "run") for number in range(5)], "own")
    eventually(lambda: sorted(worker.ran) == [0, 1, 2, 3, 4])
    eventually(lambda: texts_of(redis_client, "mixed") == [BATCHED])
    assert (len(errors()), len(worker.refusals)) == (1, 1)


def test_without_a_queue_left_the_process_lives_and_says_so(
    worker: Worker, new_worker: Callable[[], Worker], redis_client: redis.Redis, errors: Callable[[], list[str]]
) -> None:
    """It would be started again and again; whoever restarts it lets it try once more."""
    launcher = worker.start("mixed", concurrency=2)
    push_jobs(redis_client, [BATCHED], "mixed")
    eventually(lambda: worker.refusals)
    assert errors()[0].endswith("it has no queue left and runs nothing")
    eventually(lambda: info_of(redis_client, launcher).queues == ())
    assert not launcher.is_quiet

    assert launcher.stop(timeout_seconds=1) == []
    again = new_worker()
    again.start("mixed", concurrency=2, policies={"bid": "run"})

    eventually(lambda: again.ran == [900])


def test_an_async_job_is_refused_before_it_reaches_the_loop(worker: Worker, redis_client: redis.Redis) -> None:
    """And so is one whose class nobody has declared: it does not fail."""
    texts = [job_text(1, "arun", queue="mixed", bid="b"), job_text(2, "Absent", queue="mixed", bid="b")]
    push_jobs(redis_client, texts, "mixed")
    push_jobs(redis_client, texts[::-1], "other")

    worker.start("mixed", "other")

    eventually(lambda: len(worker.refusals) == 2)
    assert (texts_of(redis_client, "mixed"), texts_of(redis_client, "other")) == (texts, texts[::-1])
    assert (worker.ran, redis_client.zcard("retry")) == ([], 0)


def test_a_suspect_bears_no_new_death_and_makes_way_for_another(worker: Worker, redis_client: redis.Redis) -> None:
    """It was marked as started when it was fetched, and did not start."""
    other = job_text(1, "run")
    push_jobs(redis_client, [BATCHED], "mixed")
    push_jobs(redis_client, [other], "own")
    for text in (BATCHED, other):
        redis_client.hset("sidekiq_py:suspects", digest(text.encode()), f"1:{time.time():.3f}")

    worker.start("mixed", "own")

    eventually(lambda: worker.ran == [1])
    eventually(lambda: worker.refusals)
    eventually(lambda: in_flight(redis_client) == 0)
    assert texts_of(redis_client, "mixed") == [BATCHED]
    [record] = redis_client.hvals("sidekiq_py:suspects")
    assert record.startswith(b"1:")


def test_two_workers_hand_the_job_to_neither(
    worker: Worker, new_worker: Callable[[], Worker], redis_client: redis.Redis
) -> None:
    """Each refuses it once; then it waits for Ruby and goes round no more."""
    second = new_worker()
    worker.start("mixed", "own", concurrency=2)
    second.start("mixed", "own", concurrency=2)

    push_jobs(redis_client, [BATCHED], "mixed")

    eventually(lambda: len(worker.refusals) == len(second.refusals) == 1)
    push_jobs(redis_client, [job_text(number, "run") for number in range(50)], "own")
    eventually(lambda: sorted(worker.ran + second.ran) == list(range(50)))
    assert texts_of(redis_client, "mixed") == [BATCHED]
    assert (worker.given_back, second.given_back) == ([BATCHED], [BATCHED])
    [left] = redis_client.brpop("queue:mixed", 1)[1:]
    assert left == BATCHED.encode()
