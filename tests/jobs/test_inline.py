"""A job run where it is called."""

import asyncio
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.errors import ArgumentTypeError, JobDeclarationError


@pytest.fixture(autouse=True)
def _no_redis() -> None:
    """Nothing listens there."""
    sidekiq.configure(redis_url="redis://127.0.0.1:1/0")


def test_the_job_gets_its_arguments_by_way_of_bytes() -> None:
    """What a worker would get, not the same objects."""
    got: list[Any] = []

    @sidekiq.job(name="A")
    def job(value: Any) -> None:
        got.append(value)

    value = {"a": [1, 2.5, None]}

    assert job.perform_inline(value) is True
    assert got == [value]
    assert got[0] is not value


def test_an_argument_that_no_worker_would_get_is_refused() -> None:
    """The strict check is that of a push."""
    job = sidekiq.job(name="A")(lambda value: value)

    with pytest.raises(ArgumentTypeError, match=r"args\[0\]"):
        job.perform_inline((1, 2))


@pytest.mark.parametrize("mode", ["raise", "off"])
def test_without_the_arguments_that_a_middleware_removed_the_job_runs_as_in_a_worker(mode: Any) -> None:
    """Also if arguments are not checked."""
    ran: list[Any] = []
    sidekiq.configure(strict_args=mode)
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: payload.pop("args") and call_next())
    job = sidekiq.job(name="A")(lambda value="none": ran.append(value))

    job.perform_inline(1)

    assert ran == ["none"]


def test_the_current_job_is_known() -> None:
    """With the options of `set`."""
    seen: list[Any] = []
    job = sidekiq.job(name="A")(lambda: seen.append(sidekiq.current_job()))

    job.set(queue="low", tags=["x"]).perform_inline()

    assert (seen[0].queue, seen[0].payload["tags"]) == ("low", ["x"])


def test_both_chains_run() -> None:
    """The client's first, and its changes are what the job gets."""
    trace: list[str] = []

    def client_side(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        trace.append("client")
        payload["args"] = [5]
        return call_next()

    def server_side(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> None:
        trace.append("server")
        call_next()

    sidekiq.client_middleware.add(client_side)
    sidekiq.server_middleware.add(server_side)
    job = sidekiq.job(name="A")(lambda n: trace.append(f"job {n}"))

    assert job.perform_inline(1) is True
    assert trace == ["client", "server", "job 5"]


@pytest.mark.parametrize("chain", [sidekiq.client_middleware, sidekiq.server_middleware])
def test_a_middleware_that_stops_it_is_told_by_none(chain: Any) -> None:
    """On either side."""
    ran: list[int] = []
    chain.add(lambda job, payload, queue, call_next: None)

    assert sidekiq.job(name="A")(lambda: ran.append(1)).perform_inline() is None
    assert ran == []


def test_errors_pass() -> None:
    """There is no retry behind it."""

    @sidekiq.job(name="A")
    def job() -> None:
        raise LookupError("boom")

    with pytest.raises(LookupError, match="boom"):
        job.perform_inline()
    assert sidekiq.current_job() is None


def test_an_async_job_runs_on_a_loop_of_its_own() -> None:
    """Where none is running."""
    ran: list[int] = []

    @sidekiq.job(name="A")
    async def job(n: int) -> None:
        await asyncio.sleep(0)
        ran.append(n)

    assert job.perform_inline(5) is True
    assert ran == [5]


def test_within_a_loop_it_is_awaited() -> None:
    """To block the loop would be a mistake; the message says what to write."""
    ran: list[int] = []

    @sidekiq.job(name="A")
    async def job(n: int) -> None:
        ran.append(n)

    async def main() -> bool | None:
        with pytest.raises(JobDeclarationError, match="aperform_inline"):
            job.perform_inline(1)
        return await job.aperform_inline(2)

    assert asyncio.run(main()) is True
    assert ran == [2]


def test_a_plain_job_is_awaited_in_a_thread() -> None:
    """The loop goes on meanwhile; context variables hold."""
    ran: list[str] = []
    job = sidekiq.job(name="A")(lambda: ran.append(str(sidekiq.current_job())))

    assert asyncio.run(job.aperform_inline()) is True
    assert len(ran) == 1


def test_an_async_middleware_around_a_plain_job_within_a_loop() -> None:
    """It is driven in the job's thread, which is that of the loop."""

    async def middleware(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        await asyncio.sleep(0.001)
        return await call_next()

    sidekiq.server_middleware.add(middleware)
    job = sidekiq.job(name="A")(lambda: None)

    async def main() -> bool | None:
        verdict = job.perform_inline()
        await asyncio.sleep(0)
        return verdict

    assert asyncio.run(main()) is True


def test_a_job_that_ruby_implements_cannot_run_here() -> None:
    """It can only be enqueued."""
    with pytest.raises(JobDeclarationError, match="implemented elsewhere"):
        sidekiq.ruby_job("A").perform_inline()
