"""Remote control in Celery's guides "Workers", "Monitoring", "First Steps" and "Next Steps", walked through."""

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from sidekiq_celery.exceptions import TaskRevokedError
from sidekiq_celery.utils.nodenames import gethostname

from tests.compat.documentation.conftest import PROJECT, WAIT_SECONDS, Run
from tests.support.celery_program import StartWorker, command, environment, wait_for_an_answer
from tests.support.worker_process import SidekiqProcess

NODE = f"controlled@{gethostname()}"


@pytest.fixture(scope="module")
def answering(guide_redis: Any) -> Iterator[SidekiqProcess]:
    """A worker of its own."""
    arguments = ("-A", PROJECT, "worker", "-n", "controlled@%h", "-c", "2", "-Q", "controlled", "-l", "INFO")
    worker = SidekiqProcess(command(*arguments), redis_url=guide_redis.url, environment=environment())
    with worker:
        yield worker.wait_until_ready(processes=2)


@pytest.fixture
def controlled(answering: SidekiqProcess, app: Any) -> Any:
    """The app, whose worker answers."""
    wait_for_an_answer(app, destination=[NODE])
    return app


def ask(app: Any, what: str, *arguments: Any) -> Any:
    """What the worker answers to `inspect().command()`."""
    asked = app.control.inspect([NODE], timeout=WAIT_SECONDS, limit=1)
    return getattr(asked, what)(*arguments)[NODE]


def tell(app: Any, what: str, *arguments: Any, **more: Any) -> Any:
    """What it answers to `control.command()`."""
    [reply] = getattr(app.control, what)(
        *arguments, reply=True, destination=[NODE], timeout=WAIT_SECONDS, limit=1, **more
    )
    return reply[NODE]


def test_a_worker_is_inspected(controlled: Any, proj: ModuleType) -> None:
    """Sections "Inspecting workers" and "Statistics"."""
    assert ask(controlled, "ping") == {"ok": "pong"}
    assert proj.add.name in ask(controlled, "registered")
    assert (ask(controlled, "active"), ask(controlled, "reserved")) == ([], [])
    assert isinstance(ask(controlled, "scheduled"), list)
    assert isinstance(ask(controlled, "revoked"), list)
    assert [queue["name"] for queue in ask(controlled, "active_queues")] == ["controlled"]
    assert ask(controlled, "stats")["pool"]["max-concurrency"] == 2
    assert ask(controlled, "conf")["include"]
    assert controlled.control.ping(destination=[NODE], timeout=30) == [{NODE: {"ok": "pong"}}]


def test_a_worker_is_told(controlled: Any, proj: ModuleType) -> None:
    """Sections "Changing time limits at run-time", "Changing rate-limits at run-time" and "broadcast"."""
    name = proj.add.name

    assert tell(controlled, "time_limit", name, soft=60, hard=120) == {"ok": "time limits set successfully"}
    assert tell(controlled, "rate_limit", name, "200/m") == {"ok": "new rate limit set successfully"}
    [reply] = controlled.control.broadcast(
        "rate_limit",
        {"task_name": name, "rate_limit": 0},
        reply=True,
        destination=[NODE],
        timeout=WAIT_SECONDS,
        limit=1,
    )
    assert "ok" in reply[NODE]
    assert "ok" in tell(controlled, "enable_events")
    assert "ok" in tell(controlled, "disable_events")


def test_queues_begin_and_end(controlled: Any, proj: ModuleType) -> None:
    """Sections "Queues: Adding consumers" and "Canceling consumers"."""
    assert tell(controlled, "add_consumer", "foo") == {"ok": "add consumer foo"}
    assert proj.add.apply_async((1, 2), queue="foo").get(timeout=WAIT_SECONDS) == 3
    assert tell(controlled, "cancel_consumer", "foo") == {"ok": "no longer consuming from foo"}


def test_a_task_is_revoked(controlled: Any, proj: ModuleType) -> None:
    """Section "revoke: Revoking tasks": one, several, or by their stamps, also while they wait for their time."""
    results = [proj.add.apply_async((1, 2), countdown=3600, queue="controlled") for _ in range(3)]
    stamped = proj.add.s(1, 2)
    stamped.stamp(header="value")
    by_stamp = stamped.apply_async(queue="nobody_serves_this")

    results[0].revoke()
    controlled.control.revoke([result.id for result in results[1:]])
    controlled.control.revoke_by_stamped_headers({"header": "value"})

    for result in results:
        with pytest.raises(TaskRevokedError):
            result.get(timeout=WAIT_SECONDS)
    tell(controlled, "add_consumer", "nobody_serves_this")
    with pytest.raises(TaskRevokedError):
        by_stamp.get(timeout=WAIT_SECONDS)


def test_the_command_line_asks_and_tells(controlled: Any, proj: ModuleType, run: Run) -> None:
    """Guide "Next Steps", section "Remote Control", and "Monitoring": `inspect`, `control`, `status`."""
    wait = ("-t", "30", "-d", NODE)

    active = run("-A", PROJECT, "inspect", "active", "--json", *wait)
    assert json.loads(active.stdout) == {NODE: []}
    limited = run("-A", PROJECT, "control", "rate_limit", proj.add.name, "10/m", *wait)
    assert "new rate limit set successfully" in limited.stdout
    run("-A", PROJECT, "control", "rate_limit", proj.add.name, "0", *wait)
    assert f"{NODE}: OK" in run("-A", PROJECT, "status", *wait).stdout
    assert "active_queues" in run("-A", PROJECT, "inspect", "--list").stdout
    assert run("-A", PROJECT, "inspect", "ping", "-t", "0.1", "-d", "nobody@here").returncode == 69


def test_a_program_has_commands_of_its_own(controlled: Any, run: Run) -> None:
    """Section "Writing your own remote control commands"."""
    wait = ("-t", "30", "-d", NODE)

    reply = run("-A", PROJECT, "control", "increase_count", "3", *wait)

    assert "count is 3" in reply.stdout
    assert "3" in run("-A", PROJECT, "inspect", "current_count", *wait).stdout


def test_the_guide_s_command_changes_a_prefetch_count(controlled: Any) -> None:
    """The same section. Nothing is prefetched, so the count begins with the number of tasks that run at once."""

    def told(name: str, **arguments: Any) -> Any:
        [reply] = controlled.control.broadcast(
            name, arguments, reply=True, destination=[NODE], timeout=WAIT_SECONDS, limit=1
        )
        return reply[NODE]

    assert told("current_prefetch_count") == {"prefetch_count": 2}
    assert told("increase_prefetch_count", n=3) == {"ok": "prefetch count incremented"}
    assert told("current_prefetch_count") == {"prefetch_count": 5}


def test_nothing_is_elected(controlled: Any) -> None:
    """There is no gossip: who asks for an election is told."""
    with pytest.warns(UserWarning, match="hold no elections"):
        controlled.control.election("an-id", "a topic", "an action")

    assert ask(controlled, "ping") == {"ok": "pong"}


def test_a_worker_is_shut_down(proj: ModuleType, app: Any, start: StartWorker) -> None:
    """Section "Remote shutdown"."""
    worker = start("-n", "ending@%h", "-P", "threads", "-c", "1", "-Q", "controlled")
    node = f"ending@{gethostname()}"
    wait_for_an_answer(app, destination=[node])

    app.control.broadcast("shutdown", destination=[node])

    assert worker.wait(WAIT_SECONDS) == 0
