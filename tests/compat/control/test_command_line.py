"""`sidekiq-celery inspect`, `control` and `status`, and the real Celery's worker asked by them."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from threading import Event, Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kombu import pidbox
from sidekiq_celery import Celery
from sidekiq_celery.bin.celery import celery
from sidekiq_celery.worker.control import Panel

from tests.compat.control.conftest import NODE, SECONDS, Asked, running
from tests.support.child_process import tied_to_this_process
from tests.support.real_celery import python_with_celery
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY

Call = Callable[..., Result]
_UNAVAILABLE = 69


@pytest.fixture(scope="module")
def worker(server: RedisServer) -> Iterator[Asked]:
    """One that answers."""
    with running(server, "threads") as asked:
        yield asked


@pytest.fixture
def call(server: RedisServer) -> Iterator[Call]:
    """`call("inspect", "ping")`: a command on the app of a client."""
    with ExitStack() as stack:

        def run(*words: str, broker: str = server.url) -> Result:
            app = stack.enter_context(Celery("caller", broker=broker, set_as_current=False, fixups=[]))
            app.conf.broker_transport_options = {"max_retries": 1, "interval_start": 0.1}
            return CliRunner().invoke(celery, ["-C", *words], obj=None, default_map={"app": app})

        yield run


def asked(*words: str) -> list[str]:
    """For the one worker, who has time."""
    return [*words, "-d", NODE, "-t", str(SECONDS)]


def test_replies_are_shown(call: Call, worker: Asked) -> None:
    """As Celery shows them."""
    ping, active = call(*asked("inspect", "ping")), call(*asked("inspect", "active"))

    assert ping.output == f"->  {NODE}: OK\n        pong\n\n1 node online.\n"
    assert (ping.exit_code, active.exit_code) == (0, 0)
    assert "- empty -" in active.output


def test_status_counts_nodes(call: Call, worker: Asked) -> None:
    """A line for each."""
    assert call(*asked("status")).output == f"->  {NODE}: OK\n\n1 node online.\n"


def test_replies_are_printed_as_json(call: Call, worker: Asked) -> None:
    """For programs."""
    assert json.loads(call(*asked("inspect", "registered", "-j")).output)[NODE]
    assert json.loads(call(*asked("status", "--json")).output.splitlines()[0]) == {NODE: {"ok": "pong"}}


def test_a_command_that_is_not_supported_is_answered_by_the_worker(call: Call, worker: Asked) -> None:
    """With what to do instead, as when Celery's own command line asks."""
    shown = call(*asked("inspect", "objgraph", "Request", "10"))

    assert "objgraph is not supported here; run a memory profiler" in shown.output
    assert "objgraph" not in call("inspect", "--list").output


def test_words_behind_a_command_are_its_arguments(call: Call, worker: Asked) -> None:
    """With their types, the rest as a list."""
    conf = json.loads(call(*asked("inspect", "conf", "yes", "-j")).output)[NODE]
    tasks = json.loads(call(*asked("inspect", "registered", "name", "-j")).output)[NODE]

    assert conf["task_default_queue"] == "celery"
    assert all("[name=" in task for task in tasks)


def test_a_reply_may_be_an_error(call: Call, worker: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is marked, and the command as such succeeded. The worker's program has it; here is what the client knows."""
    monkeypatch.setitem(Panel.meta, "wants_a_consumer", Panel.meta["ping"])
    shown = call(*asked("inspect", "wants_a_consumer"))

    assert shown.exit_code == 0
    assert f"->  {NODE}: ERROR" in shown.output
    assert "state.remote_control" in shown.output


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("inspect", "nonsense"), 2, "Command nonsense not recognized. Available inspect commands: active, "),
        (("control", "ping"), 2, "Command ping not recognized. Available control commands: "),
        (("inspect", "ping", "too", "many"), 2, "Command 'ping' takes arguments: none"),
        (("inspect", "memdump", "ten"), 2, "Command 'memdump' takes arguments: [n_samples=10]"),
        (("inspect", "ping", "-d", "nobody@here", "-t", "0.1"), _UNAVAILABLE, "No nodes replied within time"),
        (("status", "-d", "nobody@here", "-t", "0.1"), _UNAVAILABLE, "No nodes replied within time"),
        (("control", "shutdown", "-d", "nobody@here", "-t", "0.1"), _UNAVAILABLE, "No nodes replied within time"),
    ],
)
def test_what_does_not_work_is_said(call: Call, words: tuple[str, ...], code: int, message: str) -> None:
    """With Celery's exit codes."""
    result = call(*words)

    assert message in result.output
    assert result.exit_code == code


