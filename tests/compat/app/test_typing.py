"""What a type checker knows of tasks: wrong calls are errors, right ones are none, and results have types."""

import re
from pathlib import Path

import pytest

from tests.support.type_checking import mypy

pytest.importorskip("mypy")

# A line that ends with `# wrong` is to be an error, and no other is; `# -> X` is what `reveal_type` is to say.
PROGRAM = """\
from collections.abc import Sequence
from typing import Any, ParamSpec, TypeVar
from sidekiq_celery import Celery, Signature, Task, chain, chord, group, shared_task, signature
from sidekiq_celery.contrib.abortable import AbortableAsyncResult, AbortableTask
from sidekiq_celery.contrib.django.task import DjangoTask
from sidekiq_celery.result import AsyncResult
from sidekiq_celery.signals import task_prerun

app = Celery("typed")
reveal_type(app.conf.broker_url)  # -> str | None
app.conf.broker_url = "redis://localhost"
app.conf.timezone = "Europe/Berlin"
by_id = AsyncResult("id", app=app)
app.control.revok("id")  # wrong
app.control.inspect(timeout=2).activ()  # wrong

@task_prerun.connect(sender="typed.add")
def before(task_id: str | None = None, **more: Any) -> None: ...

@task_prerun.connect
def before_any(task_id: str, **more: Any) -> None: ...

@task_prerun.connect("typed.add")
def before_add(task_id: str, **more: Any) -> None: ...

reveal_type(before)  # -> def (task_id: str | None =, **more: Any)
task_prerun.connect(before, sedner=app)  # wrong
P = ParamSpec("P")
R = TypeVar("R")

# ---- what is made a task

class Own(Task):
    store: dict[str, int] = {}

    def apply_async(self, *args: Any, **options: Any) -> Any:
        return super().apply_async(*args, **options)

class OwnGeneric(Task[P, R]):
    def apply_async(self, *args: Any, **options: Any) -> AsyncResult[R]:
        return super().apply_async(*args, **options)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        return super().delay(*args, **kwargs)

@app.task
def add(x: int, y: int) -> int:
    return x + y

@app.task()
def text(x: object, *, upper: bool = False) -> str:
    return str(x)

@app.task(name="named", max_retries=3)
def named(x: int) -> float:
    return x

@app.task(bind=True, max_retries=3)
def bound(self: Task, x: int, *, flag: bool = False) -> str:
    return str(self.request.id)

@shared_task(base=AbortableTask, bind=True)
def abortable(self: AbortableTask, rows: int) -> bool:
    return self.is_aborted()

@shared_task(base=DjangoTask, bind=True)
def after_the_commit(self: DjangoTask, row: int) -> None:
    self.delay_on_commit(row + 1)

def stop(handle: AbortableAsyncResult) -> None:
    handle.abort()

@app.task(base=Own)
def based(x: int) -> int:
    return int(based.store["x"]) + x

@app.task(base=Own, bind=True)
def bound_and_based(self: Own, x: int) -> int:
    return self.store["x"] + x

@app.task(pydantic=True)
def validated(x: list[int]) -> list[int]:
    return x

@shared_task
def shared(a: str) -> None: ...

@shared_task(bind=True, ignore_result=True)
def shared_bound(self: Task, a: str) -> None: ...

@shared_task(base=OwnGeneric)
def shared_based(a: str) -> None: ...

@app.task
async def fetch(url: str) -> bytes:
    return b""

@app.task(bind=True, queue="web")
async def bound_fetch(self: Task, url: str) -> bytes:
    return b""

@shared_task(base=Own)
async def shared_fetch(url: str) -> bytes:
    return b""

@app.task
def untyped(x, y=1):  # type: ignore[no-untyped-def]
    return x

@app.task
def returns_anything(x: int) -> Any:
    return x

by_call = app.task(len, name="length")

# ---- calls

reveal_type(add(1, 2))  # -> int
reveal_type(add.delay(1, 2))  # -> AsyncResult[int]
reveal_type(add.delay(1, 2).get(timeout=3))  # -> int
reveal_type(add.apply_async((1, 2), countdown=3))  # -> AsyncResult[int]
reveal_type(add.apply((1, 2)))  # -> EagerResult[int]
reveal_type(add.AsyncResult("id"))  # -> AsyncResult[int]
anything: AsyncResult[object] = add.delay(1, 2)
number: AsyncResult[float] = add.apply((1, 2))
text_of_number: AsyncResult[str] = add.delay(1, 2)  # wrong
add.delay(1, y=2)
add.delay("1", 2)  # wrong
add.delay(1)  # wrong
add.delay(1, 2, 3)  # wrong
add.delay(1, z=2)  # wrong
add("1", 2)  # wrong
add.delay(1, 2).get().foo  # wrong
add.dealy(1, 2)  # wrong
add.apply_async(("1", 2))
add.apply_async([1], {"y": 2}, queue="low")
add.apply_async(1)  # wrong
text.delay(1, upper=True)
text.delay(1, upper="x")  # wrong
named.delay("x")  # wrong
bound.delay(1, flag=True)
bound.delay("1")  # wrong
bound.delay(1, flag="x")  # wrong
reveal_type(bound.delay(1))  # -> AsyncResult[str]
bound(1)
based.delay("1")  # wrong
based.store["x"] = 1
reveal_type(based.delay(1))  # -> AsyncResult[int]
bound_and_based.delay(1)
bound_and_based.delay("1")  # wrong
validated.delay([1])
validated.delay({"json": 1})
shared.delay("a")
shared.delay(1)  # wrong
shared_bound.delay("a")
shared_bound.delay(1)  # wrong
shared_based.delay("a")
shared_based.delay(1)  # wrong
untyped.delay(1)
untyped.delay("x", 2)
untyped.delay(1, 2, 3)  # wrong
reveal_type(untyped.delay(1))  # -> AsyncResult[Any]
returns_anything.delay(1)
returns_anything.delay("x")  # wrong
by_call.delay([1])
by_call.delay(1)  # wrong

# ---- `async def`

async def awaited() -> None:
    reveal_type(await fetch("x"))  # -> bytes
    reveal_type(await fetch.delay("x"))  # -> bytes
    reveal_type(await bound_fetch.delay("x"))  # -> bytes
    reveal_type(await shared_fetch.delay("x"))  # -> bytes
    reveal_type(await add.delay(1, 2))  # -> int
    reveal_type(await (add.s(1, 2) | text.s()).delay())  # -> str
    await fetch.delay("x")
    fetch("x")  # wrong

fetch.delay("x")
fetch.delay(1)  # wrong
bound_fetch.delay(1)  # wrong
shared_fetch.delay(1)  # wrong
reveal_type(fetch.delay("x"))  # -> AsyncResult[bytes]
reveal_type(fetch.apply_async(("x",)))  # -> AsyncResult[bytes]
reveal_type(fetch.apply(("x",)).get())  # -> bytes
reveal_type(fetch.AsyncResult("id").get())  # -> bytes
reveal_type(fetch.s("x"))  # -> Signature[bytes]
reveal_type(fetch.si("x"))  # -> Signature[bytes]
fetch.si(1)  # wrong

# ---- signatures

reveal_type(add.s(1, 2))  # -> Signature[int]
reveal_type(add.s(1, 2).set(queue="low").clone().on_error(text.s()))  # -> Signature[int]
reveal_type(add.s(1, 2).delay())  # -> AsyncResult[int]
reveal_type(add.s(1).apply_async((2,), countdown=1))  # -> AsyncResult[int]
reveal_type(add.s(1, 2).apply().get())  # -> int
reveal_type(~add.s(1, 2))  # -> int
reveal_type(add.signature((1, 2), countdown=3))  # -> Signature[int]
reveal_type(add.si(1, 2))  # -> Signature[int]
add.s()
add.s(2)
add.s(y=2)
add.s("1", 2)
add.si(1, 2)
add.si("1", 2)  # wrong
add.si(1)  # wrong
bound.si(1, flag=True)
bound.si("1")  # wrong
add.s(1, 2).delay().get().foo  # wrong
add.s(1, 2).link(text.s())
add.s(1, 2).id
reveal_type(signature("by.name").delay())  # -> Any
def takes(one: Signature, of_int: Signature[int], several: Sequence[Signature]) -> Any:
    return one.delay().results
takes(text.s(), add.s(1, 2), [text.s(), add.s(1, 2), group(add.s(1, 2))])
takes(text.s(), text.s(), [])  # wrong

# ---- chains

reveal_type(add.s(1, 2) | add.s(3))  # -> Signature[int]
reveal_type((add.s(1, 2) | add.s(3) | text.s()).delay())  # -> AsyncResult[str]
reveal_type((add.s(1, 2) | text.s()).apply_async(countdown=1).get())  # -> str
reveal_type(add.s(1, 2) | chain(add.s(3), text.s()))  # -> Signature[str]
reveal_type((add.s(1, 2) | add.s(3)).tasks)  # -> Any
reveal_type(chain(add.s(1, 2), text.s()))  # -> chain[str]
reveal_type(chain(add.s(1, 2), text.s()).delay().get())  # -> str
reveal_type(chain(add.s(1, 2), add.s(3), add.s(3), text.s())())  # -> Any
reveal_type(chain([add.s(1, 2), text.s()]).delay())  # -> Any
reveal_type((chain(add.s(1, 2), add.s(3)) | text.s()).delay())  # -> AsyncResult[str]
reveal_type((add.s(1, 2) | group(add.s(3), add.s(4))).delay())  # -> Any
reveal_type(chain(add.s(1, 2), group(add.s(3), add.s(4))).delay())  # -> Any
chain(add.s(1, 2), group(add.s(3), add.s(4))).apply_async().completed_count()
chain(add.s(1, 2), add.s(3)).tasks[0].set(queue="low")
(add.s(1, 2) | text.s()).delay().get().foo  # wrong
steps = add.s(1, 2)
steps |= text.s()
steps_of_all_kinds: Signature = add.s(1, 2)
steps_of_all_kinds = steps_of_all_kinds | text.s() | group(add.s(1), add.s(2)) | text.s()

# ---- groups and chords

reveal_type(group(add.s(i, i) for i in range(3)).delay())  # -> GroupResult
reveal_type(group([add.s(1, 2), text.s(1)]).apply_async(countdown=1))  # -> GroupResult
reveal_type(group(add.s(1, 2)).apply())  # -> GroupResult
reveal_type(group(add.s(1, 2))())  # -> GroupResult
reveal_type(group(add.s(1, 2)).skew().set(queue="low"))  # -> group
reveal_type(group(add.s(1, 2), add.s(3, 4)) | text.s())  # -> Signature[str]
reveal_type((group(add.s(1, 2), add.s(3, 4)) | text.s() | add.s(1)).delay())  # -> AsyncResult[int]
reveal_type(chord([add.s(1, 2)], text.s()))  # -> _chord[str]
reveal_type(chord([add.s(1, 2)], text.s()).delay())  # -> AsyncResult[str]
reveal_type(chord([add.s(1, 2)], fetch.s()).apply_async().get())  # -> bytes
reveal_type(chord([add.s(1, 2)])(text.s()))  # -> Any
reveal_type(chord([add.s(1, 2)], group(text.s(), text.s())).delay())  # -> Any
reveal_type(add.starmap([(1, 2)]).delay().get())  # -> list[Any]
reveal_type(add.chunks([(1, 2)], 10)())  # -> GroupResult
chord(group(add.s(1, 2)), text.s(), countdown=3).delay().get().foo  # wrong
group(add.s(1, 2)).delay().join(timeout=3)
group(add.s(1, 2)).delay().nope()  # wrong
"""


def test_calls_are_checked_and_results_have_types(tmp_path: Path) -> None:
    """Each line of the program says whether it is an error, or which type it has, under `--strict`."""
    lines = PROGRAM.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    types = {number: line.rpartition("# -> ")[2] for number, line in enumerate(lines, 1) if "# -> " in line}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    found = mypy(program)

    told = re.findall(r'program\.py:(\d+): (error|note: Revealed type is "(.*)")', found)
    assert {int(line) for line, said, _ in told if said == "error"} == wrong, found
    assert {int(line): re.sub(r"[a-z_]+\.", "", type_) for line, said, type_ in told if said != "error"} == types
