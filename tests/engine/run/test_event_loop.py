"""`async def` jobs and what they share a process with."""

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
import redis

from sidekiq_py import current_job
from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.run import event_loop
from sidekiq_py.engine.run.thread_dump import thread_dump
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
from sidekiq_py.wire.process_info import parse_info
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually

Start = Callable[..., Launcher]


class Program:
    """Jobs that note their numbers, and whatever a test declares beside them."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.reported: list[str] = []
        self.registry = Registry()
        self.hooks = Hooks()
        self.chain: Chain[ServerMiddleware] = Chain()
        self.release = threading.Event()
        self.hooks.on_error(lambda error, context: self.reported.append(type(error).__name__))
        self.declare("note", self.note)
        self.declare("anote", self.anote, is_async=True)
        self.declare("await_release", self.await_release, is_async=True)

    def declare(self, name: str, function: Callable[..., Any], *, is_async: bool = False) -> None:
        """Declare a job."""
        self.registry.add(FunctionDefinition(name, {}, function, function, is_async=is_async))

    def note(self, number: int) -> None:
        """In a thread."""
        self.ran.append(number)

    async def anote(self, number: int) -> None:
        """On the loop."""
        self.ran.append(number)

    async def await_release(self) -> None:
        """Hold a slot of the loop."""
        while not self.release.is_set():
            await asyncio.sleep(0.01)


@pytest.fixture
def program() -> Program:
    """A program of its own."""
    return Program()


@pytest.fixture
def start(program: Program, redis_url: str) -> Iterator[Start]:
    """Start a worker in this process; it is stopped at the end."""
    with ExitStack() as stack:

        def run(*capsules: CapsuleConfig, async_concurrency: int = 2, resize_first: int | None = None) -> Launcher:
            client = Client(redis_url, sidekiq_version="6.4.1")
            config = Config(
                redis=RedisSettings(redis_url),
                sidekiq_version="6.4.1",
                capsules=capsules or (CapsuleConfig(concurrency=2),),
                async_concurrency=async_concurrency,
                job_log=False,
                embedded=True,
            )
            launcher = Launcher(
                WorkerParts(
                    config,
                    registry=program.registry,
                    hooks=program.hooks,
                    server_middleware=program.chain,
                    client=client,
                )
            )
            if resize_first is not None:
                launcher.reconfiguration.resize_loop(resize_first)
            launcher.start()
            stack.callback(client.close)
            stack.callback(launcher.stop, timeout_seconds=0.5)
            stack.callback(program.release.set)
            return launcher

        yield run


@contextmanager
def no_more_threads() -> Iterator[None]:
    """In here the system creates no thread, because no process has so much memory for a stack."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


def push(client: redis.Redis, job: str, *args: int, queue: str = "default") -> None:
    """As Ruby does."""
    numbers = ",".join(map(str, args))
    client.sadd("queues", queue)
    client.lpush(
        f"queue:{queue}", f'{{"class":"{job}","args":[{numbers}],"queue":"{queue}","retry":true,"jid":"{args}"}}'
    )


def is_busy(launcher: Launcher, jobs: int) -> bool:
    """So many jobs run."""
    return launcher.state.busy == jobs


def test_a_full_loop_keeps_no_other_capsule_waiting(program: Program, start: Start, redis_client: redis.Redis) -> None:
    """The threads of a capsule that has no async jobs go on."""
    launcher = start(
        CapsuleConfig("loop", 2, (QueueConfig("loop"),)),
        CapsuleConfig("threads", 2, (QueueConfig("threads"),)),
    )
    for _ in range(4):
        push(redis_client, "await_release", queue="loop")
    eventually(lambda: is_busy(launcher, 2))

    for number in range(20):
        push(redis_client, "note", number, queue="threads")

    eventually(lambda: sorted(program.ran) == list(range(20)))
    assert redis_client.llen("queue:loop") == 2


def test_a_full_loop_keeps_no_other_queue_waiting(program: Program, start: Start, redis_client: redis.Redis) -> None:
    """Even one that comes after it in strict order."""
    launcher = start(CapsuleConfig("default", 2, (QueueConfig("loop"), QueueConfig("threads"))))
    for _ in range(4):
        push(redis_client, "await_release", queue="loop")
    eventually(lambda: is_busy(launcher, 2))

    for number in range(20):
        push(redis_client, "note", number, queue="threads")

    eventually(lambda: sorted(program.ran) == list(range(20)))


