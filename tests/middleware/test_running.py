"""One run: the current job, and middleware of both kinds around jobs of both kinds."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.errors import ConfigError, JobDeclarationError
from sidekiq_py.middleware import mixed_chain
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.middleware.running import arun, run
from sidekiq_py.registry import JobDefinition

CallNext = Callable[[], Any]

PAYLOAD = {"class": "A", "args": [2], "jid": "j", "queue": "default"}

said: ContextVar[str] = ContextVar("said", default="nothing")


def plain(function: Callable[..., Any]) -> JobDefinition:
    """A plain job."""
    return sidekiq.job(name="A")(function).definition


def run_async(definition: JobDefinition, payload: dict[str, Any] | None = None) -> Any:
    """Run an `async def` job on a loop of its own."""
    return asyncio.run(arun(definition, dict(payload or PAYLOAD), "default", program.server_middleware))


def run_plain(definition: JobDefinition, payload: dict[str, Any] | None = None) -> Any:
    """Run a plain job."""
    return run(definition, dict(payload or PAYLOAD), "default", program.server_middleware)


@pytest.fixture
def trace() -> list[str]:
    """What happened, in order."""
    return []


def watch(trace: list[str], name: str) -> Callable[..., Any]:
    """A plain middleware."""

    def middleware(job: Any, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
        trace.append(f"{name} in")
        try:
            return call_next()
        finally:
            trace.append(f"{name} out")

    return middleware


def awatch(trace: list[str], name: str) -> Callable[..., Any]:
    """An `async def` middleware that really waits."""

    async def middleware(job: Any, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
        trace.append(f"{name} in")
        await asyncio.sleep(0.001)
        try:
            return await call_next()
        finally:
            trace.append(f"{name} out")

    return middleware


def test_the_current_job_is_known_while_it_runs_and_not_after() -> None:
    """With its queue, its attempt and its deadline."""
    seen: list[Any] = []
    definition = plain(lambda n: seen.append(sidekiq.current_job()))

    run(definition, {**PAYLOAD, "retry_count": 0}, "low", program.server_middleware, deadline=5.0)

    [current] = seen
    assert (current.jid, current.queue, current.attempt, current.deadline) == ("j", "low", 2, 5.0)
    assert sidekiq.current_job() is None


def test_the_first_run_is_attempt_one() -> None:
    """There is no count before the first failure."""
    definition = plain(lambda n: getattr(sidekiq.current_job(), "attempt", None))

    assert run_plain(definition) == 1


def test_jobs_side_by_side_on_a_loop_know_each_its_own() -> None:
    """Each task has a context of its own."""

    async def work(n: int) -> tuple[int, str]:
        await asyncio.sleep(0.001)
        current = sidekiq.current_job()
        assert current is not None
        return n, current.jid

    definition = plain(work)

    async def both() -> list[Any]:
        runs = [{**PAYLOAD, "args": [n], "jid": str(n)} for n in range(5)]
        return await asyncio.gather(*(arun(definition, one, "q", program.server_middleware) for one in runs))

    assert asyncio.run(both()) == [(n, str(n)) for n in range(5)]


def test_arguments_come_from_the_payload_as_middleware_left_it() -> None:
    """The dict is live."""
    sidekiq.server_middleware.add(lambda job, payload, queue, call_next: payload.update(args=[7]) or call_next())

    assert run_plain(plain(lambda n: n * 2)) == 14


@pytest.mark.parametrize("args", [None, []])
def test_missing_arguments_are_none(args: Any) -> None:
    """As in Ruby."""
    assert run_plain(plain(lambda: "ran"), {"class": "A", "args": args, "jid": "j"}) == "ran"


def test_what_the_outermost_middleware_returns_is_the_result() -> None:
    """As in Ruby's chain."""
    sidekiq.server_middleware.add(lambda job, payload, queue, call_next: call_next() + 1)

    assert run_plain(plain(lambda n: n)) == 3


MIXES = [
    [watch, watch],
    [awatch, awatch],
    [watch, awatch],
    [awatch, watch],
    [awatch, watch, awatch, watch],
]


@pytest.mark.parametrize("mix", MIXES)
def test_middleware_of_both_kinds_goes_around_a_plain_job(mix: list[Any], trace: list[str]) -> None:
    """Each one sees the real end of what is inside it."""
    for number, kind in enumerate(mix):
        sidekiq.server_middleware.add(kind(trace, str(number)))

    def work(n: int) -> int:
        trace.append("job")
        return n

    result = run_plain(plain(work))

    inward = [f"{number} in" for number in range(len(mix))]
    assert trace == [*inward, "job", *[f"{number} out" for number in reversed(range(len(mix)))]]
    assert result == 2


