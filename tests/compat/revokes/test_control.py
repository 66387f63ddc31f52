"""Revokes and rate limits by remote control, with workers of each kind."""

from types import ModuleType
from typing import Any

import pytest
import redis
from sidekiq_celery.exceptions import TaskRevokedError

from tests.support.celery_program import StartWorker, noted, wait_for_an_answer
from tests.support.waiting import eventually

WAIT_SECONDS = 60


def listening(project: ModuleType) -> None:
    """Wait until the worker listens: what is said before that is not heard."""
    wait_for_an_answer(project.app, limit=1)


def answer(project: ModuleType, command: str, **arguments: Any) -> Any:
    """What the one worker replies."""
    listening(project)
    replies = project.app.control.broadcast(command, arguments=arguments, reply=True, timeout=WAIT_SECONDS, limit=1)
    [reply] = replies[0].values()
    return reply


def test_a_process_that_runs_a_revoked_task_is_killed(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis
) -> None:
    """The task is settled as revoked and never recovered; what the others run goes on, and a new process comes."""
    start("-c", "2", processes=2)
    bad, good = project.sleep_long.delay("bad"), project.sleep_long.delay("good")
    [pid] = eventually(lambda: noted(redis_client, "bad"))
    eventually(lambda: noted(redis_client, "good"))

    reply = answer(project, "revoke", task_id=bad.id, terminate=True, signal="KILL")

    assert reply == {"ok": f"terminate: {bad.id}"}
    with pytest.raises(TaskRevokedError):
        bad.get(timeout=WAIT_SECONDS)
    assert project.quick.delay(3).get(timeout=WAIT_SECONDS) == 3
    assert noted(redis_client, "bad") == [pid]
    assert noted(redis_client, "revoked") == [f"{bad.id} True SIGKILL False"]
    assert len(noted(redis_client, "good")) == 1
    assert (good.state, redis_client.exists("sidekiq_py:suspects")) == ("PENDING", 0)


@pytest.mark.parametrize("signal", ["TERM", "HUP", "QUIT", None])
def test_a_terminated_task_tidies_up(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis, signal: str | None
) -> None:
    """These raise SystemExit in it, as in Celery's processes; it ends as revoked, in a process that is replaced."""
    worker = start("-c", "1")
    result = project.tidies_up.delay()
    [pid] = eventually(lambda: noted(redis_client, "tidy"))

    assert answer(project, "revoke", task_id=result.id, terminate=True, signal=signal) == {
        "ok": f"terminate: {result.id}"
    }

    with pytest.raises(TaskRevokedError):
        result.get(timeout=WAIT_SECONDS)
    eventually(lambda: noted(redis_client, "tidied up") == ["tidy"])
    assert noted(redis_client, "caught") == ["SystemExit"]
    assert project.process_id.delay().get(timeout=WAIT_SECONDS) != int(pid)
    assert (noted(redis_client, "tidy"), result.state) == ([pid], "REVOKED")
    assert redis_client.zcard("retry") == redis_client.zcard("dead") == 0
    assert "was killed by" not in worker.log


def test_a_task_with_handlers_hears_the_signals_that_were_asked_for(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis
) -> None:
    """It survives them and ends as it likes; the worker takes none of them for itself, and goes on."""
    worker = start("-c", "1")
    result = project.heeds_signals.delay("SIGTERM", "SIGUSR2", "SIGALRM")
    eventually(lambda: noted(redis_client, "heeds"))

    for number, name in enumerate(("TERM", "USR2", "ALRM"), 1):
        answer(project, "terminate", task_id=[result.id], signal=name)
        eventually(lambda number=number: len(noted(redis_client, "heard")) == number)

    assert noted(redis_client, "heard") == ["SIGTERM", "SIGUSR2", "SIGALRM"]
    assert project.quick.delay(3).get(timeout=WAIT_SECONDS) == 3
    assert result.state == "REVOKED"
    assert "was killed" not in worker.log


def test_what_survives_one_signal_is_ended_by_the_next(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis
) -> None:
    """INT is none of a task's concern, as in Celery; KILL ends its process, without another settling."""
    start("-c", "1")
    result = project.tidies_up.delay()
    [pid] = eventually(lambda: noted(redis_client, "tidy"))

    for signal in ("INT", "INT", "KILL"):
        assert answer(project, "terminate", task_id=[result.id], signal=signal) == {"ok": f"terminate: {result.id}"}

    assert project.process_id.delay().get(timeout=WAIT_SECONDS) != int(pid)
    assert noted(redis_client, "tidied up") == []
    assert noted(redis_client, "revoked") == [f"{result.id} True SIGINT False"]


def test_a_signal_without_a_handler_ends_the_process(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis
) -> None:
    """As the system has it."""
    worker = start("-c", "1")
    result = project.tidies_up.delay()
    eventually(lambda: noted(redis_client, "tidy"))

    answer(project, "terminate", task_id=[result.id], signal="ALRM")

    assert project.quick.delay(3).get(timeout=WAIT_SECONDS) == 3
    eventually(lambda: "was killed by SIGALRM" in worker.log)
    assert (noted(redis_client, "tidied up"), result.state) == ([], "REVOKED")


