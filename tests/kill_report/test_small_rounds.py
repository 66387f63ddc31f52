"""A small round of each campaign of the reliability report: it comes to its end, and its books balance."""

import os
import shutil
from collections.abc import Callable
from functools import partial

import pytest
from sidekiq_celery import Celery, chord

from kill_report.__main__ import play
from kill_report.campaigns import CAMPAIGNS, Campaign, workflows
from kill_report.campaigns.process_kills import finish
from kill_report.stage import Stage
from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually

# Beside Ruby, and so in interop_tests.
BESIDE_RUBY = ("batches", "failovers", "mixed-fleets")
SCALE = 0.05

# Each starts processes one after the other, which a busy machine makes wait.
pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", [name for name in CAMPAIGNS if name not in BESIDE_RUBY])
def test_a_small_round_loses_nothing(name: str, report: Callable[[object], None]) -> None:
    """Jobs ran, harm was done, nothing is lost and nothing ran twice without a reason."""
    if name == "machines" and (shutil.which("ip") is None or os.geteuid() != 0):
        skip_or_fail("network namespaces need root and iproute2; on Debian: apt-get install iproute2", switch="CI")

    one = play(CAMPAIGNS[name], seed=20_261_122, scale=SCALE)

    report(f"{name}: {one.jobs} jobs, {dict(one.faults)}")
    assert one.problem == ""
    assert one.jobs
    assert one.faults.total()


def test_a_round_whose_jobs_vanish_or_run_twice_is_a_problem() -> None:
    """One job is taken out of its queue by somebody, and one is put there twice: the books name both."""

    def steal(stage: Stage) -> set[int]:
        fleet = stage.fleet()
        stage.push(fleet, 20, ["tick"])
        fleet.client.delete("schedule", "queue:low")
        stage.expected = stage.standing(fleet.client)
        fleet.client.rpop("queue:default")
        copied = fleet.client.lindex("queue:default", 0)
        fleet.client.lpush("queue:default", copied)
        fleet.start()
        return finish(stage, fleet)

    one = play(Campaign("thief", "A thief", steal, rounds=1), seed=1, scale=1)

    assert one.lost == 1
    assert one.repeats == {"unexplained": 1}
    assert one.problem.startswith("lost: (")


def test_the_body_of_a_chord_whose_part_is_a_poison_pill_is_not_lost() -> None:
    """The part goes to `dead` when four processes have been killed while running it, and the body never runs."""

    def kill_four_times(stage: Stage) -> set[int]:
        fleet = stage.fleet()
        app = Celery("campaign", broker=fleet.redis_url, backend=fleet.redis_url, set_as_current=False, fixups=[])
        stage.exits.callback(app.close)
        pill, other, body = (app.signature("step", (n, 0 if n else 60), immutable=True) for n in range(3))
        chord([pill, other], body, app=app).apply_async()
        stage.expected |= {0, 1, 2}
        for _ in range(4):
            worker = workflows.celery_worker(stage, fleet, "threads")
            eventually(partial(_runs_pill, stage, worker.pid))
            stage.kill(worker.pid, "worker with a poison pill")
            worker.wait()
        workflows.celery_worker(stage, fleet, "threads")
        return workflows.finish(stage, fleet, {0: {2}, 1: {2}, 2: set()})

    one = play(Campaign("pill", "A poison pill in a chord", kill_four_times, rounds=1), seed=1, scale=1)

    assert one.problem == ""
    assert one.lost == 0
    assert one.unended_in_dead == 2


def _runs_pill(stage: Stage, pid: int) -> bool:
    return any((run.number, run.pid) == (0, pid) for run in stage.ledger.runs())