def test_busy_threads_keep_no_async_job_of_another_capsule_waiting(
    program: Program, start: Start, redis_client: redis.Redis
) -> None:
    """Those of its own capsule would, because its threads fetch for the loop, too."""
    program.declare("hold_the_thread", lambda: program.release.wait(60))
    launcher = start(
        CapsuleConfig("threads", 2, (QueueConfig("threads"),)),
        CapsuleConfig("loop", 1, (QueueConfig("loop"),)),
    )
    for _ in range(4):
        push(redis_client, "hold_the_thread", queue="threads")
    eventually(lambda: is_busy(launcher, 2))

    for number in range(20):
        push(redis_client, "anote", number, queue="loop")

    eventually(lambda: sorted(program.ran) == list(range(20)))


def test_what_a_full_loop_left_alone_runs_when_there_is_room(
    program: Program, start: Start, redis_client: redis.Redis
) -> None:
    """And so does all that comes later."""
    launcher = start()
    for _ in range(4):
        push(redis_client, "await_release")
    eventually(lambda: is_busy(launcher, 2))
    for number in range(10):
        push(redis_client, "anote", number)

    program.release.set()

    eventually(lambda: sorted(program.ran) == list(range(10)))
    eventually(lambda: redis_client.get("stat:processed") == b"14")


@pytest.mark.parametrize("ending", ["a task that exits", "a loop that is stopped"])
def test_no_job_can_end_the_loop_for_the_others(
    program: Program, start: Start, redis_client: redis.Redis, ending: str
) -> None:
    """asyncio lets a SystemExit of any task out of the loop."""

    async def leave() -> None:
        raise SystemExit(3)

    async def end() -> None:
        loop = asyncio.get_running_loop()
        if ending == "a task that exits":
            await asyncio.gather(loop.create_task(leave()), return_exceptions=True)
        else:
            loop.stop()

    program.declare("end", end, is_async=True)
    start()
    push(redis_client, "end")
    for number in range(5):
        push(redis_client, "anote", number)

    eventually(lambda: sorted(program.ran) == list(range(5)))
    eventually(lambda: redis_client.get("stat:processed") == b"6")


