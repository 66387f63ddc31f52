"""A worker as users start it: what its program declares fires, in time, and its history hears of each run."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.config import Config
from sidekiq_py.extensions.periodic import PeriodicJobs, loading, store
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


def test_what_a_program_declares_is_written_again_after_redis_has_lost_it(
    pool: Pool, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """But nothing that someone has removed: that comes back when the next worker starts."""
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Report"), name="report")
    extension = PeriodicJobs()
    extension.start(pool, Config(tag="shop"))
    [rounds] = [one for one in extension.maintain() if one.name == "a timetable that Redis has lost"]

    store.write(pool, store.remove_effect(CronJobs().find("report").stored))  # type: ignore[union-attr]
    rounds.run(pool)
    after_removal = [job.name for job in CronJobs()]
    redis_client.flushall()
    for _ in range(2):
        rounds.run(pool)

    assert after_removal == []
    assert [(job.name, job.declared_by) for job in CronJobs()] == [("report", f"shop:{__name__}")]
    assert len([line for line in caplog.records if "has lost" in line.getMessage()]) == 1


def test_a_program_that_declares_nothing_writes_nothing_again(
    pool: Pool, redis_client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though there are Ruby's jobs, and a file of Ruby's."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "schedule.yml").write_text("of_ruby: {cron: '* * * * *', class: OfRuby}\n")
    monkeypatch.chdir(tmp_path)
    redis_client.sadd("cron_jobs:default", "cron_job:default:of_ruby")
    extension = PeriodicJobs()
    extension.start(pool, Config(tag="shop"))
    redis_client.flushall()

    for one in extension.maintain():
        one.run(pool)

    assert redis_client.dbsize() == 0


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


def test_a_run_of_a_process_whose_heartbeats_are_refused_is_still_going(pool: Pool, redis_client: redis.Redis) -> None:
    """As by a full Redis: after a minute its process is in no list, and the next run started beside it."""
    ran, may_end = threading.Event(), threading.Event()

    @sidekiq.job(name="R")
    def run() -> None:
        ran.set()
        may_end.wait(30)

    loading.save(pool, LAYOUTS["2"], [make("* * * * *", "R", name="n", overlap="skip")])
    own = OWN_PREFIX + "cron_job:default:n"
    jid = run.perform_async()
    redis_client.hset(own, mapping={"running": str(jid), "running_since": "1000"})
    audit = loading.LostRuns()

    with sidekiq.embed(concurrency=1):
        assert ran.wait(30)
        redis_client.delete("processes")
        audit.release(pool)
        audit.release(pool)
        may_end.set()

    assert redis_client.hget(own, "running") == str(jid).encode()