def test_a_plain_job_within_an_async_middleware_may_run_a_loop_of_its_own(trace: list[str]) -> None:
    """The middleware's loop is not the job's: code that a running loop forbids, such as Django's ORM, works."""
    program.server_middleware.add(awatch(trace, "outer"))
    program.server_middleware.add(awatch(trace, "inner"))

    def job(number: int) -> int:
        return asyncio.run(asyncio.sleep(0, number))

    result = run_plain(plain(job))

    assert (result, trace) == (2, ["outer in", "inner in", "inner out", "outer out"])


@pytest.mark.parametrize("mix", MIXES)
def test_middleware_of_both_kinds_goes_around_an_async_job(mix: list[Any], trace: list[str]) -> None:
    """Plain middleware waits in a thread until the job has really ended."""
    for number, kind in enumerate(mix):
        sidekiq.server_middleware.add(kind(trace, str(number)))

    async def work(n: int) -> int:
        await asyncio.sleep(0.001)
        trace.append("job")
        return n

    result = run_async(plain(work))

    inward = [f"{number} in" for number in range(len(mix))]
    assert trace == [*inward, "job", *[f"{number} out" for number in reversed(range(len(mix)))]]
    assert result == 2


@pytest.mark.parametrize("kind", [watch, awatch])
def test_an_error_of_the_job_passes_through_middleware(kind: Any, trace: list[str]) -> None:
    """Each may see it."""
    sidekiq.server_middleware.add(kind(trace, "0"))

    async def fail(n: int) -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        run_async(plain(fail))
    assert trace == ["0 in", "0 out"]


def test_a_plain_middleware_does_not_hold_up_the_loop() -> None:
    """A thousand jobs may be within theirs at once."""
    sidekiq.server_middleware.add(lambda job, payload, queue, call_next: call_next())

    jobs, within = 100, 0

    async def work(n: int) -> None:
        nonlocal within
        within += 1
        while within < jobs:
            await asyncio.sleep(0.001)

    definition = plain(work)

    async def many() -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(
                *(arun(definition, dict(PAYLOAD), "q", program.server_middleware) for _ in range(jobs))
            )

    asyncio.run(many())

    assert within == jobs


