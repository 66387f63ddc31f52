"""A worker as users start it: what its program declares fires, in time, and its history hears of each run."""

from collections.abc import Callable
from pathlib import Path

import redis

from sidekiq_py.api import CronJobs
from sidekiq_py.extensions.periodic import loading, store
from sidekiq_py.extensions.periodic.declared import make
from sidekiq_py.extensions.periodic.keys import OWN_PREFIX
from sidekiq_py.extensions.periodic.layout import LAYOUTS
from sidekiq_py.redis_access.connection.pool import Pool
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import sidekiq_py as sidekiq


@sidekiq.periodic("* * * * * *", name="declared")
@sidekiq.job(name="Tick")
def tick(): ...
"""


def test_ticks_fire_within_a_second_and_their_runs_are_noted(
    start_worker: Callable[..., WorkerProcess], tmp_path: Path, redis_client: redis.Redis
) -> None:
    """Of what the program declares, and of what stands in the file."""
    (tmp_path / "timetable.py").write_text(PROGRAM)
    schedule = tmp_path / "jobs.yml"
    schedule.write_text("from_file: {cron: '* * * * * *', class: Tick}\n")

    start_worker("timetable", arguments=["--schedule", str(schedule)])

    for name in ("declared", "from_file"):

        def ended(name: str = name) -> list[store.Run]:
            job = CronJobs().find(name)
            runs = [run for run in job.runs() if run.outcome == "success"] if job else []
            return runs if len(runs) >= 3 else []

        runs = eventually(ended)
        assert all(run.seconds is not None for run in runs)
        # The fastest: the machine may be short of CPU for a while.
        assert min(run.pushed_at - run.tick for run in runs) < 1


def test_a_run_that_is_nowhere_lets_the_next_one_start(pool: Pool, redis_client: redis.Redis) -> None:
    """Ruby's jobs tell nobody how they end; one that is found twice neither waiting nor at work is over."""
    loading.save(pool, LAYOUTS["2"], [make("* * * * *", "R", name="n", overlap="skip")])
    own = OWN_PREFIX + "cron_job:default:n"
    redis_client.hset(own, mapping={"running": "f" * 24, "running_since": "1000"})
    redis_client.sadd("queues", "default")
    redis_client.lpush("queue:default", '{"class":"R","args":[],"jid":"%s"}' % ("f" * 24))
    audit = loading.LostRuns()

    audit.release(pool)
    audit.release(pool)
    assert redis_client.hexists(own, "running")
    redis_client.delete("queue:default")
    audit.release(pool)
    assert redis_client.hexists(own, "running")
    audit.release(pool)

    assert not redis_client.hexists(own, "running")
