"""
Workers of Ruby, of this code and of an older commit (b23b8db) on the same queues; each is killed from time to time.

Ruby's own fetch (BRPOP) keeps no copy of the jobs that it takes, so a kill loses the job of each thread. Such a job
counts as dropped by Ruby, not as lost: a job that a killed Ruby process had begun and not ended, and, for each other
thread of such processes, which might just have taken one, a job that began nowhere, or only in Python processes that
were killed: their jobs go back to the queue, where Ruby may take them.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from interop_tests.support.ruby import RubyRelease, RubySidekiq, release
from kill_report.stage import PATIENCE_SECONDS, Stage, at_work
from tests.kill.conftest import Fleet
from tests.support.ledger import job_text, push_jobs
from tests.support.worker_process import REPOSITORY, WorkerProcess

OLDER = "b23b8db"
KILLS = 12
JOBS_PER_KILL = 2000
SERIES = ("6.4", "8.1")
SHARE_OF_RUBY = 0.3
# Only one, or it would run all jobs before a Python process has started.
RUBY_THREADS = 1


def mixed_fleets(stage: Stage) -> set[int]:
    """Each worker gets a share of the jobs, and the others run what a killed one leaves behind."""
    fleet = stage.fleet()
    older = _older_code()
    series = release(stage.turn(SERIES))
    ruby = _ruby(stage, fleet, series)
    pids_of_ruby = [ruby.pid]
    workers = [_python(stage, fleet, None), _python(stage, fleet, older), _python(stage, fleet, older)]
    for worker in workers:
        worker.wait_until_ready(within_seconds=PATIENCE_SECONDS)
    killed_pythons = set()
    for _ in range(stage.scaled(KILLS)):
        _push(stage, fleet)
        if stage.draw.random() < SHARE_OF_RUBY:
            time.sleep(stage.draw.uniform(0, 0.1))
            stage.kill(ruby.pid, "Ruby's worker")
            ruby.wait()
            ruby = _ruby(stage, fleet, series)
            pids_of_ruby.append(ruby.pid)
            continue
        victim = at_work(fleet, workers, stage.draw)
        time.sleep(stage.draw.uniform(0, 0.1))
        at = workers.index(victim)
        stage.kill(victim.pid, "worker of an older release" if at else "worker beside Ruby and an older release")
        victim.wait()
        killed_pythons.add(victim.pid)
        workers[at] = _python(stage, fleet, older if at else None).wait_until_ready(within_seconds=PATIENCE_SECONDS)
    stage.wait_until_done(fleet)
    if not ruby.is_running:
        raise AssertionError(f"Ruby's worker ended; its log:\n{ruby.log_tail()}")
    runs = stage.ledger.runs()
    stage.notes["jobs that Ruby ran"] += sum(1 for run in runs if run.pid in pids_of_ruby)
    standing = stage.standing(fleet.client)
    killed = pids_of_ruby[:-1]
    missing = stage.missing(standing)
    begun = {run.number for run in runs if run.pid in killed and run.end is None} & missing
    elsewhere = {run.number for run in runs if run.pid not in killed_pythons}
    just_taken = sorted(missing - elsewhere)[: RUBY_THREADS * len(killed) - len(begun)]
    stage.drop(begun.union(just_taken), "Ruby's own fetch: its worker was killed")
    return standing


def _ruby(stage: Stage, fleet: Fleet, series: RubyRelease) -> RubySidekiq:
    ruby = RubySidekiq(
        series,
        redis_url=fleet.redis_url,
        concurrency=RUBY_THREADS,
        program="ledger_jobs.rb",
        environment={"FIXTURE_LEDGER": str(stage.ledger.path)},
    )
    return stage.exits.enter_context(ruby)


def _push(stage: Stage, fleet: Fleet) -> None:
    first = len(stage.expected)
    push_jobs(fleet.client, [job_text(first + n, "TickJob") for n in range(JOBS_PER_KILL)])
    stage.expected |= set(range(first, first + JOBS_PER_KILL))


def _python(stage: Stage, fleet: Fleet, code: Path | None) -> WorkerProcess:
    # Otherwise the folder in which a worker is started would take precedence over the older code.
    own = {"PYTHONSAFEPATH": "1"} if code else {}
    worker = WorkerProcess(
        "interop_tests.support.tick_jobs",
        redis_url=fleet.redis_url,
        arguments=["-c", "5"],
        environment={"FIXTURE_LEDGER": str(stage.ledger.path), **own},
        python_path=[code, code / "compat"] if code else [],
    ).start()
    stage.exits.callback(worker.kill)
    return worker


def _older_code() -> Path:
    """The folder with that commit's files, extracted once."""
    folder = REPOSITORY / ".kill-report" / OLDER
    if not folder.exists():
        fresh = folder.with_name(f"{OLDER}.new")
        fresh.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", OLDER], cwd=REPOSITORY, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(fresh)], input=archive, check=True)
        fresh.rename(folder)
    return folder


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("mixed-fleets", f"Ruby and an older release ({OLDER}) in the fleet", mixed_fleets, 6),
]
