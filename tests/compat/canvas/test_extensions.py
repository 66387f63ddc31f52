"""Tasks on the way through extensions of the engine, such as batches: however they are pushed, and however they end."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import redis
from kombu.exceptions import OperationalError
from sidekiq_celery import chain, chord, group
from sidekiq_celery.exceptions import Reject

from sidekiq_py import program
from sidekiq_py.extension import Effect, Extension, JobEnd, PushSlice, Verb
from sidekiq_py.testing import fake
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

COUNT = Verb(
    "SEAL_COUNT",
    """{
  look = function(key) if redis.call('EXISTS', key .. ':closed') == 1 then return 'SEALCLOSED no more' end end,
  run = function(key, words) return redis.call('HINCRBY', key, words[1], words[2]) end,
}""",
)


class SealsClosed(Exception):
    """Nothing more may be pushed."""


class Seal(Extension):
    """Gives each job a number, counts in Redis what is pushed and how it ends, and seals what follows a sealed job."""

    name = "seal"
    phase = "count"
    payload_keys: ClassVar[Mapping[str, str]] = {"seal": "it is never counted"}
    verbs = (COUNT,)

    def __init__(self) -> None:
        self.is_on = True
        self.slices: list[tuple[str, int, str | None]] = []

    def wants_pushes(self) -> bool:
        return self.is_on

    def wants_pushes_after(self, payload: dict[str, Any]) -> bool:
        return True

    def push(self, jobs: PushSlice) -> None:
        self.slices.append((jobs.class_name, len(jobs), jobs.follows["jid"] if jobs.follows else None))
        for job in jobs:
            job.add("seal", len(self.slices))
        jobs.write((COUNT.name, "seals", "pushed", len(jobs)))

    def end(self, end: JobEnd) -> Iterable[Effect]:
        return [("HINCRBY", "seals", end.kind, 1)]

    def explain(self, refusal: str) -> Exception | None:
        return SealsClosed(refusal) if refusal.startswith("SEALCLOSED") else None


@pytest.fixture
def seal() -> Iterator[Seal]:
    """The extension, in use in this program."""
    extension = Seal()
    program.use(extension)
    yield extension
    program.reset()


def counts(client: redis.Redis) -> Counter[str]:
    """What has been counted."""
    return Counter({name.decode(): int(number) for name, number in client.hgetall("seals").items()})  # type: ignore[union-attr]


def pushed(client: redis.Redis) -> list[dict[str, Any]]:
    """What stands in the queue and in the schedule."""
    raw = [*client.lrange("queue:celery", 0, -1), *client.zrange("schedule", 0, -1)]  # type: ignore[misc]
    return [json.loads(one) for one in raw]


WAYS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "delay": (lambda t: t.add.delay(1, 2), 1),
    "a call with options": (lambda t: t.add.apply_async((1, 2), headers={"tenant": "5"}), 1),
    "a call that is scheduled": (lambda t: t.add.apply_async((1, 2), countdown=600), 1),
    "a call in another form": (lambda t: t.add.apply_async((1, 2), serializer="pickle"), 1),
    "a call of a unique task": (lambda t: t.add.apply_async((1, 2), unique_for=60), 1),
    "a task known by its name": (lambda t: t.add.app.send_task("add", (1, 2)), 1),
    "a task that is elsewhere": (lambda t: t.add.app.send_task("proj.elsewhere", (1,)), 1),
    "the first step of a chain": (lambda t: chain(t.add.s(1, 2), t.add.s(3)).delay(), 1),
    "a group": (lambda t: group(t.add.s(number, 1) for number in range(3)).delay(), 3),
    "the parts of a chord": (lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()).delay(), 2),
    "a call with callbacks": (lambda t: t.add.apply_async((1, 2), link=t.same.s()), 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_push_a_task_passes_extensions(
    seal: Seal, tasks: SimpleNamespace, redis_client: redis.Redis, way: str
) -> None:
    """Their key is the payload's last, and their command is done by the script that pushes."""
    push, count = WAYS[way]

    push(tasks)

    assert [list(job)[-1] for job in pushed(redis_client)] == ["seal"] * count
    assert counts(redis_client) == {"pushed": count}
    assert sum(number for _, number, _ in seal.slices) == count


@pytest.mark.parametrize("way", WAYS)
def test_a_push_that_no_extension_wants_is_as_ever(
    seal: Seal, tasks: SimpleNamespace, redis_client: redis.Redis, way: str
) -> None:
    """Nothing is added to it."""
    seal.is_on = False
    push, count = WAYS[way]

    push(tasks)

    assert len(pushed(redis_client)) == count
    assert not any("seal" in job for job in pushed(redis_client))


