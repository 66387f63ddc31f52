"""The ids of thousands of called tasks, which stand in one text: read in part, and as they are."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from sidekiq_celery._result.many_children import ManyTasks, loads_apart

MANY = 10_000


def task(number: int) -> list[Any]:
    """As `AsyncResult.as_tuple`."""
    return [[str(UUID(int=number, version=4)), None], None]


def stored(children: Any, **about: Any) -> bytes:
    """As Celery writes it."""
    meta = {"status": "SUCCESS", "result": None, "traceback": None, "children": children}
    meta |= {"date_done": "2026-11-23T02:00:00.123456+00:00", "task_id": "parent", **about}
    return json.dumps(meta).encode()


def plain(value: Any) -> Any:
    """With lists in place of what makes them when asked."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | ManyTasks) else value


TASKS = [task(number) for number in range(MANY)]
GROUP = [["group", None], TASKS]
HOLLOW = [["group", [["a chord", None], None]], TASKS]


@pytest.mark.parametrize("children", [TASKS, [GROUP], [HOLLOW]], ids=["tasks", "group", "group with a parent"])
def test_what_is_made_in_part_is_what_a_whole_reading_gives(children: list[Any]) -> None:
    """Reading all of them would take 5 ms of the 6 ms that a page takes."""
    text = stored(children, kwargs={"children": [1]}, args=['], "date_done": '])

    apart = loads_apart(text)

    assert apart is not None
    members = apart["children"] if children is TASKS else apart["children"][0][1]
    assert repr(members) == "<ManyTasks 10000>"
    assert members[9950:10_050] == TASKS[9950:]
    assert members[4:0:-2] == TASKS[4:0:-2]
    assert members[-1] == TASKS[-1]
    assert members[20_000:] == []
    assert plain(apart) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        stored([GROUP, GROUP]),
        stored([[["g", None], [*TASKS, GROUP]]]),
        stored([*TASKS, task(0)[:1]]),
        stored([*TASKS, [["of another length", None], None]]),
        stored([[[one[0][0], task(1)], None] for one in TASKS]),
        stored([GROUP], result={"__type__": "datetime", "__value__": "2026-11-23"}),
        stored([], result={"children": [GROUP]}),
        stored([GROUP], kwargs={"numbers": [1], "date_done": 2}),
        stored([{"a": 1}] * MANY),
        stored([GROUP]).replace(b", ", b","),
        stored([GROUP])[:-1],
        stored([task(1), task(2)]),
    ],
)
def test_every_other_text_is_left_to_a_whole_reading(text: bytes) -> None:
    """Two groups, one within another, a task with parents, kombu's own marks, other white space, few tasks."""
    assert loads_apart(text) is None
