"""
Plays histories of jobs with the parts of sidekiq_py, as `ruby_fixtures/history.rb` does with Ruby's.

Run it as `python -m interop_tests.support.history_engine`, with REDIS_URL and FIXTURE_SIDEKIQ_VERSION set. It reads one
history per line as JSON from stdin, and writes a line of JSON to stdout for each.
"""

# The clock must be frozen before other modules bind it by name; the second import registers the jobs.
from interop_tests.support import frozen_world, python_jobs  # noqa: F401  # isort: skip

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from sidekiq_py import program
from sidekiq_py.api import DeadSet, Queue, RetrySet, ScheduledSet
from sidekiq_py.client import jids
from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.engine.ownership.pending_deaths import PendingDeaths
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.run.attempt import Surroundings
from sidekiq_py.engine.run.foreign_features import ForeignFeatures
from sidekiq_py.engine.run.interrupts import SoftLimits
from sidekiq_py.engine.run.manager import Manager
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.engine.run.processed_count import ProcessedCount
from sidekiq_py.engine.run.work_state import WorkState
from sidekiq_py.engine.upkeep.promoter import Promoter
from sidekiq_py.hooks import Hooks
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.registry import registry
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps, loads

SETS = {"schedule": ScheduledSet, "retry": RetrySet, "dead": DeadSet}
Step = dict[str, Any]
_PATIENCE_SECONDS = 60.0


class OneJob:
    """A fetcher that returns one job, and puts back what it fetched ahead."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._has_fetched = False
        self.is_over = threading.Event()

    def take(self, before_waiting: Callable[[], None] | None = None) -> UnitOfWork | None:
        """The job on the first call; None on the second one, when that job has been settled."""
        if self._has_fetched:
            self.is_over.set()
            return None
        self._has_fetched = True
        unit = self._fetcher.take(before_waiting)
        self._fetcher.quiet()
        if unit is None:
            self.is_over.set()
        return unit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)


class Engine:
    """The parts of a worker, one step at a time."""

    def __init__(self) -> None:
        self._client = Client()
        self._pool = self._client.pool
        self._promoter = Promoter(
            self._config("default").dead_limits,
            pool=self._pool,
            repush=self._client.repush,
            dialect=self._dialect,
            report=_raise,
        )

    def run_next(self, queue: str) -> str | None:
        """Fetch the next job of *queue* and run it. Returns the message of the error that it raised, if any."""
        config = self._config(queue)
        [capsule] = config.capsules
        raised: list[str] = []
        hooks = Hooks()
        hooks.on_error(lambda error, _context: raised.append(str(error)))
        processed = ProcessedCount(self._pool)
        ownership = Ownership("history", [queue], config.lease_seconds)
        fetcher = ReliableFetcher(capsule, config, self._pool, ownership, report=_raise, count=processed.add)
        one_job = OneJob(fetcher)
        Manager(capsule, one_job, self._surroundings(config, hooks, ownership), SoftLimits(), None).start()
        if not one_job.is_over.wait(_PATIENCE_SECONDS):
            raise TimeoutError("the job was not fetched, or did not end")
        fetcher.close()
        processed.flush()
        return raised[0] if raised else None

    def promote(self) -> None:
        """Move the due jobs."""
        self._promoter.move_due()

    def _surroundings(self, config: Config, hooks: Hooks, ownership: Ownership) -> Surroundings:
        return Surroundings(
            config=config,
            registry=registry,
            chain=Chain(),
            hooks=hooks,
            state=WorkState(),
            metrics=ExecutionMetrics(),
            context=JobContext(),
            identity="history",
            dialect=self._dialect,
            repush=self._client.repush,
            foreign=ForeignFeatures(
                config,
                hooks,
                fetchers=list,
                on_unserved=lambda queue: None,
                is_stopping=lambda: False,
                takes_over=lambda key, payload: False,
            ),
            extensions=LoadedExtensions(),
            pending_deaths=PendingDeaths(self._pool, ownership, hooks, self._dialect),
            is_stopping=lambda: False,
        )

    def _dialect(self) -> Any:
        return self._client.detection.last

    def _config(self, queue: str) -> Config:
        settings = program.settings()
        capsule = CapsuleConfig(concurrency=1, queues=(QueueConfig(queue),))
        return Config(capsules=(capsule,), redis=settings.redis, sidekiq_version=settings.sidekiq_version)


class History:
    """Plays one history; each kind of step is a method."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._client = Client()

    def live(self, steps: list[Step]) -> dict[str, Any]:
        """Take all steps. Returns what each one returned."""
        return {"answers": [self._take(step) for step in steps]}

    def _take(self, step: Step) -> Any:
        frozen_world.enter(step["now"], step["draw"])
        return getattr(self, f"_do_{step['do']}")(step)

    def _do_perform_async(self, step: Step) -> str | None:
        jid: str | None = _job(step).perform_async(*step["args"])
        return jid

    def _do_perform_in(self, step: Step) -> str | None:
        jid: str | None = _job(step).perform_in(step["interval"], *step["args"])
        return jid

    def _do_push(self, step: Step) -> str | None:
        return self._client.push(step["item"])

    def _do_write(self, step: Step) -> None:
        """Write what another program has written."""
        if "score" in step:
            self._client.pool.command("ZADD", step["key"], step["score"], step["text"])
        else:
            self._client.pool.command("LPUSH", step["key"], step["text"])

    def _do_run(self, step: Step) -> str | None:
        return self._engine.run_next(step["queue"]) if Queue(step["queue"]).size else None

    def _do_promote(self, _step: Step) -> None:
        self._engine.promote()

    def _do_entry(self, step: Step) -> None:
        entries = sorted(SETS[step["set"]](), key=lambda entry: (entry.score, entry.value))
        if not entries:
            return
        entry = entries[step["number"] % len(entries)]
        if step["deed"] == "reschedule" and dumps(loads(entry.value), self._float_text) != entry.value:
            return
        getattr(entry, step["deed"])(*([step["at"]] if "at" in step else []))

    def _do_all(self, step: Step) -> None:
        getattr(SETS[step["set"]](), step["deed"])()

    def _do_delete_queued(self, step: Step) -> None:
        jobs = list(Queue(step["queue"]))
        if jobs:
            jobs[step["number"] % len(jobs)].delete()

    def _do_clear_queue(self, step: Step) -> None:
        Queue(step["queue"]).clear()

    @property
    def _float_text(self) -> FloatText:
        return self._client.detection.last.float_text


def _job(step: Step) -> Any:
    definition = registry.find(step["job"])
    assert definition is not None
    return definition.job.set(step["set"]) if step.get("set") else definition.job


def _raise(error: BaseException, context: dict[str, Any]) -> None:
    raise AssertionError(f"{context}: {error!r}") from error


def main() -> None:
    """Play one history per line, until there are no more."""
    jids._AT_ONCE = 1
    program.configure(redis_url=os.environ["REDIS_URL"])
    engine = Engine()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(History(engine).live(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
