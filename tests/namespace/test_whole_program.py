"""
A program that may use nothing but the keys under its namespace.

Its Redis user is let near no other key, so a command that forgot the namespace is refused and noted in the server's
ACL log, even where the refusal was swallowed.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

import sidekiq_py as sidekiq
from sidekiq_py import api, program
from sidekiq_py.cli import main
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.namespace import jobs
from tests.support.in_flight import jobs_in_flight
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

# Its release has execution metrics, and namespaces.
RELEASE = "6.5.12"
PATIENCE_SECONDS = 60.0


@dataclass
class Guarded:
    """The Redis, by two users: *url* is let near the namespace alone, *client* near everything."""

    url: str
    client: redis.Redis
    notes: Path
    start_worker: Callable[..., WorkerProcess]

    def has_noted(self, text: str) -> bool:
        """A job has written this line."""
        return self.notes.exists() and text in self.notes.read_text().split("\n")

    def run(self, *arguments: str, **options: Any) -> Result:
        """A command of `sidekiq-py`."""
        return CliRunner().invoke(
            main, [*arguments, "-u", self.url, "--namespace", "myapp"], prog_name="sidekiq-py", **options
        )


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server whose user `worker` is confined."""
    with RedisServer() as started:
        yield started


@pytest.fixture
def guarded(server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """The confined program; in the end nothing may have been tried, and nothing may stand, outside the namespace."""
    with ExitStack() as cleanup:
        client = server.client()
        cleanup.callback(client.close)
        client.flushall()
        client.execute_command("ACL", "LOG", "RESET")
        # By that channel, one for all keys, Redis says what has changed.
        rights = ["~myapp:*", "&__redis__:invalidate", "+@all"]
        client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", *rights)
        url = server.url.replace("redis://", "redis://worker:secret@")
        notes = tmp_path / "notes"

        def start(*arguments: str, **options: Any) -> WorkerProcess:
            worker = WorkerProcess(
                "tests.namespace.jobs",
                redis_url=url,
                arguments=["--sidekiq-version", RELEASE, *arguments],
                environment={"NOTES": str(notes)},
                namespace="myapp",
                **options,
            )
            cleanup.callback(worker.print_log_tail)
            return cleanup.enter_context(worker)

        monkeypatch.delenv("SIDEKIQ_NAMESPACE", raising=False)
        program.reset()
        cleanup.callback(program.reset)
        sidekiq.configure(redis_url=url, namespace="myapp", sidekiq_version=RELEASE)
        plant_ruby(client)
        yield Guarded(url, client, notes, start)
        assert [key for key in client.keys("*") if not key.startswith(b"myapp:")] == []
    with server.client() as client:
        denied = [(entry["object"], entry["context"]) for entry in client.acl_log()]
    assert denied == []


def plant_ruby(client: redis.Redis) -> None:
    """A Ruby process is registered, so that nobody looks for one outside."""
    info = {"hostname": "ruby", "pid": 1, "tag": "app", "concurrency": 5, "queues": ["default"], "labels": []}
    client.sadd("myapp:processes", "ruby:1:abc")
    client.hset("myapp:ruby:1:abc", mapping={"info": json.dumps(info), "busy": 0, "beat": "1.0", "quiet": "false"})


def test_every_way_of_pushing(guarded: Guarded) -> None:
    """One, many, later, awaited; each under the namespace, as its release writes them."""
    jobs.note.perform_async("now")
    jobs.note.perform_in(3600, "later")
    jobs.note.perform_bulk([["one"], ["two"]])
    sidekiq.Client(guarded.url, namespace="myapp").push({"class": "Note", "args": ["raw"]})
    sidekiq.Client(pool=redis.Redis.from_url(guarded.url), namespace="myapp").push({"class": "Note", "args": ["own"]})

    async def awaited() -> None:
        await jobs.note.aperform_async("awaited")
        async with sidekiq.AsyncClient(guarded.url, namespace="myapp", sidekiq_version=RELEASE) as client:
            await client.push({"class": "Note", "args": ["awaited raw"]})
            await client.push_bulk({"class": "Note", "args": [["a"], ["b"]], "at": 4_000_000_000.0})

    asyncio.run(awaited())

    assert guarded.client.llen("myapp:queue:default") == 7
    assert guarded.client.zcard("myapp:schedule") == 3
    assert guarded.client.smembers("myapp:queues") == {b"default"}


def test_the_release_is_found_out_under_the_namespace(guarded: Guarded) -> None:
    """From the Ruby process there, which says no version and is therefore taken for a 6.4.1; awaited, too."""
    program.reset()
    sidekiq.configure(redis_url=guarded.url, namespace="myapp")
    client = sidekiq.Client()

    client.push({"class": "Note", "args": []})

    assert client.detection.last.version == (6, 4, 1)
    found = asyncio.run(sidekiq.AsyncClient(pool=Pool(client.pool.settings)).dialect())
    assert found.version == (6, 4, 1)


@pytest.mark.parametrize("fetcher", ["reliable", "basic"])
def test_a_worker_runs_what_there_is(guarded: Guarded, fetcher: str) -> None:
    """Threads and loop, queues by weight, what is due, what fails for now and for good, and metrics."""
    worker = guarded.start_worker("--fetcher", fetcher, "-q", "default,2", "-q", "low,1")
    jobs.note.perform_async("now")
    jobs.note.set(queue="low").perform_async("low")
    jobs.awaited.perform_async("awaited")
    jobs.note.perform_in(0.5, "later")
    jobs.fail.perform_async("again")
    jobs.fail.set(retry=0).perform_async("never again")

    for text in ("now", "low", "awaited", "later"):
        eventually(lambda text=text: guarded.has_noted(text), PATIENCE_SECONDS)
    eventually(lambda: api.Stats().processed == 6, PATIENCE_SECONDS)
    assert worker.stop() == 0
    assert [entry.args for entry in api.RetrySet()] == [["again"]]
    assert [entry.args for entry in api.DeadSet()] == [["never again"]]
    assert api.Stats().failed == 2
    assert guarded.client.keys("myapp:j|*")
    assert guarded.client.keys("myapp:Note-*")
    assert api.Metrics().top_jobs().jobs["Note"].total.processed == 3
    assert jobs_in_flight(guarded.client, prefix="myapp:") == []


def test_what_a_killed_worker_held_comes_back(guarded: Guarded) -> None:
    """Its jobs in flight, its name among the suspects, and its last beat."""
    killed = guarded.start_worker("-c", "1")
    jobs.linger.perform_async("lingering")
    eventually(lambda: guarded.has_noted("lingering"), PATIENCE_SECONDS)
    killed.kill()

    successor = guarded.start_worker("-c", "1")
    eventually(lambda: api.Stats().processed == 1, PATIENCE_SECONDS)
    successor.stop()

    assert guarded.notes.read_text() == "lingering\nlingering\n"
    assert guarded.client.exists("myapp:sidekiq_py:owners") == 0


def test_a_stop_gives_back_what_runs(guarded: Guarded) -> None:
    """A job that heeds nothing is sent back by the last command of all."""
    worker = guarded.start_worker("-c", "1", "-t", "0.1")
    jobs.linger.perform_async("lingering")
    eventually(lambda: guarded.has_noted("lingering"), PATIENCE_SECONDS)
    worker.stop()

    assert [job.args for job in api.Queue("default")] == [["lingering"]]


def test_a_family_recovers_what_a_child_held(guarded: Guarded) -> None:
    """With --processes, where a parent without Redis tells another child."""
    guarded.start_worker("--processes", "2", "-c", "1")
    eventually(lambda: len(api.ProcessSet()) == 3, PATIENCE_SECONDS)
    jobs.linger.perform_async("lingering")
    eventually(lambda: guarded.has_noted("lingering"), PATIENCE_SECONDS)
    [held] = api.Stats().in_flight
    process = api.ProcessSet().find(held.identity)
    assert process is not None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)

    eventually(lambda: api.Stats().processed == 1, PATIENCE_SECONDS)