def test_tasks_of_a_group_are_shown_together(seal: Seal, tasks: SimpleNamespace) -> None:
    """An extension that counts is called once for them."""
    group(tasks.add.s(number, 1) for number in range(100)).delay()

    assert seal.slices == [("add", 100, None)]


@pytest.mark.parametrize("way", WAYS)
def test_what_an_extension_refuses_is_its_own_error(
    seal: Seal, tasks: SimpleNamespace, redis_client: redis.Redis, way: str
) -> None:
    """Nothing is pushed; a unique task leaves no lock."""
    redis_client.set("seals:closed", 1)

    with pytest.raises(SealsClosed):
        WAYS[way][0](tasks)

    assert pushed(redis_client) == []
    assert redis_client.keys("sidekiq_py:unique:*") == []


def test_a_refusal_of_redis_is_kombus_error_all_the_same(
    seal: Seal, tasks: SimpleNamespace, redis_client: redis.Redis
) -> None:
    """As without extensions."""
    redis_client.set("queue:celery", "odd")

    for way in ("delay", "a group", "a call of a unique task"):
        with pytest.raises(OperationalError, match="WRONGTYPE"):
            WAYS[way][0](tasks)


def test_the_fake_mode_sees_what_extensions_leave(seal: Seal, tasks: SimpleNamespace) -> None:
    """Of a group, too."""
    with fake() as enqueued:
        tasks.add.delay(1, 2)
        group(tasks.add.s(1, 1), tasks.add.s(2, 2)).delay()

    assert ["seal" in job.payload for job in enqueued.jobs("add")] == [True] * 3


FOLLOWING: dict[str, tuple[Callable[[Any], Any], Mapping[str, int]]] = {
    "a chain": (lambda t: chain(t.add.s(1, 2), t.add.s(3), t.add.s(4)).delay(), {"success": 3}),
    "a chord": (lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()).delay(), {"success": 3}),
    "a chord behind a step": (
        lambda t: chain(t.add.s(1, 1), group(t.add.s(1), t.add.s(2)), t.total.s()).delay(),
        {"success": 4},
    ),
    "a callback": (lambda t: t.add.apply_async((1, 2), link=t.same.s()), {"success": 2}),
    "a task in the place of another": (lambda t: t.by_another.delay(1), {"success": 2}),
    "an errback": (lambda t: t.boom.apply_async(link_error=t.lineage.s()), {"dead": 1, "success": 1}),
    "a chord that fails": (
        lambda t: chord([t.boom.s(), t.add.s(2, 2)], t.total.s()).delay(),
        {"dead": 1, "success": 2},
    ),
}


@pytest.mark.parametrize("kind", FOLLOWING)
def test_what_a_workflow_pushes_follows_the_job_whose_end_pushes_it(
    seal: Seal, running: SimpleNamespace, redis_client: redis.Redis, kind: str
) -> None:
    """An extension that handles the one may have the other, though nobody pushes in its block any more."""
    call, ends = FOLLOWING[kind]
    call(running)
    seal.is_on = False

    wanted = {"pushed": sum(ends.values()), **ends}
    eventually(lambda: counts(redis_client) == wanted)


def test_another_try_of_a_task_is_the_same_job(seal: Seal, running: SimpleNamespace, redis_client: redis.Redis) -> None:
    """It keeps its key, is not shown as a push, and each of its ends is counted once."""
    running.unstable.delay(5)

    eventually(lambda: counts(redis_client) == {"pushed": 1, "retry": 1, "success": 1})
    assert seal.slices == [("unstable", 1, None)]


@pytest.mark.parametrize(("options", "end"), [({"expires": -5}, "invalidated"), ({"args": ["reject"]}, "discarded")])
def test_a_task_that_has_expired_or_rejects_its_job_has_not_succeeded(
    seal: Seal, tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis, options: dict[str, Any], end: str
) -> None:
    """Extensions are told, though Sidekiq's figures count no failure."""

    @tasks.add.app.task(name="picky")
    def picky(*args: str) -> None:
        if args:
            raise Reject("no", requeue=False)

    worker.start()
    picky.apply_async(**options)

    eventually(lambda: counts(redis_client) == {"pushed": 1, end: 1})
    worker.stop()
    assert redis_client.get("stat:failed") is None
