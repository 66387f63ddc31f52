"""What extensions maintain: whatever one of them does, the others have their turn."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidekiq_py.engine.upkeep.maintenance import MaintenanceThread
from sidekiq_py.extension import Maintenance
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess


class Maintained:
    """Two tasks, of which the first does as a test wants."""

    def __init__(self, redis_url: str) -> None:
        self.clock = 1000.0
        self.has_lease = True
        self.does: Any = lambda: None
        self.rounds: list[str] = []
        self.reported: list[BaseException] = []
        tasks = [Maintenance("first", 10, self._first), Maintenance("second", 10, self._second)]
        self.thread = MaintenanceThread(
            "both",
            tasks,
            Pool(RedisSettings(redis_url)),
            is_ours=lambda: self.has_lease,
            report=lambda error, context: self.reported.append(error),
            monotonic=lambda: self.clock,
        )

    def _first(self, pool: Pool) -> Any:
        self.rounds.append("first")
        return self.does()

    def _second(self, pool: Pool) -> None:
        self.rounds.append("second")


@pytest.fixture
def maintained(redis_url: str) -> Maintained:
    """With the lease."""
    return Maintained(redis_url)


@pytest.mark.parametrize(
    ("does", "error"),
    [(lambda: 1 / 0, ZeroDivisionError), (lambda: "soon", TypeError), (sys.exit, SystemExit)],
    ids=["raises", "no number", "exits"],
)
def test_a_round_that_fails_is_reported_and_does_not_keep_the_others_from_their_turn(
    maintained: Maintained, does: Any, error: type[BaseException]
) -> None:
    """It comes again with the next pause, also where what it returns is no number of seconds."""
    maintained.does = does

    pause = maintained.thread.turn()

    assert maintained.rounds == ["first", "second"]
    assert [type(reported) for reported in maintained.reported] == [error]
    assert pause == 10


def test_what_is_due_behind_a_round_that_took_long_is_left_to_who_has_the_lease_by_then(
    maintained: Maintained,
) -> None:
    """The lease passed on meanwhile, and its new holder does the rest."""

    def take_long() -> None:
        maintained.clock += 60
        maintained.has_lease = False

    maintained.does = take_long

    maintained.thread.turn()

    assert maintained.rounds == ["first"]


STUCK = """
import time
import sidekiq_py as sidekiq
from sidekiq_py.extension import Extension, Maintenance


@sidekiq.periodic("* * * * * *", name="tick")
@sidekiq.job(name="Tick")
def tick():
    print("ticked", flush=True)


class Stuck(Extension):
    name = "stuck"
    phase = "decide"

    def maintain(self):
        return (Maintenance("what never ends", 1, lambda pool: print("stuck", flush=True) or time.sleep(600)),)


sidekiq.use(Stuck())
"""


def test_an_extension_whose_maintenance_hangs_holds_up_no_other(
    start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    """Periodic jobs fire on, and the worker stops as ever."""
    (tmp_path / "stuck_here.py").write_text(STUCK)
    worker = start_worker("stuck_here")
    eventually(lambda: "stuck" in worker.log.splitlines())
    ticks = worker.log.count("ticked")

    eventually(lambda: worker.log.count("ticked") > ticks + 2)

    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