def test_an_iterable_job_leaves_off_and_is_cancelled(guarded: Guarded) -> None:
    """Its state, and the word that it shall stop."""
    worker = guarded.start_worker("-c", "1", "-t", "5")
    jid = jobs.Count.perform_async(1_000_000, 0.01)
    assert jid is not None
    eventually(lambda: guarded.has_noted("counting"), PATIENCE_SECONDS)
    worker.stop()
    assert jid in api.IterableJobQuery([jid])

    sidekiq.cancel(jid)
    guarded.start_worker("-c", "1")

    eventually(lambda: guarded.has_noted("counted"), PATIENCE_SECONDS)


def test_the_data_api_reads_and_edits(guarded: Guarded) -> None:
    """Every set and queue, by every way of looking."""
    for number in range(4):
        jobs.fail.perform_in(3600 + number, number)
    scheduled = api.ScheduledSet()
    first, second, third, fourth = scheduled
    first.reschedule(4_000_000_000)
    second.kill()
    third.add_to_queue()
    fourth.delete()
    [entry] = scheduled.scan("Fail")
    assert scheduled.find_job(entry.jid or "") is not None
    dead = api.DeadSet()
    dead.kill(json.dumps({"class": "Gone", "args": [], "jid": "b2", "queue": "gone"}))
    assert dead.retry_all().moved == 2
    dead.trim()

    assert sorted(queue.name for queue in api.Queue.all()) == ["default", "gone"]
    assert [job.klass for job in api.Queue("gone")] == ["Gone"]
    assert api.Queue("gone").clear() == 1
    [job, other] = api.Queue("default")
    assert api.Queue("default").find_job(job.jid or "") is not None
    assert job.delete()
    assert other.delete()
    assert scheduled.clear() == 1
    assert api.Stats().queues == {"default": 0}
    api.Stats().reset()
    assert api.History(2).processed is not None
    assert api.Deploy().mark("a deploy")
    assert list(api.Deploy().fetch().values()) == ["a deploy"]
    assert list(api.ProfileSet()) == []
    assert api.Stats().workers_size == 0


