"""Celery's "Workers Guide", walked through with the command changed."""

import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

from tests.compat.documentation.conftest import WAIT_SECONDS, Run
from tests.support.celery_program import StartWorker
from tests.support.waiting import eventually


def test_several_workers_with_names(proj: ModuleType, start: StartWorker) -> None:
    """Section "Starting the worker": `-n worker1@%h`; two on one machine."""
    for name in ("worker1", "worker2"):
        start("--loglevel=INFO", "--concurrency=1", "-n", f"{name}@%h", "-Q", name, "-P", "solo")

    seen = [proj.dump_context.apply_async((1, 2), queue=name) for name in ("worker1", "worker2")]
    assert [each.get(timeout=WAIT_SECONDS)["hostname"].split("@")[0] for each in seen] == ["worker1", "worker2"]


def test_a_worker_stops_warmly(start: StartWorker) -> None:
    """Section "Stopping the worker": TERM; it says so."""
    worker = start("-l", "INFO", "-c", "1", "-Q", "nothing")

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(WAIT_SECONDS) == 0
    assert "Warm shutdown" in worker.log


def test_a_worker_stops_coldly(start: StartWorker) -> None:
    """Section "Cold Shutdown": QUIT."""
    worker = start("-c", "1", "-Q", "nothing")

    worker.send_signal(signal.SIGQUIT)

    assert worker.wait(WAIT_SECONDS) == 0


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_dump_of_threads(start: StartWorker, proj: ModuleType, pool: str) -> None:
    """Section "Process Signals": USR1 logs what each thread does, and the worker goes on."""
    worker = start("-c", "1", "-Q", "dumped", "-P", pool)

    def dumped() -> bool:
        # A child that is still starting is spared.
        worker.send_signal(signal.SIGUSR1)
        return "threading.py" in worker.log

    assert eventually(dumped, within_seconds=WAIT_SECONDS, every_seconds=0.2)
    assert proj.add.apply_async((1, 2), queue="dumped").get(timeout=WAIT_SECONDS) == 3


def test_names_in_paths(start: StartWorker, tmp_path: Path) -> None:
    """Section "Variables in file paths": `%n` in pidfile and log file."""
    start("-n", "named@here", "-Q", "nothing", "-P", "solo", f"--pidfile={tmp_path}/%n.pid", "-f", f"{tmp_path}/%n.log")

    assert eventually((tmp_path / "named.pid").exists, within_seconds=WAIT_SECONDS)
    assert eventually((tmp_path / "named.log").exists, within_seconds=WAIT_SECONDS)


def test_each_child_may_have_a_log_file(proj: ModuleType, start: StartWorker, tmp_path: Path) -> None:
    """Section "Prefork pool process index": `%i` and `%I`; a child in another's place goes on with its file."""
    options = ("-n", "named@here", "-Q", "logs", "-P", "prefork", "-l", "INFO", "--max-tasks-per-child", "1")
    start(*options, "-c", "2", "-f", f"{tmp_path}/%n%I.log", processes=2)
    start(*options, "-c", "1", "-f", f"{tmp_path}/by-%i.log")

    results = [proj.add.apply_async((1, number), queue="logs") for number in range(6)]

    assert [result.get(timeout=WAIT_SECONDS) for result in results] == [1, 2, 3, 4, 5, 6]
    of_children = [tmp_path / name for name in ("named-1.log", "named-2.log", "by-1.log")]
    assert {*tmp_path.iterdir()} == {*of_children, tmp_path / "named.log", tmp_path / "by-0.log"}

    def told() -> int:
        return sum(file.read_text().count(" succeeded in ") for file in of_children)

    eventually(lambda: told() == len(results), within_seconds=WAIT_SECONDS)


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "asyncio"])
def test_concurrency(proj: ModuleType, start: StartWorker, pool: str) -> None:
    """Section "Concurrency": the pools; eventlet and gevent are knowingly absent."""
    start("-P", pool, "-c", "2", "-Q", f"of_{pool}")

    assert proj.add.apply_async((1, 2), queue=f"of_{pool}").get(timeout=WAIT_SECONDS) == 3


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_greenlets_are_refused_with_advice(run: Run, pool: str) -> None:
    """Section "Concurrency"."""
    refused = run("-A", "tests.compat.documentation.proj", "worker", "-P", pool)

    assert refused.returncode != 0
    assert "threads" in refused.stderr


def test_a_task_cleans_up_at_its_soft_limit(tasks: ModuleType) -> None:
    """Section "Time Limits"."""
    assert tasks.cleans_up.delay().get(timeout=WAIT_SECONDS) == "cleaned up"


def test_options_of_children_and_scaling_are_taken(proj: ModuleType, start: StartWorker) -> None:
    """Sections "Max tasks per child setting", "Max memory per child setting" and "Autoscaling"."""
    start("-c", "1", "-Q", "child", "--max-tasks-per-child=2", "--max-memory-per-child=500000", "--autoscale=2,1")

    results = [proj.add.apply_async((i, i), queue="child") for i in range(4)]
    assert [result.get(timeout=WAIT_SECONDS) for result in results] == [0, 2, 4, 6]


def test_the_options_of_the_guide_s_service_files_are_taken(proj: ModuleType, start: StartWorker) -> None:
    """Section "Starting the worker", and "Optimizing": those without an effect are named in the log."""
    worker = start(
        "-l", "INFO", "-O", "fair", "--prefetch-multiplier=1", "--without-gossip", "--without-mingle",
        "--without-heartbeat", "-E", "-Q", "service", "-P", "solo",
    )  # fmt: skip

    assert proj.add.apply_async((1, 2), queue="service").get(timeout=WAIT_SECONDS) == 3
    assert "options without effect here" in worker.log


def test_the_commands_that_are_not_known_say_what_to_do(run: Run) -> None:
    """Section "Restarting the worker": `multi` is for systemd here."""
    refused = run("-A", "tests.compat.documentation.proj", "multi", "start", "1")

    assert refused.returncode != 0
    assert "systemd" in refused.stderr


def test_a_queue_is_purged_by_another_command_than_in_the_faq(run: Run) -> None:
    """Celery's FAQ purges a single queue by `amqp queue.purge`."""
    refused = run("-A", "tests.compat.documentation.proj", "amqp", "queue.purge", "mails")

    assert refused.returncode != 0
    assert "`sidekiq-celery purge -Q NAME`" in refused.stderr


def test_call_result_purge_report(
    run: Run, tasks: ModuleType, client: redis.Redis, noted: Callable[..., list[str]]
) -> None:
    """Guide "Monitoring and Management Guide", section "Commands": those that need no remote control."""
    app = "tests.compat.documentation.proj"
    task_id = run("-A", app, "call", f"{app}.tasks.add", "-a", "[2, 3]").stdout.strip()
    eventually(lambda: client.get(f"celery-task-meta-{task_id}"), within_seconds=WAIT_SECONDS)
    client.rpush("queue:purged", "{}")

    assert run("-A", app, "result", task_id).stdout == "5\n"
    assert "Purged 1 message" in run("-A", app, "purge", "-f", "-Q", "purged").stdout
    assert "software -> " in run("-A", app, "report").stdout


def test_a_worker_inside_a_program(app: Any) -> None:
    """Guide "Application": `worker_main` and `start` want a command."""
    with pytest.raises(ValueError, match="worker"):
        app.worker_main(["-l", "INFO"])
