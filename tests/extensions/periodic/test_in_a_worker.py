"""A worker as users start it: what its program declares fires, in time, and its history hears of each run."""

from collections.abc import Callable
from pathlib import Path

import redis

import sidekiq_py as sidekiq
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


QUIET_PROGRAM = """
import sys
from pathlib import Path
import sidekiq_py as sidekiq

OF_FEW = ("periodic.store", "periodic.ticks", "periodic.cron_text", "batches.audit", "batches.state", "batches.rows")


@sidekiq.job(name="Tell")
def tell(path):
    Path(path).write_text(" ".join(name for name in OF_FEW if f"sidekiq_py.extensions.{name}" in sys.modules) + ".")
"""


def test_a_worker_reads_timetables_once_there_are_any(
    start_worker: Callable[..., WorkerProcess], tmp_path: Path, redis_client: redis.Redis
) -> None:
    """Until then it imports nothing that could; a job that is added while it works fires all the same."""
    (tmp_path / "quiet.py").write_text(QUIET_PROGRAM)
    before, after = tmp_path / "before", tmp_path / "after"
    sidekiq.ruby_job("Tell").perform_async(str(before))

    start_worker("quiet")

    assert eventually(lambda: before.read_text() if before.exists() else "") == "."
    CronJobs().add("* * * * * *", "Tell", name="added", args=[str(after)])
    assert "periodic.ticks" in eventually(lambda: after.read_text() if after.exists() else "")


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
