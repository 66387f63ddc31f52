"""Celery's guide "Next Steps", walked through with the import and the command changed."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import redis
from sidekiq_celery import chain, chord, group
from sidekiq_celery.app.finding import find_app

from tests.compat.documentation.conftest import PROJECT, WAIT_SECONDS, Run
from tests.support.celery_program import StartWorker
from tests.support.waiting import eventually


def test_the_app_of_a_package_is_found(app: Any, run: Run) -> None:
    """Section "About the --app argument": the package, its module `celery`, or module and attribute."""
    assert [find_app(named) for named in (PROJECT, f"{PROJECT}.celery", f"{PROJECT}.celery:app")] == [app] * 3
    assert run("-A", PROJECT, "report").returncode == 0


def test_the_three_ways_to_call(tasks: ModuleType, client: redis.Redis) -> None:
    """Section "Calling Tasks": `delay`, `apply_async` with options, and a plain call."""
    assert tasks.add.delay(2, 2).get(timeout=WAIT_SECONDS) == 4
    assert tasks.add.apply_async((2, 2)).get(timeout=WAIT_SECONDS) == 4
    assert tasks.add(2, 2) == 4

    later = tasks.add.apply_async((2, 2), queue="lopri", countdown=3600)

    [job] = [job for job in map(json.loads, client.zrange("schedule", 0, -1)) if job["jid"] == later.id]
    assert job["queue"] == "lopri"
    client.delete("schedule")


def test_a_failure_is_looked_at(tasks: ModuleType) -> None:
    """Section "Calling Tasks": raised, returned, `failed`, `successful`, `state`."""
    result = tasks.add.delay(2, "2")

    with pytest.raises(TypeError, match="unsupported operand"):
        result.get(timeout=WAIT_SECONDS)
    assert isinstance(result.get(propagate=False), TypeError)
    assert (result.failed(), result.successful(), result.state) == (True, False, "FAILURE")


def test_signatures_and_partials(tasks: ModuleType) -> None:
    """Section "Canvas": `signature`, `s`, `set`, arguments that come later."""
    assert tasks.add.signature((2, 2), countdown=10).options == {"countdown": 10}
    assert repr(tasks.add.s(2, 2).set(countdown=10)) == f"{PROJECT}.tasks.add(2, 2)"
    assert tasks.add.s(2, 2).delay().get(timeout=WAIT_SECONDS) == 4
    assert tasks.add.s(2).delay(8).get(timeout=WAIT_SECONDS) == 10
    assert tasks.add.s(2, 2, debug=True).delay(debug=False).get(timeout=WAIT_SECONDS) == 4


def test_the_primitives(tasks: ModuleType) -> None:
    """Section "The Primitives"."""
    add, mul, xsum = tasks.add, tasks.mul, tasks.xsum
    workflows = [
        (group(add.s(i, i) for i in range(10)), (), list(range(0, 20, 2))),
        (group(add.s(i) for i in range(10)), (10,), list(range(10, 20))),
        (chain(add.s(4, 4) | mul.s(8)), (), 64),
        (chain(add.s(4) | mul.s(8)), (4,), 64),
        (add.s(4, 4) | mul.s(8), (), 64),
        (chord((add.s(i, i) for i in range(10)), xsum.s()), (), 90),
        (group(add.s(i, i) for i in range(10)) | xsum.s(), (), 90),
        (add.s(1, 1) | group(mul.s(i) for i in range(3)), (), [0, 2, 4]),
    ]
    results = [(workflow(*arguments), expected) for workflow, arguments, expected in workflows]

    for result, expected in results:
        assert result.get(timeout=WAIT_SECONDS) == expected


def test_routes_and_queues(proj: ModuleType, app: Any, client: redis.Redis) -> None:
    """Section "Routing": by name in the settings, or by the caller."""
    app.conf.update(task_routes={proj.add.name: {"queue": "routed"}})

    routed = proj.add.delay(2, 2)
    chosen = proj.add.apply_async((2, 2), queue="chosen")

    assert routed.id in client.lindex("queue:routed", 0)
    assert chosen.id in client.lindex("queue:chosen", 0)


def test_a_worker_serves_the_queues_that_it_is_told(proj: ModuleType, start: StartWorker) -> None:
    """Section "Routing": `-Q`, one or several."""
    start("-Q", "only,these", "-P", "solo")

    assert proj.add.apply_async((2, 2), queue="these").get(timeout=WAIT_SECONDS) == 4
    assert proj.add.apply_async((2, 3), queue="only").get(timeout=WAIT_SECONDS) == 5


def test_a_time_zone(app: Any) -> None:
    """Section "Timezone"."""
    app.conf.timezone = "Europe/London"

    assert str(app.conf.timezone) == "Europe/London"


def test_a_task_of_a_library_belongs_to_the_app_in_use(tasks: ModuleType, noted: Callable[..., list[str]]) -> None:
    """`shared_task`, as libraries declare them."""
    result = tasks.shared_add.delay(3, 4)

    assert eventually(result.ready, within_seconds=WAIT_SECONDS)
    assert result.result == 7