def test_processes_are_seen_and_told(guarded: Guarded) -> None:
    """A worker of ours stands beside the Ruby process, which can be told to stop; the dead are cleaned away."""
    worker = guarded.start_worker()
    guarded.client.sadd("myapp:processes", "dead:1:abc")
    processes = api.ProcessSet()
    assert {process.identity for process in processes} == {"ruby:1:abc", worker.identity}
    assert guarded.client.sismember("myapp:processes", "dead:1:abc") == 0

    ruby = processes.find("ruby:1:abc")
    assert ruby is not None
    ruby.quiet()

    assert guarded.client.lrange("myapp:ruby:1:abc-signals", 0, -1) == [b"TSTP"]
    assert worker.stop() == 0
    assert [process.identity for process in api.ProcessSet()] == ["ruby:1:abc"]


def test_commands_look_under_the_namespace(guarded: Guarded) -> None:
    """By the flag; a worker, and what else reads the program's settings, by the variable."""
    program.reset()
    assert guarded.run("push", "Note", '["pushed"]').exit_code == 0
    assert guarded.run("push", "Fail", '["x"]', "--in", "1h").exit_code == 0
    assert json.loads(guarded.run("stats", "--json").output)["enqueued"] == 1
    assert json.loads(guarded.run("queues", "--json").output)[0]["name"] == "default"
    assert "ruby:1:abc" in guarded.run("processes", "--json").output
    assert "Fail" in guarded.run("scheduled", "list").output
    assert guarded.run("scheduled", "kill", "--all", "--yes").exit_code == 0
    assert guarded.run("dead", "delete", "--all", "--yes").exit_code == 0
    assert json.loads(guarded.run("recover", "--json").output) == {"recovered": 0, "alive": [], "waiting": []}
    guarded.client.set("myapp:queue:odd", "x")
    for words in (
        ["queues", "move", "default", "other", "--create", "--yes"],
        ["queues", "move", "other", "default", "--class", "Note", "--yes"],
        ["queues", "pause", "default"],
        ["processes", "quiet", "ruby:1:abc"],
        ["set-aside", "queue:odd", "--yes"],
        ["top", "--once", "--sample", "0"],
    ):
        assert guarded.run(*words).exit_code == 0
    assert guarded.client.smembers("myapp:queues") == {b"default", b"other"}
    assert guarded.client.smembers("myapp:paused") == {b"default"}
    assert guarded.client.lrange("myapp:ruby:1:abc-signals", 0, -1) == [b"TSTP"]
    assert guarded.client.get("myapp:misplaced:queue:odd") == b"x"


def test_an_embedded_worker_works_under_the_namespace(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program is configured."""
    monkeypatch.setenv("NOTES", str(guarded.notes))
    jobs.note.perform_async("embedded")

    with sidekiq.embed():
        eventually(lambda: guarded.has_noted("embedded"), PATIENCE_SECONDS)


def test_namespaces_of_one_redis_do_not_see_each_other(redis_url: str, redis_client: redis.Redis) -> None:
    """Each client pushes under its own, and one without under none."""
    settings = [RedisSettings(redis_url, namespace=name) for name in ("a", "b", "")]
    for settings_of_one in settings:
        sidekiq.Client(pool=Pool(settings_of_one), sidekiq_version="6").push({"class": "Note", "args": []})

    assert sorted(redis_client.keys("*:default")) == [b"a:queue:default", b"b:queue:default", b"queue:default"]
