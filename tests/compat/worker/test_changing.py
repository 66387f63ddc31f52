"""A worker that is changed while it runs: its size, its queues, its tasks' limits."""

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from sidekiq_celery._run.time_limits import problem_with
from sidekiq_celery.exceptions import ImproperlyConfigured, SoftTimeLimitExceeded, TimeLimitExceeded
from sidekiq_celery.worker import WorkController
from sidekiq_celery.worker.limit_commands import set_limits
from sidekiq_celery.worker.pools import autoscale_range

from sidekiq_py.wire.json_dialect import loads
from tests.support.celery_program import StartWorker, noted, wait_for_an_answer
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

_SECONDS = 60


def replies(project: ModuleType, command: str, **arguments: Any) -> dict[str, Any]:
    """What the one worker answers to a command of remote control."""

    control = project.app.control
    # It may still begin to listen; a command that changes something is not to be sent twice.
    wait_for_an_answer(project.app, limit=1)
    [answer] = control.broadcast(command, arguments=arguments, reply=True, limit=1, timeout=_SECONDS)
    [value] = answer.values()
    return value


def children(client: redis.Redis) -> set[int]:
    """The processes that run tasks, as Ruby's Busy page sees them."""
    return {int(name.decode().split(":")[1]) for name in client.smembers("processes")}


def forked(worker: SidekiqProcess) -> list[int]:
    """All processes that a worker's parent has forked and that live."""
    return [int(pid) for pid in Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()]


def shown_queues(client: redis.Redis) -> list[set[str]]:
    """The queues that each process tells Ruby."""
    infos = [client.hget(name, "info") for name in client.smembers("processes")]
    return [set(loads(info)["queues"]) for info in infos if info]


def test_a_family_grows_and_shrinks_while_it_works(
    start: StartWorker, project: ModuleType, redis_client: redis.Redis
) -> None:
    """From one child to three and back: each task runs, and runs once."""
    worker = start("-c", "1")
    sent = [project.count_up.delay(number) for number in range(100)]

    assert replies(project, "pool_grow", n=2) == {"ok": "pool will grow"}
    eventually(lambda: len(children(redis_client)) == 3, within_seconds=_SECONDS)
    stats = replies(project, "stats")
    assert len(stats["pool"]["processes"]) == 3
    sent += [project.count_up.delay(number) for number in range(100, 200)]
    assert replies(project, "pool_shrink", n=5) == {"ok": "pool will shrink"}
    eventually(lambda: len(children(redis_client)) == 1, within_seconds=_SECONDS)

    for one in sent:
        one.get(timeout=_SECONDS)
    assert Counter(noted(redis_client, "counted")) == Counter(map(str, range(200)))
    assert worker.stop() == 0


def test_a_busy_child_finishes_before_it_goes(
    start: StartWorker, project: ModuleType, redis_client: redis.Redis
) -> None:
    """The idle one goes, and a new one comes beside the busy one."""
    worker = start("-c", "2", processes=2)
    sent = project.finish_when_told.delay()
    [busy] = eventually(lambda: noted(redis_client, "slow"), within_seconds=_SECONDS)

    replies(project, "pool_shrink")
    eventually(lambda: children(redis_client) == {int(busy)}, within_seconds=_SECONDS)
    redis_client.rpush("finish", "now")

    assert sent.get(timeout=_SECONDS) == "finished"
    assert worker.stop() == 0


@pytest.mark.parametrize("pool", ["threads", "asyncio"])
def test_a_process_grows_and_shrinks(
    pool: str, start: StartWorker, project: ModuleType, redis_client: redis.Redis
) -> None:
    """Its slots do."""
    worker = start("-c", "1", "-P", pool)
    task = project.finish_when_told if pool == "threads" else project.wait_on_loop
    sent = [task.delay() for _ in range(3)]

    assert replies(project, "pool_grow", n=2) == {"ok": "pool will grow"}
    eventually(lambda: len(noted(redis_client, "slow")) == 3, within_seconds=_SECONDS)
    assert replies(project, "pool_shrink", n=2) == {"ok": "pool will shrink"}
    redis_client.rpush("finish", *["now"] * 3)

    assert [one.get(timeout=_SECONDS) for one in sent] == ["finished"] * 3
    assert project.add.delay(1, 2).get(timeout=_SECONDS) == 3
    assert worker.stop() == 0


