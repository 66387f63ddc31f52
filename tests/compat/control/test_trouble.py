"""What control survives: a killed remote control, a restart of Redis, a frozen child, a parent that is gone."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest
import redis
from kombu.exceptions import OperationalError
from sidekiq_celery._pidbox.node import Node

from tests.compat.control.conftest import NODE, PROJECT, SECONDS, Asked, running
from tests.support.process_states import has_ended, state_of
from tests.support.redis_server import RedisServer
from tests.support.redis_users import Users, documented_users
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY

Start = Callable[..., Asked]

COMMANDS_OF_CELERYS_CLIENTS: dict[str, dict[str, Any]] = {
    "revoke": {"task_id": "an-id"},
    "revoke_by_stamped_headers": {"headers": {"customer": "4"}},
    "rate_limit": {"task_name": f"{PROJECT}.hold", "rate_limit": "7/s"},
}


def children(pid: int) -> list[int]:
    """Of a process, from /proc."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def remote_control_of(worker: Asked) -> int:
    """The process of a prefork worker's remote_control: the child that runs no tasks."""
    [pid] = set(children(worker.process.pid)) - set(worker.inspect("stats")["pool"]["processes"])
    return pid


def answered(worker: Asked) -> Any:
    """It answers again; it may miss what is said while it is away, and so may this side."""

    def ask() -> Any:
        try:
            return worker.app.control.ping(destination=[NODE], timeout=1.0) or None
        except (OperationalError, redis.RedisError, OSError):
            return None

    return eventually(ask, within_seconds=SECONDS)


def has_socket(pid: int) -> bool:
    """The process has a connection."""
    targets = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return any(target.startswith("socket:") for target in targets)


def testa_remote_control__that_is_killed_is_replaced(start: Start) -> None:
    """The tasks do not notice, and the parent connects to nothing itself."""
    worker = start("prefork")
    task_id = worker.send("stays")
    old = remote_control_of(worker)
    assert has_socket(old)

    os.kill(old, signal.SIGKILL)
    eventually(lambda: has_ended(old), within_seconds=SECONDS)
    answered(worker)

    assert remote_control_of(worker) != old
    assert [task["id"] for task in worker.inspect("active")] == [task_id]
    assert not has_socket(worker.process.pid)
    worker.release("stays")
    assert worker.app.AsyncResult(task_id).get(timeout=SECONDS) == "stays"
    assert worker.process.stop(SECONDS) == 0


def test_commands_have_a_timer_after_remote_control_was_killed(start: Start) -> None:
    """The next process is forked from a parent in which bootsteps have started the timer's thread."""
    worker = start("prefork")
    assert worker.broadcast("wants_the_timer") is True

    os.kill(remote_control_of(worker), signal.SIGKILL)
    answered(worker)

    assert worker.broadcast("wants_the_timer") is True


def testa_remote_control__ends_with_its_parent(start: Start) -> None:
    """Also with one that was killed; the children do, too."""
    worker = start("prefork")
    family = children(worker.process.pid)
    assert len(family) == 3

    worker.process.kill()

    eventually(lambda: all(has_ended(pid) for pid in family), within_seconds=SECONDS)


def test_frozen_remote_control_holds_nobody_up(start: Start) -> None:
    """Tasks run on, and the worker stops."""
    worker = start("prefork")
    frozen = remote_control_of(worker)
    os.kill(frozen, signal.SIGSTOP)

    assert worker.app.send_task("tests.compat.control.project.add", (1, 2)).get(timeout=SECONDS) == 3
    worker.process.send_signal(signal.SIGTERM)

    assert worker.process.wait(SECONDS) == 0
    assert has_ended(frozen)


def test_tasks_of_a_frozen_child_are_active(start: Start) -> None:
    """It cannot answer; what it has stands in Redis."""
    worker = start("prefork")
    task_id = worker.send("frozen")
    pid = int(worker.redis.lindex("held:frozen", -1))
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: state_of(pid) == "T", within_seconds=SECONDS)

    def active() -> Any:
        return (worker.app.control.inspect(destination=[NODE], timeout=2.0).active() or {}).get(NODE)

    [task] = eventually(active, within_seconds=SECONDS)

    assert (task["id"], task["worker_pid"], task["time_start"]) == (task_id, pid, None)
    os.kill(pid, signal.SIGCONT)
    worker.release("frozen")
    assert worker.app.AsyncResult(task_id).get(timeout=SECONDS) == "frozen"


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_control_answers_again_when_redis_is_back(pool: str, new_redis_server: Callable[..., RedisServer]) -> None:
    """A server that is killed, and connections that are cut."""
    server = new_redis_server()
    with running(server, pool) as worker:
        server.restart(kill=True)
        answered(worker)

        with server.client() as client:
            assert client.execute_command("CLIENT", "KILL", "TYPE", "pubsub") >= 1
        answered(worker)

        assert worker.process.stop(SECONDS) == 0


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_is_shut_down_by_remote_control(pool: str, start: Start) -> None:
    """Warmly: what runs may finish. It answers until then. The message of whoever asks takes one line of the log."""
    worker = start(pool)
    task_id = worker.send(pool)

    assert worker.broadcast("shutdown", msg="For a\ndeploy") == {"ok": "shutting down"}
    eventually(lambda: r"For a\ndeploy" in worker.process.log or None, within_seconds=SECONDS)
    assert worker.inspect("active")[0]["id"] == task_id
    worker.redis.rpush(f"release:{pool}", "now")

    assert worker.process.wait(SECONDS) == 0
    assert worker.app.AsyncResult(task_id).get(timeout=SECONDS) == pool


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_stops_warmly_is_not_hurried_by_remote_control(pool: str, start: Start) -> None:
    """A second TERM would: that is a person who is tired of waiting."""
    worker = start(pool)
    task_id = worker.send(f"stays {pool}")
    worker.process.send_signal(signal.SIGTERM)
    eventually(lambda: "Warm shutdown" in worker.process.log, within_seconds=SECONDS)
    asked_at = monotonic()
    # Two signals within a second are one.
    eventually(lambda: monotonic() - asked_at > 1.5, within_seconds=SECONDS)

    assert worker.broadcast("shutdown") == {"ok": "shutting down"}
    eventually(lambda: "Got shutdown from remote" in worker.process.log, within_seconds=SECONDS)
    assert worker.inspect("active")[0]["id"] == task_id
    worker.redis.rpush(f"release:stays {pool}", "now")

    assert worker.process.wait(SECONDS) == 0
    assert worker.app.AsyncResult(task_id).get(timeout=SECONDS) == f"stays {pool}"


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_command_may_stop_the_worker_by_an_exception(pool: str, start: Start) -> None:
    """`WorkerShutdown`, as in Celery; nobody is answered."""
    worker = start(pool)

    worker.app.control.broadcast("stop_by_exception", destination=[NODE])

    assert worker.process.wait(SECONDS) == 0
    assert "the command 'stop_by_exception' stops the worker" in worker.process.log


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_s_stop_is_no_error_of_remote_control(pool: str, start: Start) -> None:
    """Releases of kombu before 5.7 raise a KeyError when they are woken, which is not a malformed message."""
    worker = start(pool)

    assert worker.process.stop(SECONDS) == 0

    assert "malformed" not in worker.process.log