@pytest.mark.parametrize("name", ["sleep_once", "sleep_once_with_result"])
def test_a_task_that_runs_at_most_once_is_terminated(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis, name: str
) -> None:
    """Though it has left Redis; the worker goes on with its one process replaced."""
    start("-c", "1")
    result = getattr(project, name).delay()
    eventually(lambda: noted(redis_client, "once"))
    listening(project)

    result.revoke(terminate=True)

    eventually(lambda: noted(redis_client, "revoked") == [f"{result.id} True SIGTERM False"])
    assert project.quick.delay(3).get(timeout=WAIT_SECONDS) == 3
    assert len(noted(redis_client, "once")) == 1
    assert redis_client.zcard("retry") == redis_client.zcard("dead") == 0


@pytest.mark.parametrize("pool", ["asyncio", "threads"])
def test_a_coroutine_is_cancelled(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis, pool: str
) -> None:
    """In the pool that goes on; it may clean up."""
    start("-P", pool)
    result = project.sleep_on_loop.delay()
    eventually(lambda: noted(redis_client, "loop"))

    reply = answer(project, "terminate", task_id=[result.id], signal="TERM")

    assert reply == {"ok": f"terminate: {result.id}"}
    with pytest.raises(TaskRevokedError):
        result.get(timeout=WAIT_SECONDS)
    assert noted(redis_client, "cleaned up") == ["loop"]
    eventually(lambda: noted(redis_client, "revoked") == [f"{result.id} True SIGTERM False"])


def test_a_thread_cannot_be_ended_which_is_said(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis
) -> None:
    """The revoke holds all the same."""
    start("-P", "threads", "-c", "2")
    result = project.sleep_long.delay()
    eventually(lambda: noted(redis_client, "slow"))

    reply = answer(project, "revoke", task_id=result.id, terminate=True)

    assert "only -P prefork can kill a task" in reply["error"]
    assert answer(project, "revoked") == [result.id]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_usr1_lets_a_task_clean_up(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis, pool: str
) -> None:
    """As it raises the soft limit in Celery's processes; the task ends as it likes."""
    start("-P", pool, "-c", "1")
    result = project.cleans_up.delay()
    eventually(lambda: noted(redis_client, "cleaning"))

    reply = answer(project, "revoke", task_id=result.id, terminate=True, signal="SIGUSR1")

    assert reply == {"ok": f"terminate: {result.id}"}
    assert result.get(timeout=WAIT_SECONDS) == "cleaned up"


def test_stamped_tasks_are_terminated(project: ModuleType, start: StartWorker, redis_client: redis.Redis) -> None:
    """All that bear the stamp; those that wait never start."""
    start("-c", "1")
    running = project.sleep_long.apply_async(stamped_headers=["customer"], customer="4")
    eventually(lambda: noted(redis_client, "slow"))
    waiting = project.sleep_long.apply_async(("waiting",), stamped_headers=["customer"], customer=["4"])
    listening(project)

    project.app.control.revoke_by_stamped_headers({"customer": ["4"]}, terminate=True)

    for result in (running, waiting):
        with pytest.raises(TaskRevokedError):
            result.get(timeout=WAIT_SECONDS)
    assert noted(redis_client, "waiting") == []


def test_commands_that_cannot_be_obeyed_say_why(project: ModuleType, start: StartWorker) -> None:
    """And what does not run is not known."""
    start("-P", "solo")

    assert answer(project, "revoke", task_id="none", terminate=True) == {"ok": "terminate: tasks unknown"}
    assert answer(project, "revoke", task_id=["a", "b"]) == {"ok": "tasks {'a', 'b'} flagged as revoked"}
    stamped = answer(project, "revoke_by_stamped_headers", headers={"tenant": ["a"]}, terminate=True)
    assert stamped == {"ok": "headers {'tenant': ['a']} were not terminated"}
    many = answer(project, "revoke", task_id=[f"x{number}" for number in range(250)])
    assert many["ok"].endswith(", 'x99' and 150 more} flagged as revoked")
    assert "SIGNONE" in answer(project, "revoke", task_id="a", signal="NONE", terminate=True)["error"]
    assert "999" in answer(project, "revoke", task_id="a", signal=999, terminate=True)["error"]
    assert answer(project, "rate_limit", task_name="nobodys", rate_limit="1/s") == {"error": "unknown task"}
    assert "Invalid rate limit" in answer(project, "rate_limit", task_name=project.rare.name, rate_limit="x")["error"]


def test_a_rate_limit_is_changed_by_remote_control(
    project: ModuleType, start: StartWorker, redis_client: redis.Redis
) -> None:
    """For those who wait, too; and it may be lifted."""
    start("-c", "2", processes=2)
    results = [project.rare.delay(number) for number in range(3)]
    eventually(lambda: redis_client.zcard("schedule") == 2)

    reply = answer(project, "rate_limit", task_name=project.rare.name, rate_limit=0)

    assert reply == {"ok": "rate limit disabled successfully"}
    assert [result.get(timeout=WAIT_SECONDS) for result in results] == [0, 1, 2]
