"""
Batches of jobs in both languages, opened by both, while workers, openers and Redis die at each step of a batch's life.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from interop_tests.support.ruby import UTF8, RubyRelease, RubySidekiq, release
from kill_report.stage import PATIENCE_SECONDS, Stage
from sidekiq_py import program
from sidekiq_py.cli import ruby_support
from sidekiq_py.client import sync_client
from tests.support.batch_night import Morning, Night, RubySide
from tests.support.redis_server import RedisServer
from tests.support.worker_process import REPOSITORY, SidekiqProcess

# For one round, which is complete by itself.
BATCHES = 300
JOBS_OF_A_BATCH = 400
KILLS = 200
REDIS_KILLS = 20
RUBY_THREADS = 4
SERIES = ("6.4", "8.1")
PROGRAM = "batch_ledger.rb"
LOOK_SECONDS = 0.1


def batches(stage: Stage) -> set[int]:
    """Each promised callback is enqueued once, all counts agree, and the audit names the jobs lost by Ruby's BRPOP."""
    server = stage.start_redis(appendonly=True)
    program.reset()
    stage.exits.callback(program.reset)
    program.configure(redis_url=server.url, sidekiq_version="7")
    stage.exits.callback(sync_client.current().close)
    client = stage.client(server)
    count, jobs, kills = stage.scaled(BATCHES), JOBS_OF_A_BATCH, stage.scaled(KILLS)
    redis_kills = stage.scaled(REDIS_KILLS)
    series = stage.turn(SERIES)
    night = Night(
        server,
        stage.exits,
        stage.folder,
        count,
        jobs,
        stage.draw.randrange(2**32),
        is_stepped=True,
        ruby=_ruby_side(stage, server, release(series)),
    )
    given_up_at, died = time.monotonic() + PATIENCE_SECONDS, 0
    while night.is_open or night.kills.total() < kills:
        if not night.is_open:
            night.go_on()
        night.replace_the_dead()
        if night.kills["redis"] < redis_kills * night.kills.total() / kills:
            night.kill_redis()
        if night.kills.total() > died:
            died, given_up_at = night.kills.total(), time.monotonic() + PATIENCE_SECONDS
        elif time.monotonic() > given_up_at:
            raise AssertionError(f"nobody has come to a step to die at for {PATIENCE_SECONDS} s; {died} have")
        time.sleep(LOOK_SECONDS)
    night.end()
    for kind, number in night.kills.items():
        stage.faults["Redis killed, appendfsync always" if kind == "redis" else f"SIGKILL: {kind} of batches"] += number
    morning = Morning(night, client, sync_client.current().pool, PATIENCE_SECONDS)
    stage.wrong += morning.wrong
    most_lost = RUBY_THREADS * (night.kills["ruby worker"] + 2 * (night.kills["redis"] + 1))
    if morning.lost > most_lost:
        stage.wrong.append(f"{morning.lost} jobs were lost, and Ruby's BRPOP cannot have lost more than {most_lost}")
    stage.jobs_in_batches += morning.jobs
    stage.dropped[f"Ruby's BRPOP (Sidekiq {series}), of batches: found by the audit, and named"] += morning.lost
    stage.notes["batches"] += len(morning.books)
    stage.notes["batches left open by a killed process, closed by hand"] += morning.left_open
    stage.notes["callbacks of batches"] += morning.callbacks.total()
    for step, number in night.steps.items():
        stage.notes[f"batches: died at a step: {step}"] += number
    return set()


def _ruby_side(stage: Stage, server: RedisServer, ruby: RubyRelease) -> RubySide:
    support = stage.folder / "sidekiq_py.rb"
    support.write_text(ruby_support.text())
    known = {"SIDEKIQ_PY_SUPPORT": str(support)}
    return RubySide(
        partial(_ruby_worker, server, ruby, known), partial(_ruby_opener, server, ruby, known, stage.folder / "opened")
    )


def _ruby_worker(
    server: RedisServer, ruby: RubyRelease, known: Mapping[str, str], more: Mapping[str, str]
) -> SidekiqProcess:
    return RubySidekiq(
        ruby,
        redis_url=server.url,
        queues=["ruby"],
        concurrency=RUBY_THREADS,
        program=PROGRAM,
        environment={**known, **more},
    )


def _ruby_opener(
    server: RedisServer,
    ruby: RubyRelease,
    known: Mapping[str, str],
    said: Path,
    words: list[str],
    more: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **UTF8, **ruby.environment, **known, **more, "REDIS_URL": server.url}
    with said.open("a") as lines:
        return subprocess.Popen(
            [*ruby.ruby, str(ruby.fixtures / PROGRAM), *words],
            stdout=lines,
            stderr=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env=environment,
        )


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("batches", "Batches in both languages, at each step of their life", batches, 2),
]
