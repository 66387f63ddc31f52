"""Every feature of ours, each by the user that docs/redis.md gives it: nothing may have been refused."""

import asyncio
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

import sidekiq_py as sidekiq
from sidekiq_py import api, program
from sidekiq_py.cli import main
from sidekiq_py.errors import RedisReplyError
from tests.namespace import jobs
from tests.support.redis_server import RedisServer
from tests.support.redis_users import Users, documented_users
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, WorkerProcess

PATIENCE_SECONDS = 60.0
# With the keys of execution metrics under their two sets of names.
RELEASES = pytest.mark.parametrize("release", ["7", "8"])


@dataclass
class Confined:
    """Programs of three users on one server."""

    users: Users
    client: redis.Redis
    notes: Path
    start_worker: Callable[..., WorkerProcess]

    def program(self, user: str, release: str | None = "7") -> None:
        """From here on this test is a program of *user*."""
        program.reset()
        sidekiq.configure(redis_url=self.users.url(user), sidekiq_version=release)

    @contextmanager
    def viewer(self) -> Iterator[str]:
        """Makes the user of docs/dashboard.md that may only read, for the block; yields its name."""
        page = (REPOSITORY / "docs" / "dashboard.md").read_text()
        rules = page.partition("redis-cli ACL SETUSER viewer on ")[2].partition("\n")[0].replace("'", "").split()
        self.users.give("viewer", ["reset", "on", *rules])
        try:
            yield "viewer"
        finally:
            self.users.admin.execute_command("ACL", "DELUSER", "viewer")

    def has_noted(self, text: str) -> bool:
        """A job has written this line."""
        return self.notes.exists() and text in self.notes.read_text().split("\n")

    def command(self, *arguments: str, user: str = "operator") -> str:
        """What a command of `sidekiq-py` prints for *user*."""
        ran = CliRunner().invoke(main, [*arguments, "-u", self.users.url(user)], prog_name="sidekiq-py")
        assert ran.exit_code == 0, ran.output
        return ran.output


@pytest.fixture
def confined(redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path) -> Iterator[Confined]:
    """The documented users; in the end none of them may have been refused anything."""
    users = Users(redis_server, redis_client)
    users.create()
    with ExitStack() as cleanup:
        notes = tmp_path / "notes"

        def start(*arguments: str, also: Sequence[str] = ()) -> WorkerProcess:
            worker = WorkerProcess(
                ["tests.namespace.jobs", *also],
                redis_url=users.url("worker"),
                arguments=arguments,
                environment={"NOTES": str(notes)},
            )
            cleanup.callback(worker.print_log_tail)
            # The look at whether it is registered needs a user of its own.
            worker.redis_url = users.server.url
            return cleanup.enter_context(worker)

        cleanup.callback(program.reset)
        yield Confined(users, redis_client, notes, start)
    refused = users.refusals()
    for name in documented_users():
        redis_client.execute_command("ACL", "DELUSER", name)
    assert refused == []


def test_the_page_gives_nobody_what_is_dangerous(redis_client: redis.Redis) -> None:
    """But for Ruby's worker, which does not start without INFO; and none is given a whole category."""
    dangerous = {command.lower() for command in redis_client.acl_cat("dangerous")}
    given = {
        name: {rule[1:].lower() for rule in rules if rule.startswith("+")} for name, rules in documented_users().items()
    }

    assert {name: commands & dangerous for name, commands in given.items()} == {
        "enqueue": set(),
        "worker": set(),
        "operator": set(),
        "ruby": {"info"},
    }
    assert not [command for commands in given.values() for command in commands if command.startswith("@")]


def test_who_enqueues(confined: Confined) -> None:
    """Every way of it, with the release found out and given; and nothing else."""
    for release in (None, "6.4.1", "8"):
        confined.program("enqueue", release)
        jobs.note.perform_async("now")
        jobs.note.perform_in(3600, "later")
        jobs.note.perform_bulk([["one"], ["two"]])
        asyncio.run(push_awaited(confined.users.url("enqueue")))
        assert sidekiq.cancel("a1")
        assert sidekiq.cancel("a1")

    assert (confined.client.llen("queue:default"), confined.client.zcard("schedule")) == (15, 3)
    assert confined.users.refusals() == []
    with pytest.raises(RedisReplyError, match=r"NOPERM"):
        api.Queue("default").clear()
    assert confined.users.refusals() != []
    confined.client.execute_command("ACL", "LOG", "RESET")