def test_context_variables_of_a_plain_middleware_hold_in_an_async_job() -> None:
    """As tenants, locales and log contexts are passed on."""

    def speak(job: Any, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
        said.set("hello")
        return call_next()

    sidekiq.server_middleware.add(speak)

    async def work(n: int) -> str:
        return said.get()

    assert run_async(plain(work)) == "hello"


def test_a_cancelled_job_ends_within_its_plain_middleware(trace: list[str]) -> None:
    """The middleware's `call_next()` raises, and cleans up before the run ends."""
    sidekiq.server_middleware.add(watch(trace, "0"))
    started = threading.Event()

    async def work(n: int) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            trace.append("job out")

    definition = plain(work)

    async def cancel() -> None:
        task = asyncio.create_task(arun(definition, dict(PAYLOAD), "q", program.server_middleware))
        await asyncio.to_thread(started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        trace.append("run over")

    asyncio.run(cancel())

    assert trace == ["0 in", "job out", "0 out", "run over"]


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain middleware", "no middleware"])
def test_what_a_job_makes_of_its_cancellation_counts(*, is_plain: bool) -> None:
    """It may return early or raise an error of its own, whether or not a plain middleware runs around it."""
    if is_plain:
        sidekiq.server_middleware.add(lambda job, payload, queue, call_next: call_next())
    started = threading.Event()

    async def work(n: int) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if n == 1:
                raise LookupError("half done") from None
        return "short"

    definition = plain(work)

    async def cancelled(n: int) -> Any:
        started.clear()
        task = asyncio.create_task(arun(definition, {**PAYLOAD, "args": [n]}, "q", program.server_middleware))
        await asyncio.to_thread(started.wait)
        task.cancel()
        return await task

    assert asyncio.run(cancelled(0)) == "short"
    with pytest.raises(LookupError, match="half done"):
        asyncio.run(cancelled(1))


def test_a_job_that_gets_no_thread_for_its_plain_middleware_does_not_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool queues the call before it finds that the system allows no more threads. The job has failed then."""
    entered: list[int] = []

    def enter(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        entered.append(payload["args"][0])
        return call_next()

    sidekiq.server_middleware.add(enter)
    monkeypatch.setattr(mixed_chain, "_threads", None)
    may_end = asyncio.Event()

    async def work(n: int) -> None:
        if n == 1:
            await may_end.wait()

    definition = plain(work)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run_two() -> None:
        first = asyncio.create_task(arun(definition, {**PAYLOAD, "args": [1]}, "q", program.server_middleware))
        while not entered:
            await asyncio.sleep(0.01)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="thread"):
                await arun(definition, {**PAYLOAD, "args": [2]}, "q", program.server_middleware)
        may_end.set()
        await first
        # It comes after whatever was queued.
        await arun(definition, {**PAYLOAD, "args": [3]}, "q", program.server_middleware)

    asyncio.run(run_two())

    assert entered == [1, 3]


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain middleware", "no middleware"])
def test_a_job_that_is_cancelled_again_hears_of_it_and_why(*, is_plain: bool) -> None:
    """A job that still answers its time limit when the worker stops would run on although it has been given back."""
    if is_plain:
        sidekiq.server_middleware.add(lambda job, payload, queue, call_next: call_next())
    started, reasons = threading.Event(), list[Any]()

    async def work(n: int) -> None:
        for _ in range(2):
            started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError as error:
                reasons.append(error.args)
        raise asyncio.CancelledError

    definition = plain(work)

    async def cancelled_twice() -> None:
        task = asyncio.create_task(arun(definition, dict(PAYLOAD), "q", program.server_middleware))
        for reason in ("limit", "stop"):
            await asyncio.to_thread(started.wait, 60)
            started.clear()
            task.cancel(reason)
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled_twice())

    assert reasons == [("limit",), ("stop",)]


def test_a_class_of_middleware_gives_an_instance_for_each_job() -> None:
    """Made with what it was registered with, as in Ruby."""
    made: list[Any] = []

    class Stamp:
        def __init__(self, word: str) -> None:
            made.append(self)
            self.word = word

        def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
            return f"{self.word} {call_next()}"

    chain: Chain[Any] = Chain()
    chain.add(Stamp, "so")

    results = [run(plain(lambda n: n), dict(PAYLOAD), "q", chain) for _ in range(2)]

    assert (results, len(made)) == (["so 2", "so 2"], 2)


def test_an_empty_chain_costs_a_plain_job_next_to_nothing() -> None:
    """A run is a few lines around the call; a hundred thousand of them a second must be possible."""
    definition = plain(lambda n: n)
    payload = dict(PAYLOAD)

    def seconds_of(action: Callable[[], Any]) -> float:
        # Of the processor, as others are at work beside this.
        started = time.thread_time()
        for _ in range(20_000):
            action()
        return (time.thread_time() - started) / 20_000

    function = definition.bind(payload, lambda: False)
    rounds = [
        (
            seconds_of(lambda: function(*payload["args"])),
            seconds_of(lambda: run(definition, payload, "q", program.server_middleware)),
        )
        for _ in range(5)
    ]

    assert min(ran / bare for bare, ran in rounds) < 25


def _hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for plain functions, around an `async def`."""

    def decorated(*args: Any) -> Any:
        return function(*args)

    return decorated


def test_a_coroutine_that_nothing_awaits_fails_the_job() -> None:
    """A plain decorator around an `async def`: the job would count as done, and had not run."""

    async def work(n: int) -> int:
        return n

    with pytest.raises(JobDeclarationError, match="A, or a middleware around it, returned a coroutine"):
        run_plain(plain(_hidden(work)))


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_middleware_whose_coroutine_nothing_awaits_fails_the_job(*, is_async: bool) -> None:
    """The job behind it has not run either."""
    ran: list[int] = []

    async def work(n: int) -> None:
        ran.append(n)

    sidekiq.server_middleware.add(_hidden(awatch([], "outer")))

    with pytest.raises(JobDeclarationError, match="a middleware around it"):
        run_async(plain(work)) if is_async else run_plain(plain(ran.append))

    assert ran == []


def _yields(job: Any, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
    yield


async def _ayields(job: Any, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
    yield


class _Yields:
    def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
        yield


@pytest.mark.parametrize(
    "middleware", [_yields, _ayields, _Yields, _Yields()], ids=["function", "async", "class", "object"]
)
def test_a_middleware_with_a_yield_is_refused(middleware: Any) -> None:
    """As Ruby's has one. Its jobs would count as done, and none of them had run."""
    with pytest.raises(ConfigError, match="has a yield"):
        sidekiq.server_middleware.add(middleware)


@pytest.mark.parametrize("function", [_yields, _ayields], ids=["plain", "async"])
def test_a_job_with_a_yield_is_refused(function: Any) -> None:
    """A run would only make a generator."""
    with pytest.raises(JobDeclarationError, match="A has a yield"):
        plain(function)
