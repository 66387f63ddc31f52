"""A worker of a program without periodic jobs and batches: it loads neither, and serves those that come."""

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import os, sys
import redis
import sidekiq_py as sidekiq

@sidekiq.job(name="Loaded")
def loaded():
    found = list(sys.modules)
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        client.delete("loaded")
        client.sadd("loaded", *found)
"""
HEAVY = {
    f"sidekiq_py.extensions.{name}"
    for name in (
        *("batches.audit", "batches.pretended", "batches.state"),
        *("periodic.cron_text", "periodic.firing", "periodic.layout"),
    )
}
OF_OTHERS = {
    *("sidekiq_py.engine.fetch.basic", "sidekiq_py.jobs.iterable", "sidekiq_celery._state", "click.shell_completion"),
    *("secrets", "shlex"),
}

Loaded = Callable[[], set[str]]


@pytest.fixture
def start(start_worker: Callable[..., WorkerProcess], tmp_path: Path) -> Callable[[], WorkerProcess]:
    """The worker, once it maintains the fleet."""
    (tmp_path / "plain.py").write_text(PROGRAM)
    return lambda: start_worker("plain")


@pytest.fixture
def loaded(redis_url: str, redis_client: redis.Redis) -> Loaded:
    """The modules that the worker has loaded by now."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="7")

    def ask() -> set[str]:
        sidekiq.ruby_job("Loaded").perform_async()
        return eventually(lambda: {name.decode() for name in redis_client.smembers("loaded")})

    return ask


def calls(client: redis.Redis, command: str) -> int:
    """How often Redis was asked this."""
    return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


def test_a_worker_without_any_loads_nothing_of_them(
    start: Callable[[], WorkerProcess], loaded: Loaded, redis_client: redis.Redis
) -> None:
    """Also when it has looked for them; and it looks by TIME and EXISTS."""
    redis_client.config_resetstat()
    start()
    eventually(lambda: calls(redis_client, "time") >= 4)

    assert HEAVY & loaded() == set()


def test_a_worker_loads_nothing_that_only_other_programs_need(
    start: Callable[[], WorkerProcess], loaded: Loaded
) -> None:
    """It stays in memory as long as the worker runs."""
    start()

    assert OF_OTHERS & loaded() == set()


def test_a_periodic_job_that_is_added_while_a_worker_runs_fires(
    start: Callable[[], WorkerProcess], loaded: Loaded, redis_client: redis.Redis
) -> None:
    """Within a few seconds: it is seen by a look that comes every two."""
    redis_client.config_resetstat()
    start()
    eventually(lambda: calls(redis_client, "time") >= 2)
    job = CronJobs().add("* * * * * *", "Loaded", name="added")

    run = eventually(job.runs)[-1]

    assert run.pushed_at - run.tick < 5
    eventually(lambda: "sidekiq_py.extensions.periodic.firing" in loaded())


def test_a_periodic_job_of_another_program_fires(start: Callable[[], WorkerProcess], loaded: Loaded) -> None:
    """It stands in Redis alone, and has before the worker starts."""
    job = CronJobs().add("* * * * * *", "Loaded", name="of_another")

    start()

    eventually(lambda: [run for run in job.runs() if run.outcome == "success"])


def test_what_a_program_declares_no_more_goes_at_its_next_start(
    start_worker: Callable[..., WorkerProcess], tmp_path: Path, redis_client: redis.Redis
) -> None:
    """Also where it declares none any more."""
    program = tmp_path / "plain.py"
    program.write_text(PROGRAM + 'sidekiq.periodic("0 0 1 1 *", loaded, name="yearly")\n')
    with start_worker("plain"):
        assert CronJobs().find("yearly") is not None
    program.write_text(PROGRAM)

    start_worker("plain")

    assert CronJobs().find("yearly") is None