@pytest.mark.parametrize(
    ("reply", "words"),
    [(None, ()), ({}, ()), ("text", ()), (None, ["--json"]), ([1], ["--json"]), ("text", ["--json"])],
)
def test_a_malformed_reply_is_named(call: Call, server: RedisServer, reply: Any, words: Sequence[str]) -> None:
    """Any program may answer."""

    class Stranger(pidbox.Node):
        def reply(self, data: Any, *where: Any, **more: Any) -> None:
            super().reply(reply, *where, **more)

    with (
        Celery("stranger", broker=server.url, set_as_current=False, fixups=[]) as app,
        app.connection() as connection,
        server.client() as client,
    ):
        mailbox = app.control.mailbox(connection)
        node = Stranger("stranger@x", channel=connection.channel(), mailbox=mailbox, handlers={"ping": _nothing})
        node.listen(callback=node.handle_message)
        before = len(client.client_list(_type="pubsub"))
        is_done = Event()

        def listen() -> None:
            while not is_done.is_set():
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)

        listener = Thread(target=listen)
        listener.start()
        eventually(lambda: len(client.client_list(_type="pubsub")) > before, within_seconds=SECONDS)
        result = call("inspect", "ping", "-d", "stranger@x", "-t", str(SECONDS), *words)
        is_done.set()
        listener.join()

    assert "because a worker's reply is malformed: " in result.output
    assert result.exit_code == _UNAVAILABLE


@pytest.mark.parametrize(
    ("words", "settings", "reason"),
    [
        (["-t", "nan"], {}, "Invalid value NaN"),
        ([], {"task_serializer": "nonsense"}, "No encoder installed for nonsense"),
        ([], {"accept_content": ["nonsense"]}, "No encoder/decoder installed for nonsense"),
    ],
)
def test_no_worker_is_blamed_for_what_is_wrong_here(
    server: RedisServer, words: Sequence[str], settings: dict[str, Any], reason: str
) -> None:
    """It has sent no reply."""
    with Celery("caller", broker=server.url, set_as_current=False, fixups=[]) as app:
        app.conf.update(settings)
        result = CliRunner().invoke(celery, ["-C", "status", *words], obj=None, default_map={"app": app})

    assert f"Error: Unable to run `status`. Reason: {reason}" in result.output
    assert result.exit_code == _UNAVAILABLE


def _nothing(state: Any) -> None:
    """Does nothing."""


def test_redis_out_of_reach_is_said(call: Call) -> None:
    """With what to look at."""
    result = call("status", broker="redis://127.0.0.1:1/0")

    assert "Could not connect to Redis" in result.output
    assert result.exit_code == _UNAVAILABLE


@pytest.mark.parametrize("rule", ["-publish", "-brpop", "-exec", "-multi", "-sadd", "resetchannels"])
def test_a_missing_right_is_said(call: Call, server: RedisServer, rule: str) -> None:
    """With where the rights are listed; Redis was reached, so nobody is told to check that it is running."""
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "half", "reset", "on", ">pw", "~*", "&*", "+@all", rule)
    result = call("inspect", "ping", "-t", "0.1", broker=server.url.replace("redis://", "redis://half:pw@"))

    assert "docs/redis.md lists the rights that each program needs" in result.output
    assert "check that it is running" not in result.output
    assert result.exit_code == _UNAVAILABLE


def test_a_broker_out_of_reach_that_is_not_redis_is_said(call: Call) -> None:
    """Its workers are not ours; the advice to check whether Redis is running would be no help."""
    result = call("status", broker="amqp://guest@127.0.0.1:1//")

    assert (
        "Error: broker_url is 'amqp://guest:***@127.0.0.1:1//'; sidekiq_celery keeps its jobs in Redis" in result.output
    )
    assert result.exit_code == 1


def test_commands_are_listed(call: Call) -> None:
    """With their arguments and what they do."""
    inspect, control = call("inspect", "--list"), call("control", "--list")

    assert "Inspect Commands:\n  active " in inspect.output
    assert "registered [attr1 [attr2 [... [attrN]]]]" in inspect.output
    assert "shutdown" in control.output
    assert (inspect.exit_code, control.exit_code) == (0, 0)


@pytest.fixture
def celerys_worker(server: RedisServer) -> Iterator[str]:
    """The node name of a real Celery worker."""
    name = "real@there"
    words = ["-m", "celery", "-A", "celery_project", "worker", "-P", "threads", "-c", "1", "-n", name]
    process = subprocess.Popen(
        tied_to_this_process([python_with_celery(), *words]),
        cwd=REPOSITORY / "tests" / "compat" / "control",
        env={**os.environ, "REDIS_URL": server.url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield name
    process.kill()
    process.wait()


def test_our_commands_ask_celerys_worker(celerys_worker: str, call: Call) -> None:
    """It takes them for Celery's."""

    def registered() -> object:
        result = call("inspect", "registered", "-j", "-d", celerys_worker, "-t", "2")
        return json.loads(result.output) if result.exit_code == 0 else None

    assert eventually(registered, within_seconds=SECONDS) == {celerys_worker: ["real.add"]}