def test_what_cannot_be_changed_is_told(start: StartWorker, project: ModuleType) -> None:
    """In Celery's words where it has some."""
    start("-P", "solo")

    assert "runs one task at a time" in replies(project, "pool_grow")["error"]
    assert "Autoscale not enabled" in replies(project, "autoscale", max=3, min=1)["error"]
    assert "Pool restarts not enabled" in replies(project, "pool_restart")["error"]
    assert replies(project, "time_limit", task_name="none", soft=1, hard=None) == {"error": "unknown task"}
    limited = replies(project, "time_limit", task_name=project.add.name, soft=1, hard=2)
    assert "cannot enforce a hard limit" in limited["error"]


def test_a_worker_begins_with_a_queue_and_leaves_one(
    start: StartWorker, project: ModuleType, redis_client: redis.Redis
) -> None:
    """In all children, and in those that are made later; Ruby's Busy page tells of it."""
    worker = start("-c", "2", "-Q", "first", processes=2)

    assert replies(project, "add_consumer", queue="second") == {"ok": "add consumer second"}
    assert replies(project, "cancel_consumer", queue="first") == {"ok": "no longer consuming from first"}
    eventually(lambda: shown_queues(redis_client) == [{"second"}] * 2, within_seconds=_SECONDS)
    assert [queue["name"] for queue in replies(project, "active_queues")] == ["second"]
    project.add.apply_async((1, 1), queue="first")
    pid = project.pid.apply_async(queue="second").get(timeout=_SECONDS)

    os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: len(children(redis_client) - {pid}) == 2 and shown_queues(redis_client)[0] == {"second"},
        within_seconds=_SECONDS,
    )
    assert project.add.apply_async((2, 2), queue="second").get(timeout=_SECONDS) == 4
    assert redis_client.llen("queue:first") == 1
    assert worker.stop() == 0


def test_what_names_no_queue_is_refused_and_changes_nothing(
    start: StartWorker, project: ModuleType, redis_client: redis.Redis
) -> None:
    """Neither added nor cancelled, and children that are made later start."""
    start("-c", "1", "-Q", "first")

    for name in (5, ["a"], None, "", "\ud800", "n" * 100_000):
        assert "is not a queue name" in replies(project, "add_consumer", queue=name)["error"]
        assert "is not a queue name" in replies(project, "cancel_consumer", queue=name)["error"]
    assert "is not text" in replies(project, "add_consumer", queue="second", exchange=5)["error"]
    [pid] = children(redis_client)
    os.kill(pid, signal.SIGKILL)

    eventually(lambda: children(redis_client) - {pid}, within_seconds=_SECONDS)
    assert project.add.apply_async((2, 2), queue="first").get(timeout=_SECONDS) == 4


def test_a_child_passes_over_a_queue_that_cannot_be(start: StartWorker, project: ModuleType) -> None:
    """The program has changed what the parent serves; who inherits it starts all the same."""
    worker = start("-c", "1", "-Q", "first", MOST_TASKS="1", ODD_QUEUE="1")

    for number in range(3):
        assert project.add.apply_async((number, 1), queue="first").get(timeout=_SECONDS) == number + 1
    assert "5 is not a queue name and is not served" in worker.log


def test_nothing_of_a_new_queue_is_lost_with_a_killed_child(
    start: StartWorker, project: ModuleType, redis_client: redis.Redis
) -> None:
    """The job that it runs, and those that it has taken, come back."""
    start("-c", "1", "-Q", "first")
    replies(project, "add_consumer", queue="second")
    sent = [project.finish_when_told.apply_async(queue="second"), project.add.apply_async((1, 1), queue="second")]
    [pid] = eventually(lambda: noted(redis_client, "slow"), within_seconds=_SECONDS)

    os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: len(noted(redis_client, "slow")) == 2, within_seconds=_SECONDS)
    redis_client.rpush("finish", "now")

    assert [one.get(timeout=_SECONDS) for one in sent] == ["finished", 2]


def test_limits_of_a_task_can_be_changed(start: StartWorker, project: ModuleType) -> None:
    """Those that calls bring along from the task's declaration do not stand against it; new children have them, too."""
    start("-c", "1")
    name = project.limited.name

    assert replies(project, "time_limit", task_name=name, soft=0.3, hard=50) == {"ok": "time limits set successfully"}
    with pytest.raises(SoftTimeLimitExceeded):
        project.limited.delay().get(timeout=_SECONDS)
    replies(project, "time_limit", task_name=name, soft=None, hard=0.3)
    with pytest.raises(TimeLimitExceeded):
        project.limited.delay().get(timeout=_SECONDS)
    # The child that runs this one was made after the change.
    with pytest.raises(TimeLimitExceeded):
        project.limited.delay().get(timeout=_SECONDS)