def test_an_async_job_that_exits_behind_a_plain_middleware_fails_alone(
    program: Program, start: Start, redis_client: redis.Redis
) -> None:
    """The middleware sees the SystemExit raised by its call_next."""
    seen: list[str] = []

    def watch(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        try:
            return call_next()
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    async def leave() -> None:
        raise SystemExit(3)

    program.chain.add(watch)
    program.declare("leave", leave, is_async=True)
    start()
    push(redis_client, "leave")
    push(redis_client, "anote", 1)

    eventually(lambda: program.ran == [1])
    eventually(lambda: redis_client.zcard("retry") == 1)
    assert seen == ["SystemExit"]


def test_a_slot_comes_free_whatever_fails_beside_the_job(
    program: Program, start: Start, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails between the engine and the job is a failure of the job, and not the end of its slot."""
    launcher = start(async_concurrency=1)
    context = launcher.parts.surroundings.context
    lines: list[float] = []

    def refuse_once(payload: Any) -> None:
        lines.append(time.monotonic())
        if len(lines) == 1:
            raise RuntimeError("something failed")

    monkeypatch.setattr(context, "enter", refuse_once)
    push(redis_client, "anote", 1)
    eventually(lambda: redis_client.zcard("retry") == 1)
    push(redis_client, "anote", 2)

    eventually(lambda: program.ran == [2])
    eventually(lambda: redis_client.get("stat:processed") == b"2")


def test_a_job_that_cannot_be_started_on_the_loop_is_tried_once_a_second(
    program: Program, start: Start, redis_client: redis.Redis
) -> None:
    """Not as fast as it can be fetched, with a traceback each time."""
    tries: list[float] = []

    def make_task(loop: asyncio.AbstractEventLoop, steps: Any, **options: Any) -> asyncio.Task[Any]:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise RuntimeError("no task")
        return asyncio.Task(steps, loop=loop, **options)

    async def spoil(number: int) -> None:
        asyncio.get_running_loop().set_task_factory(make_task)
        program.ran.append(number)

    program.declare("spoil", spoil, is_async=True)
    start()
    push(redis_client, "spoil", 1)
    eventually(lambda: program.ran == [1])

    push(redis_client, "anote", 2)

    eventually(lambda: program.ran == [1, 2])
    assert len(tries) == 3
    assert all(after - before > 0.9 for before, after in itertools.pairwise(tries))


@pytest.mark.parametrize("kind", ["fails", "decides its outcome", "runs at most once"])
def test_no_async_job_waits_for_the_error_handlers_of_others(
    program: Program, start: Start, redis_client: redis.Redis, kind: str
) -> None:
    """A kill would run a job again that has ended but is still in flight."""

    async def fail(number: int) -> None:
        raise ValueError("failed")

    program.declare("fail", fail, is_async=True)
    definition = program.registry.find("anote")
    assert definition is not None
    definition.decide_outcome = (lambda attempt: None) if kind == "decides its outcome" else None
    definition.is_acknowledged_early = kind == "runs at most once"
    program.hooks.on_error(lambda error, context: program.release.wait())
    start(async_concurrency=20)
    for number in range(4):
        push(redis_client, "fail", number)
    eventually(lambda: len(program.reported) == 4)

    push(redis_client, "fail" if kind == "fails" else "anote", 4)

    eventually(lambda: redis_client.zcard("retry") == 5 if kind == "fails" else program.ran == [4])
    eventually(lambda: not jobs_in_flight(redis_client))
    assert not program.release.is_set()


def test_an_async_job_that_a_stop_cancels_before_its_start_does_not_wait_for_error_handlers(
    program: Program, start: Start, redis_client: redis.Redis
) -> None:
    """It goes back at once, to be run elsewhere."""
    blocks, may_go_on = threading.Event(), threading.Event()

    async def fail(number: int) -> None:
        raise ValueError("failed")

    async def block() -> None:
        blocks.set()
        may_go_on.wait()

    program.declare("fail", fail, is_async=True)
    program.declare("block", block, is_async=True)
    program.hooks.on_error(lambda error, context: program.release.wait())
    launcher = start(async_concurrency=20)
    loop = launcher.parts.loop
    assert loop is not None
    for number in range(4):
        push(redis_client, "fail", number)
    eventually(lambda: len(program.reported) == 4)
    push(redis_client, "block")
    eventually(blocks.is_set)
    push(redis_client, "anote", 5)
    eventually(lambda: loop.running == 6)

    launcher.quiet()
    loop.shut_down_jobs()
    may_go_on.set()

    eventually(lambda: redis_client.llen("queue:default") == 1)
    assert not program.release.is_set()
    assert program.ran == []


@pytest.mark.parametrize("is_acknowledged_early", [False, True])
def test_the_first_async_job_to_fail_ends_once_while_the_system_allows_no_more_threads(
    program: Program, start: Start, redis_client: redis.Redis, is_acknowledged_early: bool
) -> None:
    """It has a thread to end in from the start."""

    async def fail() -> None:
        program.ran.append(0)
        raise ValueError("failed")

    program.declare("fail", fail, is_async=True)
    definition = program.registry.find("fail")
    assert definition is not None
    definition.is_acknowledged_early = is_acknowledged_early
    start()

    with no_more_threads():
        push(redis_client, "fail")
        eventually(lambda: program.reported and redis_client.zcard("retry") and not jobs_in_flight(redis_client))

    assert (program.reported, redis_client.zcard("retry"), program.ran) == (["ValueError"], 1, [0])


@pytest.mark.parametrize("is_acknowledged_early", [False, True])
def test_an_async_job_ends_once_while_the_system_allows_no_more_threads(
    program: Program,
    start: Start,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    is_acknowledged_early: bool,
) -> None:
    """Its end then waits for the error handlers of others. A container may limit the number of threads."""

    may_end = threading.Event()
    failed: list[int] = []

    async def fail(number: int) -> None:
        program.ran.append(number)
        while number >= 4 and not may_end.is_set():
            await asyncio.sleep(0.01)
        failed.append(number)
        raise ValueError("failed")

    program.declare("fail", fail, is_async=True)
    definition = program.registry.find("fail")
    assert definition is not None
    definition.is_acknowledged_early = is_acknowledged_early
    program.hooks.on_error(lambda error, context: program.release.wait())
    start(async_concurrency=20)
    for number in range(4):
        push(redis_client, "fail", number)
    eventually(lambda: len(program.reported) == 4)
    monkeypatch.setattr(event_loop, "_MOST_WAITING_SECONDS", 0.0)
    for number in range(4, 8):
        push(redis_client, "fail", number)
    eventually(lambda: len(program.ran) == 8)

    with no_more_threads():
        may_end.set()
        eventually(lambda: len(failed) == 8)
        # Once this job runs, the loop has asked for threads for the others.
        push(redis_client, "anote", 8)
        eventually(lambda: 8 in program.ran)
    program.release.set()

    eventually(lambda: len(program.reported) == 8 and not jobs_in_flight(redis_client))
    assert (program.reported, redis_client.zcard("retry"), len(program.ran)) == (["ValueError"] * 8, 8, 9)


def test_a_dump_shows_where_a_job_on_the_loop_waits(start: Start, redis_client: redis.Redis) -> None:
    """It is how an operator finds out why a job hangs, and it has no thread whose stack would show it."""
    launcher = start()
    push(redis_client, "await_release")

    def innermost_calls() -> list[str]:
        assert launcher.parts.loop is not None
        dump = thread_dump(launcher.state, launcher.parts.loop.tasks())
        _, _, task = dump.partition("\nTask: await_release <Task")
        return [line.partition(" in ")[2] for line in task.splitlines()[1:3]]

    eventually(lambda: innermost_calls() == ["sleep: return await future", "await_release: await asyncio.sleep(0.01)"])


def test_the_heartbeat_counts_coroutines_among_the_jobs_that_may_run_at_once(
    start: Start, redis_client: redis.Redis
) -> None:
    """Ruby's Web UI divides the jobs that run by that number; it follows a loop that grows."""
    launcher = start(CapsuleConfig(concurrency=2), async_concurrency=4)
    for _ in range(4):
        push(redis_client, "await_release")
    eventually(lambda: is_busy(launcher, 4))

    eventually(lambda: concurrency_of(redis_client, launcher) == 2 + 4)
    launcher.reconfiguration.resize_loop(9)

    eventually(lambda: concurrency_of(redis_client, launcher) == 2 + 9)


def test_a_size_that_is_set_before_the_loop_starts_is_the_size_of_the_loop(
    start: Start, redis_client: redis.Redis
) -> None:
    """Hooks of the program run earlier, for as long as they like, and Celery's `pool_grow` may arrive meanwhile."""
    launcher = start(CapsuleConfig(concurrency=1), async_concurrency=1, resize_first=3)
    for _ in range(4):
        push(redis_client, "await_release")

    assert launcher.parts.loop is not None
    eventually(lambda: launcher.parts.loop.running == 3)


def concurrency_of(client: redis.Redis, launcher: Launcher) -> int | None:
    """What the process says of itself."""
    info = parse_info(client.hget(launcher.identity, "info") or b"")
    return None if info is None else info.concurrency


def test_a_job_that_cancels_all_tasks_of_the_loop_does_not_keep_another_from_going_back(
    program: Program, start: Start, redis_client: redis.Redis
) -> None:
    """As `asyncio.run` does at its end, and programs copy that."""
    blocks, may_go_on = threading.Event(), threading.Event()

    async def block() -> None:
        blocks.set()
        may_go_on.wait()
        try:
            await asyncio.sleep(60)
        finally:
            for _ in range(5):
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                await asyncio.sleep(0)

    program.declare("block", block, is_async=True)
    launcher = start(async_concurrency=20)
    loop = launcher.parts.loop
    assert loop is not None
    push(redis_client, "block")
    eventually(blocks.is_set)
    for number in range(3):
        push(redis_client, "anote", number)
    eventually(lambda: loop.running == 4)

    launcher.quiet()
    loop.shut_down_jobs()
    may_go_on.set()

    eventually(lambda: redis_client.llen("queue:default") == 4 and loop.running == 0)
    assert program.ran == []


def test_successes_on_the_loop_are_counted_for_the_metrics(
    program: Program, start: Start, redis_client: redis.Redis
) -> None:
    """By class, with those of threads."""

    async def aquick() -> None: ...

    program.declare("aquick", aquick, is_async=True)
    launcher = start()

    push(redis_client, "aquick")

    eventually(lambda: launcher.parts.metrics.attempts() == {"aquick": 1})


@pytest.mark.parametrize("raises", [False, True], ids=["success", "failure"])
@pytest.mark.parametrize("name", ["empty", "aempty"], ids=["thread", "loop"])
def test_a_job_that_empties_its_payload_ends_as_any_other(
    program: Program, start: Start, redis_client: redis.Redis, name: str, *, raises: bool
) -> None:
    """On the loop, too, it fails only by an error of its own."""

    def empty() -> None:
        job = current_job()
        assert job is not None
        job.payload.clear()
        program.ran.append(1)
        if raises:
            raise ZeroDivisionError("its own")

    async def aempty() -> None:
        empty()

    program.declare("empty", empty)
    program.declare("aempty", aempty, is_async=True)
    start()

    push(redis_client, name)
    eventually(lambda: program.ran == [1] and not jobs_in_flight(redis_client))

    failed = [json.loads(raw)["error_message"] for raw in redis_client.zrange("retry", 0, -1)]
    assert failed == (["its own"] if raises else [])
    assert [error for error in program.reported if error != "ZeroDivisionError"] == []


def test_context_variables_of_one_job_do_not_reach_the_next(
    program: Program, start: Start, redis_client: redis.Redis
) -> None:
    """Whether it runs in the same thread, or on the loop. Each sees those of its thread."""
    tenant: ContextVar[int] = ContextVar("tenant", default=0)
    seen: list[int] = []

    def note(number: int) -> None:
        seen.append(tenant.get())
        tenant.set(number)

    async def anote(number: int) -> None:
        note(number)

    program.declare("tenant", note)
    program.declare("atenant", anote, is_async=True)
    for job, number in (("tenant", 1), ("tenant", 2), ("atenant", 3), ("atenant", 4), ("tenant", 5)):
        push(redis_client, job, number)

    start(CapsuleConfig(concurrency=1))

    eventually(lambda: len(seen) == 5)
    assert seen == [0, 0, 0, 0, 0]
