"""How much a workflow weighs: in its messages, and in Redis."""

import json
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import redis
from sidekiq_celery import chain, chord, group
from sidekiq_celery._send import flow_store

from sidekiq_py.redis_access.job_path.push import Outgoing
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

MESSAGE_BYTES = 700
STEP_BYTES = 450


def payloads(client: redis.Redis) -> list[bytes]:
    """What waits in the queue."""
    return client.lrange("queue:celery", 0, -1)


def test_the_message_of_a_chain_of_100_is_that_of_a_chain_of_2(
    tasks: SimpleNamespace, redis_client: redis.Redis
) -> None:
    """It names the place of the next step; the steps stand in a hash, each once."""
    chain(tasks.add.s(1, 1), tasks.add.s(1)).apply_async()
    [short] = payloads(redis_client)
    redis_client.flushdb()

    chain(tasks.add.s(1, 1), *[tasks.add.s(1) for _ in range(99)]).apply_async()

    [long] = payloads(redis_client)
    # Times have more digits, or fewer.
    assert abs(len(long) - len(short)) < 20
    assert len(long) < MESSAGE_BYTES
    [key] = redis_client.keys("sidekiq_py:flow:*")
    steps = redis_client.hvals(key)
    assert len(steps) == 99
    assert max(map(len, steps)) < STEP_BYTES


def test_messages_do_not_grow_on_their_way(
    tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Five groups of ten, one after the other, which real Celery once made 120 MB of."""
    sizes: list[int] = []

    class Weigh:
        def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
            sizes.append(len(json.dumps({**payload, "args": []})))
            return call_next()

    worker.middleware.add(Weigh)
    worker.start()
    canvas = chain(*[group(tasks.same.si(number) for number in range(10)) for _ in range(5)], tasks.total.s())
    result = canvas.apply_async()

    assert result.get(timeout=60) == 45
    assert len([size for size in sizes if size < MESSAGE_BYTES]) >= 51
    # A task that calls the next chord is told which one, and that is what is left of the canvas.
    assert max(sizes) < 60 * MESSAGE_BYTES


def test_a_chord_of_1000_is_written_once(tasks: SimpleNamespace, redis_client: redis.Redis) -> None:
    """In one step, and its body is in none of the messages."""
    body = tasks.total.s().set(task_id="the-body")

    chord([tasks.same.s(number) for number in range(1000)], body).apply_async()

    jobs = payloads(redis_client)
    assert len(jobs) == 1000
    assert max(map(len, jobs)) < MESSAGE_BYTES
    assert not any(b"the-body" in job for job in jobs)


def test_a_chord_of_1000_comes_to_its_end(
    tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Its body has a thousand results, in their order."""
    worker.start()

    result = chord([tasks.same.s(number) for number in range(1000)], tasks.same.s()).apply_async()

    assert result.get(timeout=120) == list(range(1000))
    eventually(lambda: redis_client.keys("sidekiq_py:flow:*") == [])


def test_the_results_of_a_chord_are_freed_outside_the_script_that_ends_it(
    tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """Redis has a thread for that; freed in the script, those of 100,000 parts would hold up everybody."""
    result = chord([tasks.same.s(number) for number in range(3)], tasks.same.s()).apply_async()
    [key] = map(bytes.decode, redis_client.keys("sidekiq_py:chord:*"))
    with redis_client.monitor() as monitor:
        worker.start()
        assert result.get(timeout=60) == [0, 1, 2]
        redis_client.echo("the end")
        commands = [*takewhile(lambda command: command != "ECHO the end", (one["command"] for one in monitor.listen()))]

    assert [command for command in commands if command in (f"DEL {key}", f"UNLINK {key}")] == [f"UNLINK {key}"]
    assert 0 < redis_client.ttl(key) <= flow_store.AFTERGLOW_SECONDS


def test_a_very_large_group_is_sent_in_slices(tasks: SimpleNamespace, redis_client: redis.Redis) -> None:
    """So that no script holds up Redis for long; its jobs stay in their order."""
    group(tasks.same.s(number) for number in range(11_000)).apply_async()

    numbers = [json.loads(job)["args"][0] for job in reversed(payloads(redis_client))]
    assert numbers == list(range(11_000))


def test_a_step_of_a_chain_takes_one_round_trip(
    tasks: SimpleNamespace, worker: TaskWorker, redis_client: redis.Redis
) -> None:
    """It is asked for along with the push of the one before; who waits for the result reads those before it at once."""
    worker.start()
    chain(tasks.add.s(1, 1), tasks.add.s(1)).apply_async().get(timeout=60)
    redis_client.config_resetstat()

    assert chain(tasks.add.s(0, 1), *[tasks.add.s(1) for _ in range(63)]).apply_async().get(timeout=60) == 64

    calls = {name: each["calls"] for name, each in redis_client.info("commandstats").items()}
    # Each step is fetched by one script and ended by one, and read once; a busy machine hands some of them on.
    assert calls["cmdstat_evalsha"] < 64 * 4
    assert calls["cmdstat_hget"] < 64 * 4
    assert calls.get("cmdstat_mget", 0) < 10


def test_what_was_asked_for_a_job_is_said_of_no_other(tasks: SimpleNamespace, redis_client: redis.Redis) -> None:
    """The same chain may be called again, with other steps under the same ids."""
    flow_store._answers.clear()
    chain(tasks.same.s(0), *[tasks.same.si(number) for number in range(2)]).apply_async()
    [raw] = payloads(redis_client)
    payload = json.loads(raw)
    job = Outgoing(payload["jid"], "celery", None, raw)
    place = payload["celery"]["flow"]
    question = flow_store.question_of(place, [job])
    assert question is not None
    text = redis_client.hget(*question.command[1:])

    question.tell(text)
    assert flow_store.answered({**payload, "enqueued_at": 1}) is None
    assert flow_store.answered(payload) is None

    question.tell(text)
    known = flow_store.answered(payload)
    assert known == (place, text)
    redis_client.delete(question.command[1])
    assert flow_store.read_step(tasks.same.app, place, known).signature["args"] == [0]
    assert flow_store.read_step(tasks.same.app, {**place, "next": "another"}, known) is None


def test_answers_that_nobody_needs_are_forgotten(tasks: SimpleNamespace) -> None:
    """Most jobs run elsewhere, where there are many."""
    flow_store._answers.clear()

    for number in range(1000):
        job = Outgoing(str(number), "celery", None, b"{}")
        question = flow_store.question_of({"id": "f", "next": "s"}, [job])
        assert question is not None
        question.tell(b"{}")

    assert len(flow_store._answers) <= 64
    flow_store._answers.clear()