@pytest.mark.parametrize("limit", ["10s", -1, float("nan"), 1e300, True, [1]])
def test_what_is_no_limit_is_refused_and_changes_nothing(limit: Any) -> None:
    """Neither where the command arrives nor in a process that is told of it all the same."""
    assert "give seconds as a number" in str(problem_with(soft=None, hard=limit))
    assert problem_with(soft=limit, hard=3) is not None
    assert problem_with(soft=None, hard=0) is None
    with pytest.raises(ValueError, match="give seconds as a number"):
        set_limits(None, "any", hard=limit, soft=None)  # type: ignore[arg-type]


def test_children_start_whatever_they_inherit(start: StartWorker, project: ModuleType) -> None:
    """The program itself may have made the limits of a task odd."""
    worker = start("-c", "1", MOST_TASKS="1", ODD_LIMIT="10s")

    reply = replies(project, "time_limit", task_name=project.limited.name, soft=None, hard="10s")

    assert "hard='10s' is not a time limit" in reply["error"]
    for number in range(3):
        assert project.add.delay(number, 1).get(timeout=_SECONDS) == number + 1
    assert "has no time limit, because '10s' is not one" in worker.log


@pytest.mark.parametrize(("pool", "task"), [("threads", "limited"), ("asyncio", "limited_on_loop")])
def test_soft_limits_can_be_changed_in_every_pool(
    pool: str, task: str, start: StartWorker, project: ModuleType
) -> None:
    """Of coroutines, too."""
    start("-c", "1", "-P", pool)
    limited = getattr(project, task)

    assert "ok" in replies(project, "time_limit", task_name=limited.name, soft=0.3, hard=None)
    with pytest.raises(SoftTimeLimitExceeded):
        limited.delay().get(timeout=_SECONDS)


def test_a_worker_scales_itself(start: StartWorker, project: ModuleType, redis_client: redis.Redis) -> None:
    """It grows while tasks wait, within what remote control allows, and shrinks when they do not."""
    worker = start("--autoscale", "2,1", AUTOSCALE_KEEPALIVE="2")
    assert "not supported with autoscale" in replies(project, "pool_grow")["error"]
    sent = [project.finish_when_told.delay() for _ in range(3)]

    eventually(lambda: len(children(redis_client)) == 2, within_seconds=_SECONDS)
    assert replies(project, "autoscale", max=3, min=1) == {"ok": "autoscale now max=3 min=1"}
    eventually(lambda: len(noted(redis_client, "slow")) == 3, within_seconds=_SECONDS)
    scaler = replies(project, "stats")["autoscaler"]
    assert (scaler["max"], scaler["min"], scaler["current"]) == (3, 1, 3)
    redis_client.rpush("finish", *["now"] * 3)

    assert [one.get(timeout=_SECONDS) for one in sent] == ["finished"] * 3
    eventually(lambda: len(children(redis_client)) == 1, within_seconds=_SECONDS)
    assert worker.stop() == 0
    assert "concurrency  1 to 2 (prefork)" in worker.log


def test_a_worker_of_threads_scales_itself(start: StartWorker, project: ModuleType, redis_client: redis.Redis) -> None:
    """In its one process."""
    worker = start("--autoscale", "3,1", "-P", "threads", "-l", "INFO", AUTOSCALE_KEEPALIVE="2")
    sent = [project.finish_when_told.delay() for _ in range(3)]

    eventually(lambda: len(noted(redis_client, "slow")) == 3, within_seconds=_SECONDS)
    redis_client.rpush("finish", *["now"] * 3)

    assert [one.get(timeout=_SECONDS) for one in sent] == ["finished"] * 3
    eventually(lambda: "Scaling down: 1 thread\n" in worker.log, within_seconds=_SECONDS)
    assert worker.stop() == 0


