"""The real Flower beside a worker of ours; both start once for all tests here."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import redis
from sidekiq_celery import Celery

from tests.compat.events.conftest import PROJECT
from tests.compat.events.event_monitor import LONG
from tests.support.celery_program import command, environment
from tests.support.missing_tools import skip_or_fail
from tests.support.ports import free_port
from tests.support.real_celery import python_with_celery
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, SOURCE_ROOTS, SidekiqProcess

NODE = "w1@here"
PATIENT_CELERY = "tests.compat.events.patient_celery"


@dataclass(frozen=True, slots=True)
class Flower:
    """
    Flower's pages and its API.

    Args:
        address: `http://host:port`.
        app: Sends tasks to the worker that it watches.
        worker: That worker.
    """

    address: str
    app: Celery
    worker: SidekiqProcess

    def page(self, path: str) -> str:
        """The text of a page; empty while there is none."""
        try:
            with urlopen(self.address + path, timeout=LONG) as reply:
                text: str = reply.read().decode()
                return text
        except (URLError, ConnectionError):
            return ""

    def get(self, path: str) -> Any:
        """What the API answers; None while it does not."""
        text = self.page(path)
        return json.loads(text) if text else None

    def post(self, path: str, data: bytes = b"") -> Any:
        """Press a button."""
        request = Request(self.address + path, data=data, method="POST")
        with urlopen(request, timeout=LONG) as reply:
            return json.loads(reply.read())

    def send(self, name: str, *args: Any, **options: Any) -> str:
        """Send a task of the project; returns its id."""
        return str(self.app.send_task(f"{PROJECT}.{name}", args, **options).id)

    def task(self, task_id: str, state: str) -> dict[str, Any]:
        """What Flower knows of a task, once it is in *state*."""

        def found() -> Any:
            known = self.get(f"/api/task/info/{task_id}")
            return known if known and known["state"] == state else None

        known: dict[str, Any] = eventually(found, LONG)
        return known

    def worker_info(self) -> dict[str, Any]:
        """What Flower knows of the worker, asked anew."""
        info: dict[str, Any] = (self.get("/api/workers?refresh=1") or {}).get(NODE, {})
        return info


@pytest.fixture(scope="module")
def flower_python() -> str:
    """A Python that has Flower."""
    python = python_with_celery()
    if subprocess.run([python, "-c", "import flower"], check=False, capture_output=True).returncode:
        skip_or_fail(f"no Flower for {python}: pip install -e '.[dev]'", switch="SIDEKIQ_PY_REQUIRE_CELERY")
    return python


@pytest.fixture(scope="module")
def flower(flower_python: str) -> Iterator[Flower]:
    """Flower, which has seen the worker."""
    with ExitStack() as stack:
        url = stack.enter_context(RedisServer()).url
        arguments = ["-A", PROJECT, "worker", "-P", "prefork", "-c", "1", "-E", "-n", NODE]
        worker = SidekiqProcess(command(*arguments), redis_url=url, environment=environment())
        stack.callback(worker.print_log_tail)
        stack.callback(lambda: worker.kill() if worker.is_running else None)
        options = ("-A", PATIENT_CELERY, f"--broker={url}")
        address = _start_flower(stack, flower_python, url, *options, PYTHONPATH=str(REPOSITORY))
        worker.start().wait_until_ready()
        app = stack.enter_context(Celery("sender", broker=url, backend=url, set_as_current=False, fixups=[]))
        found = Flower(address, app, worker)
        eventually(lambda: "registered" in found.worker_info(), LONG)
        yield found


def test_a_worker_is_online(flower: Flower) -> None:
    """With its name on the page, alive by its heartbeats."""
    eventually(lambda: flower.get("/api/workers?status=1") == {NODE: True}, LONG)

    assert NODE in flower.page("/workers")
    assert NODE in flower.page(f"/worker/{NODE}")


def test_a_worker_tells_its_pool_queues_tasks_and_settings(flower: Flower) -> None:
    """What Flower asks by remote control."""

    def known() -> dict[str, Any] | None:
        info = flower.worker_info()
        return info if {"stats", "active_queues", "registered", "conf"} <= info.keys() else None

    info: dict[str, Any] = eventually(known, LONG)
    assert info["stats"]["pool"]["max-concurrency"] == 1
    assert [queue["name"] for queue in info["active_queues"]] == ["celery"]
    assert f"{PROJECT}.add" in info["registered"]
    assert info["conf"]["broker_url"].startswith("redis://")


def test_tasks_are_listed_with_their_states(flower: Flower) -> None:
    """SUCCESS with its result, FAILURE with its traceback, RETRY with the reason."""
    done, failed, later = flower.send("add", 1, 2), flower.send("fail"), flower.send("later")

    success = flower.task(done, "SUCCESS")
    assert (success["name"], success["args"], success["result"]) == (f"{PROJECT}.add", "(1, 2)", "3")
    assert success["worker"] == NODE
    failure = flower.task(failed, "FAILURE")
    assert failure["exception"] == "ValueError('no')"
    assert 'raise ValueError("no")' in failure["traceback"]
    assert flower.task(later, "RETRY")["exception"] == "KeyError('later')"
    assert {done, failed, later} <= flower.get("/api/tasks").keys()
    page = flower.page(f"/task/{done}")
    assert f"{PROJECT}.add" in page
    assert "SUCCESS" in page


def test_the_pool_grows_by_a_button(flower: Flower) -> None:
    """And Flower sees the new size."""
    assert "Growing" in flower.post(f"/api/worker/pool/grow/{NODE}?n=1")["message"]

    eventually(lambda: flower.worker_info().get("stats", {}).get("pool", {}).get("max-concurrency") == 2, LONG)


def test_a_queue_is_added_by_a_button(flower: Flower) -> None:
    """Tasks in it are run from then on."""
    flower.post(f"/api/worker/queue/add-consumer/{NODE}?queue=more")

    flower.task(flower.send("add", 1, 2, queue="more"), "SUCCESS")
    eventually(lambda: _names(flower.worker_info().get("active_queues", [])) == ["celery", "more"], LONG)


def test_limits_of_a_task_are_set_by_buttons(flower: Flower) -> None:
    """Its rate, and its times."""
    # Flower offers this for the tasks that it knows itself.
    name = "celery.backend_cleanup"

    rate = flower.post(f"/api/task/rate-limit/{name}?workername={NODE}&ratelimit=100/s")
    times = flower.post(f"/api/task/timeout/{name}?workername={NODE}&soft=20&hard=30")

    assert rate["message"] == "new rate limit set successfully"
    assert times["message"] == "time limits set successfully"


def test_a_task_that_runs_is_ended_by_a_button(flower: Flower) -> None:
    """It becomes REVOKED, on the pages too."""
    running = flower.send("wait")
    flower.task(running, "STARTED")

    flower.post(f"/api/task/revoke/{running}?terminate=true")

    flower.task(running, "REVOKED")


def test_what_flower_sends_goes_to_celerys_list(flower: Flower) -> None:
    """Where no worker of ours looks: the bridge would move it."""
    task_id = flower.post("/api/task/send-task/shop.pay", b'{"args": [1]}')["task-id"]

    with redis.Redis.from_url(flower.app.conf.broker_url) as client:
        assert any(task_id.encode() in message for message in client.lrange("celery", 0, -1))


def test_a_flower_on_sidekiqs_queues_sends_jobs(
    flower_python: str, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """Its app has our transport for a broker."""
    url = redis_url.replace("redis://", "sidekiq://", 1)
    (tmp_path / "monitored.py").write_text(
        f"import sidekiq_celery.transport\nfrom celery import Celery\napp = Celery('monitored', broker={url!r})\n"
    )
    roots = os.pathsep.join(map(str, [tmp_path, *SOURCE_ROOTS]))
    with ExitStack() as stack:
        address = _start_flower(stack, flower_python, redis_url, "-A", "monitored", PYTHONPATH=roots)
        request = Request(f"{address}/api/task/send-task/shop.pay", data=b'{"args": [1]}', method="POST")
        with urlopen(request, timeout=LONG) as reply:
            task_id = json.loads(reply.read())["task-id"]

    [job] = redis_client.lrange("queue:celery", 0, -1)
    assert (json.loads(job)["class"], json.loads(job)["jid"]) == ("shop.pay", task_id)


def test_flower_is_a_command_of_ours_too(flower: Flower, flower_python: str) -> None:
    """Its entry point adds it. It has the app of `-A`, so a task that it sends runs, and it shows the result."""
    url, roots = flower.app.conf.broker_url, os.pathsep.join(map(str, SOURCE_ROOTS))
    with ExitStack() as stack:
        options = ("-A", PROJECT)
        address = _start_flower(stack, flower_python, url, *options, program="sidekiq_celery", PYTHONPATH=roots)
        ours = Flower(address, flower.app, flower.worker)

        sent = ours.post(f"/api/task/apply/{PROJECT}.add", b'{"args": [3, 4]}')

    assert (sent["state"], sent["result"]) == ("SUCCESS", 7)


def test_a_worker_is_shut_down_by_a_button(flower: Flower) -> None:
    """The last test here: it ends warmly, and Flower sees that it is gone."""
    flower.post(f"/api/worker/shutdown/{NODE}")

    assert flower.worker.wait(LONG) == 0
    eventually(lambda: flower.get("/api/workers?status=1") == {NODE: False}, LONG)


def _start_flower(
    stack: ExitStack, python: str, url: str, *options: str, program: str = "celery", **variables: str
) -> str:
    """Its address, once it answers there; *options* are those of `celery`."""
    for _ in range(5):
        port = free_port()
        command = [python, "-m", program, *options, "flower", f"--port={port}", "--address=127.0.0.1"]
        surroundings = {"FLOWER_UNAUTHENTICATED_API": "true", **variables}
        monitor = SidekiqProcess(command, redis_url=url, environment=surroundings).start()
        stack.callback(monitor.print_log_tail)
        stack.callback(lambda monitor=monitor: monitor.kill() if monitor.is_running else None)
        address = f"http://127.0.0.1:{port}"
        eventually(lambda a=address, m=monitor: _answers(a) or not m.is_running, LONG, every_seconds=0.1)
        # Another process may have been sooner to take the port.
        if monitor.is_running:
            return address
    raise AssertionError("Flower does not start; the end of its log is printed")


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/healthcheck", timeout=LONG) as reply:
            return bool(reply.read() == b"OK")
    except (URLError, ConnectionError):
        return False


def _names(queues: list[dict[str, Any]]) -> list[str]:
    return sorted(queue["name"] for queue in queues)