async def push_awaited(url: str) -> None:
    """Two jobs."""
    async with sidekiq.AsyncClient(url) as client:
        await client.push({"class": "Note", "args": ["awaited"]})
        await client.push_bulk({"class": "Note", "args": [["a"]]})


def test_who_enqueues_finds_out_the_release_of_ruby(confined: Confined) -> None:
    """From the process that stands there."""
    info = {"hostname": "ruby", "pid": 1, "tag": "app", "concurrency": 5, "queues": ["a"], "labels": []}
    confined.client.sadd("processes", "ruby.example:17:0123456789ab")
    confined.client.hset("ruby.example:17:0123456789ab", "info", json.dumps({**info, "version": "7.3.2"}))

    client = sidekiq.Client(confined.users.url("enqueue"))
    client.push({"class": "Note", "args": []})
    client.close()

    assert client.detection.last.version == (7, 3, 2)


@RELEASES
@pytest.mark.parametrize("fetcher", ["reliable", "basic"])
def test_a_worker(confined: Confined, fetcher: str, release: str) -> None:
    """Threads and loop, queues by weight, a paused one, what is due, what fails for now and for good, metrics."""
    confined.client.sadd("paused", "halted")
    worker = confined.start_worker(
        "--fetcher", fetcher, "-q", "default,2", "-q", "low,1", "-q", "halted", "--sidekiq-version", release
    )
    confined.program("enqueue", release)
    jobs.note.set(queue="halted").perform_async("halted")
    jobs.note.perform_async("now")
    jobs.note.set(queue="low").perform_async("low")
    jobs.awaited.perform_async("awaited")
    jobs.note.perform_in(0.5, "later")
    jobs.fail.perform_async("again")
    jobs.fail.set(retry=0).perform_async("never again")
    for text in ("now", "low", "awaited", "later"):
        eventually(lambda text=text: confined.has_noted(text), PATIENCE_SECONDS)
    confined.program("operator", release)
    [entry] = eventually(lambda: list(api.RetrySet()), PATIENCE_SECONDS)
    eventually(lambda: len(api.DeadSet()) == 1, PATIENCE_SECONDS)
    entry.reschedule(1.0)
    eventually(lambda: [entry.retry_count for entry in api.RetrySet()] == [1], PATIENCE_SECONDS)

    assert worker.stop() == 0
    assert (api.Stats().processed, api.Stats().failed) == (7, 3)
    assert not confined.has_noted("halted")
    assert api.Metrics().top_jobs().jobs["Note"].total.processed == 3
    assert f"Working on {confined.users.server.program} at redis://worker:***@" in worker.log
    assert "NOPERM" not in worker.log


@RELEASES
@pytest.mark.parametrize("fetcher", ["reliable", "basic"])
def test_a_worker_needs_rights_on_no_queue_but_its_own(confined: Confined, fetcher: str, release: str) -> None:
    """Also not on `default`, which may belong to another program."""
    own = [rule.replace("~queue:*", "~queue:good") for rule in documented_users()["worker"]]
    confined.users.give("worker", ["reset", *own])
    confined.program("enqueue", release)
    jobs.note.set(queue="good").perform_async("now")
    jobs.note.set(queue="good").perform_in(0.5, "later")
    jobs.fail.set(queue="good").perform_async("again")

    worker = confined.start_worker("--fetcher", fetcher, "-q", "good", "--sidekiq-version", release)
    for text in ("now", "later"):
        eventually(lambda text=text: confined.has_noted(text), PATIENCE_SECONDS)
    eventually(lambda: confined.client.zcard("retry") == 1, PATIENCE_SECONDS)

    assert worker.stop() == 0
    assert "NOPERM" not in worker.log


