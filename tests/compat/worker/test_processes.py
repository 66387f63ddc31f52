"""Workers as processes: what they run, what they tell the program, and how they end."""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from sidekiq_celery.exceptions import TimeLimitExceeded

from tests.support.celery_program import StartWorker, noted
from tests.support.process_states import has_ended
from tests.support.waiting import eventually

_SECONDS = 60


def running_task(redis_client: redis.Redis, project: ModuleType) -> Any:
    """A task that has started, and waits until it is told to finish."""
    sent = project.finish_when_told.delay()
    eventually(lambda: noted(redis_client, "slow"), within_seconds=_SECONDS)
    return sent


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "asyncio"])
def test_each_pool_runs_tasks_and_coroutines(pool: str, start: StartWorker, project: ModuleType) -> None:
    """Both kinds, in every pool."""
    worker = start("-P", pool, "-c", "1", "-n", "w1@%n")

    assert project.add.delay(2, 3).get(timeout=_SECONDS) == 5
    assert project.coroutine.delay().get(timeout=_SECONDS) == "from the loop"
    assert project.where.delay().get(timeout=_SECONDS).startswith("w1@")
    # What was loaded before the first task is nothing to look through again and again.
    assert project.settled.delay().get(timeout=_SECONDS) > 10_000
    assert worker.stop() == 0


