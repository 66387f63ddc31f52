"""Rate limits while workers are killed."""

from collections.abc import Callable
from types import ModuleType

import redis

from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess


def test_killed_workers_lose_nothing_and_the_rate_holds(
    project: ModuleType, start: Callable[..., SidekiqProcess], redis_client: redis.Redis
) -> None:
    """What was reserved, waiting or running comes back; two workers together never start more than they may."""
    for number in range(80):
        project.steady.delay(number)
    start("-P", "threads", "-c", "4", "-n", "a@%h")
    victim = start("-P", "threads", "-c", "4", "-n", "b@%h")

    eventually(lambda: redis_client.llen("noted:steady") > 20)
    victim.kill()
    eventually(lambda: len({text.split()[0] for text in redis_client.lrange("noted:steady", 0, -1)}) == 80)

    moments = sorted(float(text.split()[1]) for text in redis_client.lrange("noted:steady", 0, -1))
    # A quarter of a second is made up for; the rest is for what passes between a start and its note.
    assert max(sum(one <= other < one + 1 for other in moments) for one in moments) <= 20 * 1.25 + 10
    assert moments[-1] - moments[0] > 3.0