def test_a_restarted_pool_has_the_modules_anew(
    start: StartWorker, project: ModuleType, tmp_path: Path, redis_client: redis.Redis
) -> None:
    """Those that are named, with `reload`; one that cannot be imported changes nothing."""
    module = tmp_path / "reloaded_tasks.py"
    code = "from sidekiq_celery import shared_task\n\n@shared_task(name='reloaded')\ndef reloaded():\n    return {!r}\n"
    module.write_text(code.format("before"))
    start("-c", "1", "-I", "reloaded_tasks", RESTARTS="1", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    call: Callable[[], Any] = lambda: project.app.send_task("reloaded").get(timeout=_SECONDS)  # noqa: E731
    assert call() == "before"

    module.write_text("raise RuntimeError('not this one')\n")
    assert "not this one" in replies(project, "pool_restart", modules=["reloaded_tasks"], reload=True)["error"]
    assert call() == "before"
    module.write_text(code.format("afterwards"))
    assert replies(project, "pool_restart", modules=["reloaded_tasks"], reload=True) == {"ok": "reload started"}

    eventually(lambda: call() == "afterwards", within_seconds=_SECONDS)


@pytest.mark.parametrize(
    ("pool", "given", "wanted"),
    [
        ("prefork", (10, 3), (10, 3)),
        ("prefork", "10,3", (10, 3)),
        ("prefork", "10", (10, 1)),
        ("threads", (4, 0), (4, 1)),
        ("prefork", (2, 5), (5, 2)),
        ("solo", (4, 1), None),
        ("asyncio", (4, 1), None),
        ("prefork", None, None),
    ],
)
def test_a_worker_scales_between_a_most_and_a_least(pool: Any, given: Any, wanted: tuple[int, int] | None) -> None:
    """At least one process stays: somebody has to see that tasks wait."""
    assert autoscale_range(pool, given) == wanted


def test_a_range_that_is_none_is_refused() -> None:
    """With an example."""
    with pytest.raises(ImproperlyConfigured, match="as in 10,3"):
        autoscale_range("prefork", "ten")


def test_options_for_children_are_named_where_there_are_none(project: ModuleType) -> None:
    """Each with the reason."""
    threads = WorkController(app=project.app, pool_cls="threads", max_tasks_per_child=5, max_memory_per_child=9000)
    solo = WorkController(app=project.app, pool_cls="solo", autoscale=(3, 1))
    prefork = WorkController(app=project.app, max_tasks_per_child=5, autoscale=(3, 1))

    assert [text.partition(":")[0] for text in threads.options_without_effect()] == [
        "--max-tasks-per-child",
        "--max-memory-per-child",
    ]
    assert solo.options_without_effect() == ["--autoscale: -P solo neither grows nor shrinks by itself"]
    assert (prefork.options_without_effect(), prefork.concurrency) == ([], 1)


def test_ruby_s_busy_page_tells_the_node(start: StartWorker, redis_client: redis.Redis) -> None:
    """Each child is a process there, with one thread, room for a hundred coroutines, and the queues that it serves."""
    start("-c", "2", "-n", "w1@here", "-Q", "first,second", processes=2)

    infos = [loads(redis_client.hget(name, "info")) for name in redis_client.smembers("processes")]

    shown = {(info["tag"], info["concurrency"], tuple(info["queues"])) for info in infos}
    assert (shown, len(infos)) == ({("w1@here", 101, ("first", "second"))}, 2)


def test_a_child_that_holds_too_much_is_replaced(
    start: StartWorker, project: ModuleType, redis_client: redis.Redis
) -> None:
    """When it has ended what it runs."""
    worker = start("-c", "1", "--max-memory-per-child", "1")
    first = children(redis_client)
    sent = project.finish_when_told.delay()

    eventually(lambda: "more than the limit" in worker.log, within_seconds=_SECONDS)
    redis_client.rpush("finish", "now")

    assert sent.get(timeout=_SECONDS) == "finished"
    eventually(lambda: children(redis_client) - first, within_seconds=_SECONDS)
    assert project.add.delay(1, 2).get(timeout=_SECONDS) == 3


def test_nothing_is_lost_while_a_worker_is_changed_and_its_children_are_killed(
    start: StartWorker, project: ModuleType, redis_client: redis.Redis
) -> None:
    """By chance: queues begin and end, children come, go, and die."""
    worker = start("-c", "2", "-Q", "first,second", processes=2)
    control, draw = project.app.control, random.Random(4)
    changes = [
        lambda: control.add_consumer("second"),
        lambda: control.cancel_consumer("second"),
        lambda: control.pool_grow(1),
        lambda: control.pool_shrink(1),
    ]

    for number in range(200):
        project.count_up.apply_async((number,), queue=draw.choice(["first", "second"]))
        if number % 10 == 0:
            draw.choice(changes)()
            # The changes are to meet work.
            eventually(lambda: redis_client.llen("queue:first") < 20, within_seconds=_SECONDS)
        if number in (70, 140):
            # It may be remote control, and it may be about to go.
            with suppress(ProcessLookupError):
                os.kill(draw.choice(eventually(lambda: forked(worker), within_seconds=_SECONDS)), signal.SIGKILL)
    replies(project, "add_consumer", queue="second")

    eventually(lambda: set(noted(redis_client, "counted")) == {*map(str, range(200))}, within_seconds=_SECONDS)