def test_a_child_tells_once_that_it_starts_and_ends(
    start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """The parent's signals come from the parent, the children's from each child."""
    worker = start("-c", "2", "-l", "INFO", processes=2)
    eventually(lambda: "worker_ready" in " ".join(noted(redis_client, "signals")), within_seconds=_SECONDS)
    parent = worker.pid
    assert worker.stop() == 0

    told = [line.split() for line in noted(redis_client, "signals")]
    by_parent = [name for name, pid in told if int(pid) == parent]
    children = Counter(pid for name, pid in told if name == "worker_process_init")

    assert by_parent == [
        *("celeryd_init", "worker_init", "celeryd_after_setup", "worker_ready", "worker_shutting_down"),
        "worker_shutdown",
    ]
    assert sorted(children.values()) == [1, 1]
    assert {pid for name, pid in told if name == "worker_process_shutdown"} == set(children)
    assert str(parent) not in children
    assert noted(redis_client, "how") == ["SIGTERM Warm"]


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_tool_may_replace_what_begins_and_ends_a_process(
    start: StartWorker, redis_client: redis.Redis, project: ModuleType, pool: str
) -> None:
    """As New Relic does, to connect in each process that runs tasks; both tell their receivers the worker's name."""
    worker = start("-c", "1", "-P", pool, "-n", "w1@here", REPLACED_INITIALIZER="1")
    assert worker.stop() == 0

    assert noted(redis_client, "initialized") == ["w1@here"]
    assert noted(redis_client, "destructed") == ["True"]
    senders = noted(redis_client, "senders")
    assert "worker_process_init w1@here" in senders
    assert "worker_process_shutdown w1@here" in senders


def test_the_log_shows_what_tasks_print_and_log(start: StartWorker, project: ModuleType) -> None:
    """The banner, lines of tasks with their ids, and what was printed as warnings."""
    worker = start("-c", "1", "-l", "INFO", "--without-gossip")
    sent = project.add.delay(1, 1)
    sent.get(timeout=_SECONDS)
    worker.stop()

    assert "concurrency  1 (prefork)" in worker.log
    assert "WARNING/ForkPoolWorker-1] printed by a task" in worker.log
    assert f"tests.compat.worker.project.add[{sent.id}]: logged by a task" in worker.log
    assert worker.log.count("--without-gossip: there is no gossip") == 1


def test_a_term_lets_a_task_finish(start: StartWorker, redis_client: redis.Redis, project: ModuleType) -> None:
    """However long it takes."""
    worker = start("-c", "1")
    sent = running_task(redis_client, project)

    worker.send_signal(signal.SIGTERM)
    eventually(lambda: noted(redis_client, "how"), within_seconds=_SECONDS)
    redis_client.rpush("finish", "now")

    assert worker.wait(_SECONDS) == 0
    assert sent.get(timeout=_SECONDS) == "finished"


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_term_lets_a_task_finish_although_a_log_handler_raises(
    pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """With threads or solo, too: the error must not end the worker in the middle of its task."""
    worker = start("-c", "1", "-P", pool, "-l", "INFO", BROKEN_LOG="1")
    sent = running_task(redis_client, project)

    worker.send_signal(signal.SIGTERM)
    eventually(lambda: "the log server is gone" in worker.log, within_seconds=_SECONDS)
    redis_client.rpush("finish", "now")

    assert worker.wait(_SECONDS) == 0
    assert sent.get(timeout=_SECONDS) == "finished"


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_an_interrupted_worker_ends_with_one(
    pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """As in Celery, so that a script that starts a worker sees that someone pressed Ctrl-C."""
    worker = start("-c", "1", "-P", pool)

    worker.send_signal(signal.SIGINT)

    assert worker.wait(_SECONDS) == 1
    assert noted(redis_client, "how") == ["SIGINT Warm"]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_quit_puts_a_task_back(pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType) -> None:
    """The job is in its queue again when the worker has ended."""
    worker = start("-c", "1", "-P", pool)
    project.sleep_long.delay()
    eventually(lambda: noted(redis_client, "slow"), within_seconds=_SECONDS)

    worker.send_signal(signal.SIGQUIT)

    assert worker.wait(_SECONDS) == 0
    assert redis_client.llen("queue:celery") == 1


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_term_is_a_quit_if_the_environment_says_so(
    pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """Platforms that send TERM and soon KILL set `REMAP_SIGTERM`, as for Celery. A warm stop would be cut off."""
    worker = start("-c", "1", "-P", pool, REMAP_SIGTERM="SIGQUIT")
    project.sleep_long.delay()
    eventually(lambda: noted(redis_client, "slow"), within_seconds=_SECONDS)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(_SECONDS) == 0
    assert redis_client.llen("queue:celery") == 1


def test_a_second_term_does_not_wait(start: StartWorker, redis_client: redis.Redis, project: ModuleType) -> None:
    """Sent until it is heeded: two within a moment are one."""
    worker = start("-c", "1")
    project.sleep_long.delay()
    eventually(lambda: noted(redis_client, "slow"), within_seconds=_SECONDS)

    def ended() -> bool:
        if worker.is_running:
            worker.send_signal(signal.SIGTERM)
        return not worker.is_running

    eventually(ended, within_seconds=_SECONDS, every_seconds=0.5)
    assert redis_client.llen("queue:celery") == 1


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_worker_that_can_open_no_files_does_not_wait_for_its_tasks(
    pool: str, start: StartWorker, project: ModuleType
) -> None:
    """The task that leaked them has ended, but that cannot be written to Redis."""
    worker = start("-c", "1", "-P", pool, "-l", "INFO", NOTICED_SOON="1")

    project.leak_files.delay()

    if pool == "prefork":
        eventually(lambda: "ended with exit code 1" in worker.log, within_seconds=_SECONDS)
    else:
        assert worker.wait(_SECONDS) == 1


def test_a_task_past_its_time_limit_is_killed(start: StartWorker, project: ModuleType) -> None:
    """By the worker's own limit, or the call's; the child is replaced and works on. The log says it as in Celery."""
    worker = start("-c", "1", "--time-limit", "1")

    killed = project.sleep_long.delay()
    with pytest.raises(TimeLimitExceeded):
        killed.get(timeout=_SECONDS)
    with pytest.raises(TimeLimitExceeded, match=r"\(1,\)"):
        project.sleep_long.apply_async(time_limit=1).get(timeout=_SECONDS)
    assert project.add.delay(1, 2).get(timeout=_SECONDS) == 3
    assert worker.stop() == 0
    assert f"Hard time limit (1s) exceeded for {project.sleep_long.name}[{killed.id}]" in worker.log


def test_a_soft_limit_is_raised_in_the_task(start: StartWorker, project: ModuleType) -> None:
    """It can clean up. The log says it as in Celery, as the task may tell nobody."""
    worker = start("-c", "1", "--soft-time-limit", "0.5")

    sent = project.cleaned_up.delay()

    assert sent.get(timeout=_SECONDS) == "cleaned up"
    assert worker.stop() == 0
    assert f"Soft time limit (0.5s) exceeded for {project.cleaned_up.name}[{sent.id}]" in worker.log


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_soft_limit_interrupts_a_sleep_in_the_main_thread(start: StartWorker, project: ModuleType, pool: str) -> None:
    """In these two pools tasks run there, as in Celery."""
    start("-P", pool, "-c", "1", "--soft-time-limit", "0.5")

    assert project.slept.delay(600).get(timeout=_SECONDS) == "woken in MainThread"


def test_it_serves_the_queues_it_is_given(start: StartWorker, redis_client: redis.Redis, project: ModuleType) -> None:
    """And no other."""
    start("-c", "1", "-Q", "high,low")
    project.add.apply_async((1, 1), queue="other")

    assert project.add.apply_async((1, 1), queue="low").get(timeout=_SECONDS) == 2
    assert project.add.apply_async((2, 2), queue="high").get(timeout=_SECONDS) == 4
    assert redis_client.llen("queue:other") == 1


@pytest.mark.parametrize(("most", "told"), [(1, "1 task"), (2, "2 tasks")])
def test_a_child_is_replaced_after_its_share_of_tasks(
    start: StartWorker, project: ModuleType, most: int, told: str
) -> None:
    """By the setting as by `--max-tasks-per-child`; a child never runs more."""
    worker = start("-c", "1", "-l", "INFO", MOST_TASKS=str(most))

    sent = [project.pid.delay() for _ in range(3 * most)]
    runs = Counter(one.get(timeout=_SECONDS) for one in sent)

    assert sorted(runs.values()) == [most, most, most]
    eventually(lambda: f"this process has run {told} and is replaced" in worker.log, within_seconds=_SECONDS)


def test_a_pidfile_is_there_while_it_runs(start: StartWorker, tmp_path: Path, project: ModuleType) -> None:
    """With the parent's id; the node's name may be in the path."""
    worker = start("-c", "1", "-n", "w7@here", "--pidfile", str(tmp_path / "%n.pid"))
    file = tmp_path / "w7.pid"

    assert int(file.read_text()) == worker.pid
    worker.stop()
    assert not file.exists()


def test_settings_may_follow_the_options(start: StartWorker, project: ModuleType, tmp_path: Path) -> None:
    """As in Celery: `worker.log_format=…`."""
    log = tmp_path / "worker.log"
    worker = start("-c", "1", "-f", str(log), "--", "worker.redirect_stdouts=false")
    project.add.delay(1, 1).get(timeout=_SECONDS)
    worker.stop()

    assert "printed by a task" not in log.read_text()
    assert "printed by a task" in worker.log
    assert "logged by a task" in log.read_text()


def test_a_worker_whose_parent_was_killed_leaves_nothing_behind(start: StartWorker, project: ModuleType) -> None:
    """The children end by themselves."""
    worker = start("-c", "2", processes=2)
    children = {project.pid.delay().get(timeout=_SECONDS) for _ in range(4)}
    worker.kill()

    def are_gone() -> bool:
        return not any(os.path.exists(f"/proc/{pid}") for pid in children)

    eventually(are_gone, within_seconds=_SECONDS)


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_hup_starts_it_anew(pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType) -> None:
    """In the same process, with the program imported once more. What tasks had started for themselves is gone."""
    worker = start("-c", "1", "-P", pool)
    eventually(lambda: "worker_ready" in " ".join(noted(redis_client, "signals")), within_seconds=_SECONDS)
    used = project.use_a_pool.delay().get(timeout=_SECONDS)

    worker.send_signal(signal.SIGHUP)

    def has_started_twice() -> bool:
        return noted(redis_client, "signals").count(f"worker_ready {worker.pid}") == 2

    eventually(has_started_twice, within_seconds=_SECONDS)
    assert all(map(has_ended, used))
    assert project.add.delay(2, 2).get(timeout=_SECONDS) == 4
    assert worker.stop() == 0


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_hup_lets_tasks_finish_although_term_does_not(
    pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """As in Celery, where `REMAP_SIGTERM` changes the meaning of TERM alone."""
    worker = start("-c", "1", "-P", pool, REMAP_SIGTERM="SIGQUIT")
    sent = running_task(redis_client, project)

    worker.send_signal(signal.SIGHUP)
    eventually(lambda: noted(redis_client, "how"), within_seconds=_SECONDS)
    redis_client.rpush("finish", "now")

    assert sent.get(timeout=_SECONDS) == "finished"
    assert noted(redis_client, "how") == ["SIGTERM Warm"]


def test_settings_choose_the_pool(start: StartWorker, project: ModuleType) -> None:
    """Where no option does."""
    worker = start(processes=1, WORKER_POOL="threads")

    assert project.add.delay(2, 2).get(timeout=_SECONDS) == 4
    worker.stop()
    assert "concurrency  3 (threads)" in worker.log


def test_a_soft_shutdown_lets_tasks_finish_for_a_while(
    start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """QUIT waits for as long as `worker_soft_shutdown_timeout` says."""
    worker = start("-c", "1", SOFT_SHUTDOWN="60")
    sent = running_task(redis_client, project)

    worker.send_signal(signal.SIGQUIT)
    eventually(lambda: noted(redis_client, "how"), within_seconds=_SECONDS)
    redis_client.rpush("finish", "now")

    assert worker.wait(_SECONDS) == 0
    assert noted(redis_client, "how") == ["SIGQUIT Cold"]
    assert sent.get(timeout=_SECONDS) == "finished"


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_soft_shutdown_may_follow_a_warm_one(
    pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """QUIT waits as long then, too, whether the process or its parent passes it on."""
    worker = start("-c", "1", "-P", pool, SOFT_SHUTDOWN="60")
    sent = running_task(redis_client, project)

    worker.send_signal(signal.SIGTERM)
    eventually(lambda: noted(redis_client, "how"), within_seconds=_SECONDS)
    # Stops that come within a second count as one.
    time.sleep(1.5)
    worker.send_signal(signal.SIGQUIT)
    # Its dump of the threads comes once it has handled the QUIT.
    worker.send_signal(signal.SIGTTIN)
    eventually(lambda: "in finish_when_told" in worker.log, within_seconds=_SECONDS)
    redis_client.rpush("finish", "now")

    assert sent.get(timeout=_SECONDS) == "finished"
    assert worker.wait(_SECONDS) == 0


@pytest.mark.parametrize("pool", ["prefork", "threads"])
@pytest.mark.parametrize("first", [(signal.SIGQUIT,), (signal.SIGTERM, signal.SIGQUIT)])
def test_another_quit_ends_a_soft_shutdown(
    first: tuple[signal.Signals, ...], pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """The task goes back to its queue at once, as in Celery, and not after `worker_soft_shutdown_timeout`."""
    worker = start("-c", "1", "-P", pool, SOFT_SHUTDOWN="600")
    running_task(redis_client, project)

    for number in first:
        worker.send_signal(number)
        # Stops that come within a second count as one.
        time.sleep(1.5)

    def has_ended_by_another() -> bool:
        worker.send_signal(signal.SIGQUIT)
        return has_ended(worker.pid)

    eventually(has_ended_by_another, within_seconds=_SECONDS, every_seconds=0.5)
    assert redis_client.llen("queue:celery") == 1
