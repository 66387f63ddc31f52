"""Plays the demo from start to end."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sidekiq_py as sidekiq
from sidekiq_py.api import DeadSet, RetrySet, ScheduledSet, Stats
from sidekiq_py.clock import monotonic
from sidekiq_py.demo import live, recorded
from sidekiq_py.demo.programs import RubyConsole, find_ruby, write_ruby_support
from sidekiq_py.demo.record import NotSeenError
from sidekiq_py.demo.screen import Screen
from sidekiq_py.demo.stage import Stage
from sidekiq_py.demo.step import Step
from sidekiq_py.demo.tape import Tape
from sidekiq_py.embedded import PrivateRedis
from sidekiq_py.errors import SidekiqError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.reads import in_flight_counts

# Either has the counters that Sidekiq must show at the end, over both languages.
Story = live.Live | recorded.Recorded


def play(*, pace_seconds: float, with_ruby: bool) -> bool:
    """
    Play the demo.

    Args:
        pace_seconds: The pause after each block, for reading.
        with_ruby: True to look for Ruby; False to play the recordings.

    Returns:
        True if every step was verified.

    Raises:
        ConfigError: No Redis server is installed.
    """
    began = monotonic()
    screen = Screen(pace_seconds)
    screen.title("Python and Ruby on one Redis")
    with PrivateRedis() as redis, _stage(redis, screen) as stage, _story(stage, redis, with_ruby) as story:
        version = stage.pool.command("INFO", "server").decode().partition("redis_version:")[2].split()[0]
        screen.row("redis", f"{version}, private to this demo and removed afterwards: {redis.url}")
        if not _begin(screen, stage, story):
            return False
        steps = [*story.steps(), Step("The counts add up", lambda: _balance(stage, story))]
        for number, step in enumerate(steps, 1):
            screen.heading(number, step.title)
            stage.begin_step()
            if not _seen(screen, stage, step):
                return False
    screen.summary(
        [step.title for step in steps],
        f"All {len(steps)} steps were verified, in {monotonic() - began:.0f} s. The private Redis is gone.",
    )
    return True


def _begin(screen: Screen, stage: Stage, story: Story) -> bool:
    if not _seen(screen, stage, Step("The start", story.introduce)):
        return False
    screen.say(
        "You will see each line of code that runs, the commands that Redis receives (as its own MONITOR shows them: "
        "the bytes are real, only line breaks are added), and what the workers print. In a job's bytes, + marks new "
        "parts and ~ changed ones."
    )
    return True


def _seen(screen: Screen, stage: Stage, step: Step) -> bool:
    try:
        step.play()
    except SidekiqError as error:
        screen.failure(f"{step.title}: {error}")
        for worker in stage.workers:
            screen.raw(f"--- the last lines of {worker.name} (pid {worker.pid})\n{worker.tail()}")
        return False
    return True


def _balance(stage: Stage, story: Story) -> None:
    """Stop the workers cleanly. No job may be left after that, and the counters of both languages must add up."""
    for worker in stage.workers:
        if worker.is_running:
            stage.screen.command(f"kill -TERM {worker.pid}")
            code = worker.stop()
            if code != 0:
                raise NotSeenError(f"{worker.name} exited with code {code}")
    stats = Stats()
    waiting = stats.enqueued, RetrySet().size, ScheduledSet().size, DeadSet().size
    in_flight = sum(count.count for count in in_flight_counts.counts(stage.pool))
    stage.screen.redis(f"GET stat:processed => {stats.processed}, GET stat:failed => {stats.failed}")
    places = ("queues", "retry", "schedule", "dead", "in flight")
    counts = ", ".join(f"{place} {count}" for place, count in zip(places, (*waiting, in_flight), strict=True))
    stage.screen.redis(f"jobs left in: {counts}")
    if (stats.processed, stats.failed) != (story.runs, story.failures):
        raise NotSeenError(f"expected {story.runs} runs, {story.failures} of them failed")
    if any(waiting) or in_flight:
        raise NotSeenError(f"jobs are left: {counts}")
    stage.screen.seen(f"{story.runs} runs, of which {story.failures} failed. Every job ran, and none is left.")


@contextmanager
def _stage(redis: PrivateRedis, screen: Screen) -> Iterator[Stage]:
    pool = Pool(RedisSettings(redis.url))
    with tempfile.TemporaryDirectory(prefix="sidekiq-py-demo-") as folder:
        stage = Stage(screen, pool, Tape(pool), Path(folder))
        try:
            yield stage
        finally:
            stage.close()


@contextmanager
def _story(stage: Stage, redis: PrivateRedis, with_ruby: bool) -> Iterator[Story]:
    ruby = find_ruby() if with_ruby else None
    if ruby is None:
        sidekiq.configure(redis_url=redis.url, namespace="", sidekiq_version=recorded.SIDEKIQ_VERSION)
        yield recorded.Recorded(stage, recorded.NO_RUBY if with_ruby else "Not used, as requested")
        return
    sidekiq.configure(redis_url=redis.url, namespace="")
    write_ruby_support(stage.folder)
    console = RubyConsole(redis_url=redis.url, folder=stage.folder)
    try:
        yield live.Live(stage, ruby, console)
    finally:
        console.stop()