def test_control_can_be_switched_off(server: RedisServer) -> None:
    """`worker_enable_remote_control`: nobody listens, and no process is kept for it."""
    with running(server, "prefork", answers=False, WITHOUT_CONTROL="1") as worker:
        eventually(lambda: worker.redis.pubsub_numpat() == 0, within_seconds=SECONDS)
        assert len(children(worker.process.pid)) == 2


def test_a_prefix_of_keys_and_another_exchange_are_respected(new_redis_server: Callable[..., RedisServer]) -> None:
    """Two programs on one Redis hear nothing of each other, and no key is without the prefix."""
    server = new_redis_server()
    with running(server, "threads", KEY_PREFIX="x:") as worker:
        assert worker.inspect("ping") == {"ok": "pong"}
        reply_to = {"exchange": "reply.other.pidbox", "routing_key": "gone"}
        worker.redis.sadd("x:_kombu.binding.reply.other.pidbox", "gone\x06\x16\x06\x16gone.reply")
        exchange = worker.app.control.mailbox.exchange
        with worker.app.connection_for_write() as connection:
            message = {"method": "ping", "reply_to": reply_to, "ticket": "t"}
            connection.Producer().publish(message, exchange=exchange, declare=[exchange])

        eventually(lambda: worker.redis.ttl("x:gone.reply") > 0, within_seconds=SECONDS)
        assert all(key.startswith(b"x:") for key in worker.redis.scan_iter())


def documented_rules() -> list[str]:
    """Those that come on top of a worker's."""
    [rules] = re.findall(r"`(~_kombu\.binding\*[^`]+)`", (REPOSITORY / "docs" / "redis.md").read_text())
    return str(rules).split()


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_the_documented_rights_are_enough(pool: str, new_redis_server: Callable[..., RedisServer]) -> None:
    """For who answers and for who asks: of what control does nothing is refused."""
    server = new_redis_server()
    with server.client() as admin:
        users = Users(server, admin)
        users.create()
        rules = [*documented_users()["worker"], *documented_rules()]
        admin.execute_command("ACL", "SETUSER", "worker", "reset", *rules)
        with running(server, pool, broker=users.url("worker")) as worker:
            for command in ("ping", "active", "scheduled", "stats", "reserved"):
                assert worker.inspect(command) is not None
            # Celery's own clients leave these to the worker.
            for command, arguments in COMMANDS_OF_CELERYS_CLIENTS.items():
                assert "ok" in worker.broadcast(command, **arguments)

        assert [refusal for refusal in users.refusals() if "celeryev" not in refusal[2]] == []


class Waiting(Node):
    """Carries out a command that takes long. Its last event waits for Redis."""

    stop_seconds = 0.01

    def __init__(self) -> None:
        super().__init__(None, NODE, "waiting")
        self.command_ends = Event()
        self.redis_answers = Event()
        self.event_was_sent = Event()

    def run(self) -> None:
        self.command_ends.wait(SECONDS)

    def has_stopped(self) -> None:
        self.redis_answers.wait(SECONDS)
        self.event_was_sent.set()


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    """A node that has started, and comes to an end with its test."""
    node = Waiting()
    node.start()
    yield node
    node.command_ends.set()
    node.redis_answers.set()


def test_the_last_event_is_sent_though_a_command_is_running(waiting: Waiting) -> None:
    """Monitors would otherwise show a worker that is gone until its heartbeat is overdue."""
    waiting.redis_answers.set()

    waiting.stop()

    assert waiting.event_was_sent.wait(SECONDS)


def test_a_stop_does_not_wait_for_a_redis_that_hangs(waiting: Waiting) -> None:
    """A worker would not stop in the time that is documented."""
    waiting.stop()

    assert not waiting.event_was_sent.is_set()