def test_what_a_killed_worker_held_comes_back(confined: Confined) -> None:
    """Its jobs, its name among the suspects, its last beat."""
    confined.program("operator")
    killed = confined.start_worker("-c", "1")
    jobs.linger.perform_async("lingering")
    eventually(lambda: confined.has_noted("lingering"), PATIENCE_SECONDS)
    killed.kill()

    successor = confined.start_worker("-c", "1")
    eventually(lambda: api.Stats().processed == 1, PATIENCE_SECONDS)

    assert successor.stop() == 0


def test_a_stop_gives_back_what_runs(confined: Confined) -> None:
    """Also what heeds nothing."""
    confined.program("operator")
    worker = confined.start_worker("-c", "1", "-t", "0.1")
    jobs.linger.perform_async("lingering")
    eventually(lambda: confined.has_noted("lingering"), PATIENCE_SECONDS)

    worker.stop()

    assert [job.args for job in api.Queue("default")] == [["lingering"]]


def test_a_poison_pill_goes_to_the_dead_set(confined: Confined) -> None:
    """A family of processes loses a child four times; each time another one recovers the job."""
    confined.program("operator")
    confined.start_worker("--processes", "2", "-c", "1")
    jobs.die.perform_async()

    eventually(lambda: len(api.DeadSet()) == 1)
    assert len(api.Queue("default")) == 0


def test_an_iterable_job_leaves_off_and_is_cancelled(confined: Confined) -> None:
    """Its state, and the word that it shall stop."""
    for release in ("7", "8"):
        confined.notes.unlink(missing_ok=True)
        confined.program("enqueue", release)
        worker = confined.start_worker("-c", "1", "-t", "5", "--sidekiq-version", release)
        jid = jobs.Count.perform_async(1_000_000, 0.01)
        assert jid is not None
        eventually(lambda: confined.has_noted("counting"), PATIENCE_SECONDS)
        worker.stop()
        sidekiq.cancel(jid)
        confined.program("operator", release)
        assert jid in api.IterableJobQuery([jid])

        successor = confined.start_worker("-c", "1", "--sidekiq-version", release)
        eventually(lambda: confined.has_noted("counted"), PATIENCE_SECONDS)
        successor.stop()


def test_who_cancels_iterable_jobs_need_not_be_able_to_delete_queues(confined: Confined) -> None:
    """EXPIRE for all keys of its own would let a program that enqueues jobs delete those of everyone."""
    if int(confined.client.info("server")["redis_version"].split(".")[0]) < 7:
        # It has no rights for some keys alone.
        return
    page = (REPOSITORY / "docs" / "redis.md").read_text()
    rules = shlex.split(page.partition("append\n`")[2].partition("`")[0])
    confined.client.execute_command("ACL", "SETUSER", "enqueue", *rules)
    confined.program("enqueue")

    jid = jobs.Count.perform_async(1, 0.01)
    jobs.fail.perform_in(3600, 1)
    assert jid is not None
    sidekiq.cancel(jid)

    assert confined.client.hexists(f"it-{jid}", "cancelled")
    for key in ("queue:default", "schedule"):
        assert b"no permissions" in confined.client.execute_command("ACL", "DRYRUN", "enqueue", "EXPIRE", key, "0")


@RELEASES
def test_the_data_api(confined: Confined, release: str) -> None:
    """Every set and queue, by every way of looking."""
    confined.program("operator", release)
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
    assert scheduled.fetch((0, 5e9), entry.jid)
    dead = api.DeadSet()
    dead.kill(json.dumps({"class": "Gone", "args": [], "jid": "b2", "queue": "gone"}))
    assert dead.retry_all().moved == 2
    dead.trim()
    assert api.Queue("gone").clear() == 1
    job, other = api.Queue("default")
    assert api.Queue("default").find_job(job.jid or "") is not None
    assert job.delete()
    assert other.delete()
    assert scheduled.clear() == 1
    api.Stats().reset()
    assert api.Stats().queue_summaries
    assert api.History(2).processed is not None
    assert api.Deploy().mark("a deploy")
    assert list(api.Deploy().fetch().values()) == ["a deploy"]
    assert api.Metrics().top_jobs().jobs == {}
    api.Metrics().for_job("Fail", minutes=10)
    assert list(api.ProfileSet()) == []
    assert api.Stats().workers_size == 0


