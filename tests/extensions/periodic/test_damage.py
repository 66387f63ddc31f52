"""Keys of one periodic job to which another program has written: the other jobs fire, and workers start."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.doctor import examine
from sidekiq_py.extensions.periodic import loading
from sidekiq_py.extensions.periodic.keys import PAYLOAD_KEY
from sidekiq_py.redis_access.connection.pool import Pool
from tests.extensions.periodic.conftest import NOON
from tests.support.waiting import eventually

Start = Callable[..., None]
Look = Callable[[float], list[str]]

BAD = "cron_job:default:bad"
OWN = f"sidekiq_py:cron:{BAD}"
POLICIES: list[dict[str, Any]] = [{}, {"overlap": "skip", "catch_up": timedelta(minutes=5), "jitter": 1}]


def declare_two(start: Start, look: Look, **policy: Any) -> None:
    """A job whose keys will suffer, and one that is to fire all the same; both have fired once."""
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Bad"), name="bad", **policy)
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Good"), name="good")
    start()
    look(NOON + 60.5)
    look(NOON + 62)


def use_everything(start: Start, look: Look, pool: Pool) -> None:
    """Two minutes go by, with all that reads or writes the timetable in between."""
    look(NOON + 120.5)
    loading.restore(pool)
    loading.LostRuns().release(pool)
    assert [(job.runs(), job.history(), job.lost_ticks()) for job in CronJobs()]
    start(NOON + 130)
    look(NOON + 180.5)
    look(NOON + 182)


def good_ones(client: redis.Redis) -> int:
    """How often the other job was pushed."""
    return sum(b'"Good"' in raw for raw in client.lrange("queue:default", 0, -1))


def findings() -> str:
    """All that the doctor says of the timetable."""
    return "\n".join(finding.seen for check, finding in examine().findings() if check.name == "periodic-jobs")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "key",
    [BAD, OWN, f"{BAD}:enqueued", f"{BAD}:jid_history", f"sidekiq_py:cron_runs:{BAD}", "sidekiq_py:cron_declared"],
)
def test_a_key_of_another_type_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, key: str, policy: dict[str, Any]
) -> None:
    """Nor a worker that starts; the doctor names the key."""
    declare_two(start, look, **policy)
    redis_client.delete(key)
    redis_client.set(key, "text")

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3
    assert key in findings()


@pytest.mark.parametrize("value", ["inf", "nan", "1e400", "not ours"])
@pytest.mark.parametrize("field", ["fired", "since", "catch_up", "jitter", "running_since", "p:inf"])
def test_a_number_that_is_none_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, field: str, value: str
) -> None:
    """It counts as missing."""
    declare_two(start, look, **POLICIES[1])
    redis_client.hset(OWN, field, value)

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3


@pytest.mark.parametrize("copy", ["{", "[]", "{}", '{"cron":"61 * * * *","klass":"A"}', b"\xff"])
def test_a_copy_that_is_none_is_not_written_back(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, copy: str | bytes
) -> None:
    """The job is gone until a worker starts that declares it; others are written back."""
    declare_two(start, look)
    redis_client.hset(OWN, "copy", copy)
    redis_client.delete("cron_jobs:default")

    loading.restore(pool)
    assert [job.name for job in CronJobs()] == ["good"]
    start(NOON + 130)

    assert [job.name for job in CronJobs()] == ["bad", "good"]


def test_a_spoilt_history_keeps_no_job_from_ending(start: Start, redis_client: redis.Redis) -> None:
    """The job ran, and leaves no place in flight."""
    runs: list[int] = []

    @sidekiq.job(name="Noted")
    def noted() -> None:
        runs.append(1)

    redis_client.set(OWN, "text")
    redis_client.set(f"sidekiq_py:cron_runs:{BAD}", "text")
    sidekiq.Client().push({"class": "Noted", "args": [], PAYLOAD_KEY: BAD})

    with sidekiq.embed(concurrency=1):
        eventually(lambda: runs and not redis_client.keys("sidekiq_py:in*:*"))

    assert runs == [1]
