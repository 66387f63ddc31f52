"""`sidekiq-celery worker --probe-port`: in all pools, beside remote control or without it."""

import os
import signal
from types import ModuleType

import pytest

pytest.importorskip("prometheus_client")

from tests.compat.worker.conftest import PROJECT
from tests.probes.test_probes import Probes
from tests.support.celery_program import StartWorker, wait_for_an_answer
from tests.support.waiting import eventually
from tests.support.worker_process import _process_tree

PREFORK = ("-P", "prefork", "-c", "2")


@pytest.mark.parametrize("arguments", [("-P", "threads", "-c", "2"), ("-P", "solo"), PREFORK])
def test_a_worker_is_live_and_ready_and_tells_what_it_ran(
    start: StartWorker, project: ModuleType, arguments: tuple[str, ...]
) -> None:
    """And heeds remote control all the same."""
    probes = Probes()
    start(*arguments, "--probe-port", str(probes.port), processes=2 if arguments is PREFORK else 1)
    eventually(lambda: probes.is_good("live") and probes.is_good("ready"))

    for number in range(4):
        project.add.delay(number, 1)

    executed = ("sidekiq_jobs_executed_total", f"{PROJECT}.add")
    eventually(lambda: probes.counts().get(executed) == 4)
    wait_for_an_answer(project.app, limit=1)
    assert probes.is_good("live")


def test_a_child_that_stands_still_makes_the_worker_not_live(start: StartWorker) -> None:
    """Whoever restarts it brings its tasks back."""
    probes = Probes()
    worker = start(*PREFORK, "--probe-port", str(probes.port), processes=2)
    eventually(lambda: probes.is_good("live"))
    # The first one that is forked answers.
    child = sorted(_process_tree(worker.pid))[-1]

    def asked_while_frozen() -> str:
        os.kill(child, signal.SIGSTOP)
        try:
            return probes.ask("live", seconds=30)[1]
        finally:
            os.kill(child, signal.SIGCONT)

    # A child stands in Redis a moment before it has told its parent that it has started, and is not asked until then.
    eventually(lambda: f"{child}: gives no answer" in asked_while_frozen(), within_seconds=60)
    eventually(lambda: probes.is_good("live"))


def test_without_remote_control_a_process_beside_the_children_answers_as_well(start: StartWorker) -> None:
    """It has nothing else to do then."""
    probes = Probes()

    start(*PREFORK, "--probe-port", str(probes.port), processes=2, WITHOUT_REMOTE_CONTROL="1")

    eventually(lambda: probes.is_good("live") and probes.is_good("ready"))
    assert probes.ask("metrics")[0] == 200