def test_processes_are_seen_and_told(confined: Confined) -> None:
    """A worker is quieted and stopped from afar; the dead are cleaned away."""
    worker = confined.start_worker(also=["interop_tests.support.quick_beats"])
    confined.client.sadd("processes", "dead.example:1:0123456789ab")
    confined.program("operator")
    [process] = api.ProcessSet()
    assert list(api.WorkSet()) == []
    assert api.ProcessSet().leader == ""

    process.quiet()
    process.stop()

    assert worker.wait() == 0


def test_commands(confined: Confined) -> None:
    """Each of them, and doctor beside a worker."""
    confined.start_worker("-q", "nothing-here")
    assert confined.command("push", "Note", '["pushed"]')
    assert confined.command("push", "Fail", '["x"]', "--in", "1h")
    assert json.loads(confined.command("stats", "--json"))["enqueued"] == 1
    assert json.loads(confined.command("queues", "--json"))
    assert len(json.loads(confined.command("processes", "--json"))) == 1
    assert "Fail" in confined.command("scheduled", "list")
    assert confined.command("scheduled", "kill", "--all", "--yes")
    assert confined.command("dead", "delete", "--all", "--yes")
    assert json.loads(confined.command("recover", "--json"))["recovered"] == 0

    assert confined.command("push", "Note", '["moved"]', "-q", "from")
    confined.client.set("queue:odd", "x")
    confined.client.lpush("queue:unlisted", "{}")
    assert confined.command("queues", "show", "from")
    assert confined.command("queues", "move", "from", "to", "--create", "--yes")
    assert confined.command("queues", "move", "to", "from", "--class", "Note", "--yes")
    assert confined.command("queues", "pause", "from")
    assert confined.command("queues", "unpause", "from")
    assert confined.command("queues", "clear", "from", "--yes")
    assert confined.command("queues", "delete", "from", "--yes")
    assert confined.command("queues", "add", "unlisted")
    assert confined.command("jobs")
    assert confined.command("processes", "dump", "--all")
    assert confined.command("processes", "quiet", "--all", "--yes")
    assert confined.command("top", "--once", "--sample", "0")
    assert confined.command("set-aside", "queue:odd", "--yes")
    assert confined.command("dead", "list", "--match", "x", "--after", "1h", "--error", "y")

    doctor = CliRunner().invoke(main, ["doctor", "--json", "-u", confined.users.url("operator")])

    assert doctor.exit_code in (0, 1), doctor.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("stats",),
        ("queues",),
        ("queues", "show", "default"),
        ("queues", "clear", "default", "--dry-run"),
        ("queues", "clear", "default", "--class", "Note", "--dry-run"),
        ("queues", "delete", "default", "--dry-run"),
        ("queues", "move", "default", "low", "--create", "--dry-run"),
        ("jobs",),
        ("processes",),
        ("scheduled", "delete", "--all", "--dry-run"),
        ("top", "--once", "--sample", "0"),
    ],
    ids=" ".join,
)
def test_who_may_only_read_sees_everything(confined: Confined, arguments: tuple[str, ...]) -> None:
    """Listings and dry runs write nothing, not even to remove processes that have gone."""
    confined.command("push", "Note", '["waits"]')
    confined.client.sadd("processes", "gone:1:abc")

    with confined.viewer() as viewer:
        assert confined.command(*arguments, user=viewer)

    assert confined.client.smembers("processes") == {b"gone:1:abc"}


def test_a_user_of_a_namespace_needs_its_keys_alone(confined: Confined) -> None:
    """The commands of a worker, and `~myapp:*` in the place of all keys."""
    commands = [rule for rule in documented_users()["worker"] if not rule.startswith("~")]
    confined.client.execute_command("ACL", "SETUSER", "worker", "reset", *commands, "~myapp:*")
    client = sidekiq.Client(confined.users.url("worker"), namespace="myapp", sidekiq_version="6.4.1")

    client.push({"class": "Note", "args": []})
    client.close()

    assert confined.client.llen("myapp:queue:default") == 1
