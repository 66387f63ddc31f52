"""A wrong argument to a push is an error of the type checker."""

from pathlib import Path

import pytest

from tests.support.type_checking import lines_with_errors, mypy

pytest.importorskip("mypy")

PROGRAM = """\
from collections.abc import Callable
from typing import Any

import sidekiq_py as sidekiq
from sidekiq_py import testing

@sidekiq.job(queue="low")
def declared(name: str, count: int = 1) -> bool:
    return True

class HardWorker(sidekiq.Job):
    def perform(self, name: str) -> None: ...

class Import(sidekiq.IterableJob):
    def each_iteration(self, item: object, path: str) -> None: ...

async def awaited() -> None:
    await declared.aperform_async("bob", "x")  # wrong
    await declared.aperform_in(5, "bob")
    await HardWorker.aperform_async(5)  # wrong

@sidekiq.job(name="B", quueue="low")  # wrong
def misspelled() -> None: ...

@sidekiq.job(name="C", retry="often")  # wrong
def mistaken() -> None: ...

@sidekiq.job(name="D", queue="low", retry=5, tags=["x"], custom={"tenant": 5}, timeout=5)
def right() -> None: ...

class Keyword(sidekiq.Job, name="E", retires=5):  # wrong
    def perform(self) -> None: ...

sidekiq.ruby_job("F", quueue="low")  # wrong
sidekiq.ruby_job("F").set(wait=5, custom={"tenant": 5}).set(wiat=5)  # wrong
HardWorker.set(quueue="low")  # wrong

declared.perform_async("bob", count=5)
declared.perform_async(5)  # wrong
declared.perform_async()  # wrong
declared.perform_in(60, "bob", 5)
declared.perform_in(60, "bob", "x")  # wrong
declared.perform_in("60", "bob")  # wrong
declared.set(queue="x").perform_async("bob")
declared.set(queue="x").perform_async(5)  # wrong
declared.perform_inline("bob", nope=1)  # wrong
plain: bool = declared("bob")
text: str = declared("bob")  # wrong
HardWorker.perform_async("bob")
HardWorker.perform_async(5)  # wrong
HardWorker.perform_in(5, "bob")
HardWorker.perform_at(4e9, 5)  # wrong
Import.perform_async("path")
sidekiq.ruby_job("A").perform_async(1, "x", [])
jid: str | None = declared.perform_async("bob")

@sidekiq.server_middleware.add
class Timed:
    def __init__(self, unit: str = "s") -> None: ...
    def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        return call_next()

Timed("ms").__call__
sidekiq.server_middleware.insert_before(Timed, Timed, unit="ms")
sidekiq.client_middleware.prepend(Timed)
sidekiq.client_middleware.add(lambda job, payload, queue, call_next: call_next())
sidekiq.client_middleware.add(lambda job, payload: payload)  # wrong

@sidekiq.on("startup")
def started() -> None: ...

sidekiq.on("starup")(started)  # wrong
sidekiq.on("exit")(lambda process: None)  # wrong
sidekiq.on_error(lambda error: None)  # wrong

@sidekiq.on_death
def dead(payload: dict[str, Any], error: Exception) -> None: ...

@declared.retry_in
def delay(count: int, error: OSError, payload: dict[str, Any]) -> int | str | None:
    return "kill"

@HardWorker.retries_exhausted
def gave_up(payload: dict[str, Any], error: BaseException) -> None: ...

declared.retry_in(lambda count, error: 5)  # wrong
HardWorker.retry_in(lambda count, error, payload: [count])  # wrong
declared.retries_exhausted(lambda payload: None)  # wrong
testing.assert_enqueued(declared, arg=[5])  # wrong
testing.drain(declared, limt=5)  # wrong

sidekiq.perodic("@daily", declared)  # wrong
declared.delay("bob")  # wrong
declared.set(queue="low").perform_asnyc("bob")  # wrong
sidekiq.ruby_job("A").perform_asnyc(1)  # wrong
testing.inlien()  # wrong
from sidekiq_py.api import CronJob, CronJobs, JobStatus, Quueue  # wrong
enabled: list[CronJob] = CronJobs(colour="red")  # wrong
JobStatus.find(5)  # wrong
try:
    sidekiq.Batch.find("bid")
except (sidekiq.BatchGoneError, sidekiq.BatchDoneError) as error:
    print(error)
"""


def test_a_wrong_argument_is_an_error_where_it_stands(tmp_path: Path) -> None:
    """And a right one is none, under `--strict`."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    told = mypy(program)

    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert lines_with_errors(told, program) == wrong, told
