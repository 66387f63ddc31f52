"""Batches of the gem sidekiq-batch while the Python workers that run their jobs are killed."""

import json
from collections import Counter

import pytest
import redis

from tests.support.batch_program import CALLBACKS
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

BATCHES, JOBS, KILLS = 30, 100, 5
EVENTS = ("complete", "success")


def bid_of(number: int) -> str:
    """As long as the gem's."""
    return f"batch-{number:08}"


def open_batches(client: redis.Redis) -> None:
    """As the gem does; of every third one a job dies."""
    with client.pipeline() as pipe:
        for number in range(BATCHES):
            bid = bid_of(number)
            jids = [f"{number:012x}{at:012x}" for at in range(JOBS)]
            fields = {"created_at": "1.5", "callback_queue": CALLBACKS, "pending": JOBS, "total": JOBS}
            pipe.hset(f"BID-{bid}", mapping=fields)
            pipe.sadd(f"BID-{bid}-jids", *jids)
            for event in EVENTS:
                pipe.sadd(f"BID-{bid}-callbacks-{event}", '{"callback":"Done","opts":{}}')
            for at, jid in enumerate(jids):
                klass, retry = ("doomed", 0) if number % 3 == 0 and at == 0 else ("tick", 25)
                job = {"retry": retry, "queue": "default", "class": klass, "args": [at], "jid": jid, "bid": bid}
                pipe.lpush("queue:default", json.dumps({**job, "created_at": 1.5, "enqueued_at": 1.5}))
        pipe.sadd("queues", "default")
        pipe.execute()


def pending(client: redis.Redis) -> list[int]:
    """How many jobs each batch waits for."""
    return [int(client.hget(f"BID-{bid_of(number)}", "pending") or 0) for number in range(BATCHES)]


def callbacks(client: redis.Redis) -> Counter[tuple[str, str]]:
    """What was enqueued for Ruby: the batch and the event of each."""
    jobs = [json.loads(raw)["args"] for raw in client.lrange(f"queue:{CALLBACKS}", 0, -1)]
    return Counter((args[3], args[1]) for args in jobs)


@pytest.mark.kill
def test_each_job_is_counted_once_and_each_callback_enqueued_once(redis_client: redis.Redis, redis_url: str) -> None:
    """Whatever a killed worker had in hand is run again by the next one."""
    open_batches(redis_client)
    dead = {number for number in range(BATCHES) if number % 3 == 0}
    expected = [1 if number in dead else 0 for number in range(BATCHES)]
    left = BATCHES * JOBS
    for _ in range(KILLS):
        # On a busy machine a worker may be through with all of them before anybody has looked.
        goal = max(left - 200, sum(expected))
        with WorkerProcess("tests.support.batch_program", redis_url=redis_url, arguments=["-c", "4"]) as worker:
            eventually(lambda goal=goal: sum(pending(redis_client)) <= goal)  # type: ignore[misc]
            worker.kill()
        left = sum(pending(redis_client))

    with WorkerProcess("tests.support.batch_program", redis_url=redis_url, arguments=["-c", "4"]):
        eventually(lambda: pending(redis_client) == expected and redis_client.zcard("dead") == len(dead))

    wanted = {(bid_of(number), "complete") for number in range(BATCHES)}
    wanted |= {(bid_of(number), "success") for number in range(BATCHES) if number not in dead}
    assert callbacks(redis_client) == Counter(wanted)
    for number in range(BATCHES):
        failed = redis_client.smembers(f"BID-{bid_of(number)}-failed")
        assert failed == ({f"{number:012x}{0:012x}".encode()} if number in dead else set())
