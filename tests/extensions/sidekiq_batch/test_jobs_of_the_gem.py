"""Jobs of the gem sidekiq-batch in a real worker: told apart from Sidekiq Pro's, run, and ended with their batch."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.api import Queue, RetrySet
from sidekiq_py.client import sync_client
from sidekiq_py.errors import RedisConnectionError, RedisReplyError
from sidekiq_py.extension import EndKind, JobEnd, Pool
from sidekiq_py.extensions.sidekiq_batch.extension import END, SidekiqBatchExtension
from sidekiq_py.redis_access.job_path.settle_script import write
from sidekiq_py.registry import registry
from sidekiq_py.wire.dialect import Dialect
from tests.support.waiting import eventually

BID = "oB3mHqXDfWNqEA"


@pytest.fixture(autouse=True)
def _here(redis_url: str) -> Iterator[None]:
    """The program's Redis is the test's."""
    program.reset()
    sidekiq.configure(redis_url=redis_url, sidekiq_version="7.3.2")
    program.extensions.load_installed()
    before = {definition.name for definition in registry}
    yield
    sync_client.current().close()
    program.reset()
    for name in {definition.name for definition in registry} - before:
        registry.remove(name)


@pytest.fixture
def ran() -> list[Any]:
    """The arguments of the runs of the job `Import`."""
    runs: list[Any] = []

    @sidekiq.job(name="Import", queue="mixed", retry=3)
    def importing(row: str) -> None:
        runs.append(row)
        if row == "bad":
            raise ValueError("a bad row")

    return runs


@pytest.fixture
def work() -> Iterator[Callable[[], Any]]:
    """Starts a worker of this process."""
    workers: list[Any] = []

    def start() -> Any:
        worker = sidekiq.embed(queues=["mixed"], concurrency=2)
        worker.start()
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.stop(timeout_seconds=1)


@pytest.fixture
def refusals(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log says of queues that are served no more."""
    caplog.set_level(logging.ERROR, logger="sidekiq")
    return lambda: [line for line in caplog.messages if "no longer serves mixed" in line]


def open_batch(client: redis.Redis, *rows: str) -> list[str]:
    """As the gem does it: a batch with callbacks on the queue `ruby`, and its jobs."""
    jids = [f"{number:024x}" for number, _ in enumerate(rows, 1)]
    fields = {"callback_queue": "ruby", "created_at": "1.5", "pending": len(rows), "total": len(rows)}
    client.hset(f"BID-{BID}", mapping=fields)
    for jid in jids:
        client.sadd(f"BID-{BID}-jids", jid)
    for event in ("complete", "success"):
        client.sadd(f"BID-{BID}-callbacks-{event}", f'{{"callback":"ImportDone","opts":{{"at":"{event}"}}}}')
    for jid, row in zip(jids, rows, strict=True):
        push(client, "Import", [row], jid)
    return jids


def push(client: redis.Redis, klass: str, args: list[Any], jid: str = "f" * 24, bid: Any = BID) -> None:
    """A job of a batch, as Ruby pushes it."""
    job = {"retry": 3, "queue": "mixed", "class": klass, "args": args, "jid": jid, "created_at": 1.5, "bid": bid}
    client.lpush("queue:mixed", json.dumps(job))
    client.sadd("queues", "mixed")


def callbacks() -> list[Any]:
    """What was enqueued for Ruby, the first one first."""
    return [job.args for job in reversed(list(Queue("ruby")))]


def test_a_batch_is_counted_down_and_its_callbacks_are_enqueued_once(
    redis_client: redis.Redis, ran: list[Any], work: Callable[[], Any], refusals: Callable[[], list[str]]
) -> None:
    """By the ends of jobs that Python runs."""
    open_batch(redis_client, "1", "2", "3")

    work()

    eventually(lambda: len(callbacks()) == 2)
    assert callbacks() == [
        ["ImportDone", "complete", {"at": "complete"}, BID, None],
        ["ImportDone", "success", {"at": "success"}, BID, None],
    ]
    assert sorted(ran) == ["1", "2", "3"]
    assert redis_client.hget(f"BID-{BID}", "pending") == b"0"
    assert not redis_client.exists(f"BID-{BID}-jids")
    assert refusals() == []


def test_a_job_that_fails_counts_as_failed_at_once(
    redis_client: redis.Redis, ran: list[Any], work: Callable[[], Any]
) -> None:
    """The batch is complete with it, and no success; the job waits for its retry."""
    _, bad = open_batch(redis_client, "good", "bad")

    work()

    eventually(callbacks)
    eventually(lambda: [job.jid for job in RetrySet()] == [bad])
    assert [args[1] for args in callbacks()] == ["complete"]
    assert redis_client.smembers(f"BID-{BID}-failed") == {bad.encode()}
    eventually(lambda: redis_client.smembers(f"BID-{BID}-jids") == {bad.encode()})


def test_what_people_delete_is_not_counted(redis_client: redis.Redis, ran: list[Any]) -> None:
    """As where Ruby's Web UI deletes it: the gem does not hear of that."""
    open_batch(redis_client, "1")

    [job] = Queue("mixed")
    job.delete()

    assert redis_client.hget(f"BID-{BID}", "pending") == b"1"
    assert not redis_client.exists("queue:mixed", "queue:ruby")


def test_a_job_that_comes_when_its_batch_is_through_is_run(
    redis_client: redis.Redis, ran: list[Any], work: Callable[[], Any], refusals: Callable[[], list[str]]
) -> None:
    """The gem gives its key to all that a member pushes, and does not wait for it; nothing of the batch comes back."""
    open_batch(redis_client, "1")
    work()
    eventually(lambda: len(callbacks()) == 2)
    redis_client.delete(f"BID-{BID}")

    push(redis_client, "Import", ["late"])

    eventually(lambda: ran == ["1", "late"])
    eventually(lambda: redis_client.hgetall("sidekiq_py:owners") and not redis_client.llen("queue:mixed"))
    assert refusals() == []
    assert not redis_client.exists(f"BID-{BID}")


@pytest.mark.parametrize(
    ("klass", "bid"),
    [("Import", "AnotherOneOfPro"), ("Import", 17), ("Sidekiq::Batch::Callback::Worker", BID)],
    ids=["no such batch", "no text", "a callback of the gem"],
)
def test_others_are_refused_as_ever(
    redis_client: redis.Redis,
    ran: list[Any],
    work: Callable[[], Any],
    refusals: Callable[[], list[str]],
    klass: str,
    bid: Any,
) -> None:
    """Sidekiq Pro's, and the gem's own callbacks, which call Ruby's classes."""
    open_batch(redis_client)
    push(redis_client, klass, ["x"], bid=bid)

    work()

    eventually(lambda: len(refusals()) == 1)
    assert "a batch (Sidekiq Pro; or sidekiq-batch, and it is a callback, or its batch is gone)" in refusals()[0]
    eventually(lambda: redis_client.llen("queue:mixed") == 1)
    assert ran == []


class _Interrupted(SidekiqBatchExtension):
    """Its first question is lost with a connection."""

    has_failed = False

    def takes_over(self, payload: dict[str, Any], pool: Pool) -> bool:
        if not self.has_failed:
            self.has_failed = True
            raise RedisConnectionError("the connection broke")
        return super().takes_over(payload, pool)


def test_a_job_is_asked_about_again_when_redis_is_back(
    redis_client: redis.Redis, ran: list[Any], work: Callable[[], Any], refusals: Callable[[], list[str]]
) -> None:
    """It goes back to its queue meanwhile, and is not counted as failed."""
    extension = sidekiq.use(_Interrupted())
    open_batch(redis_client, "1")

    work()

    eventually(lambda: len(callbacks()) == 2)
    assert (ran, extension.has_failed, refusals()) == (["1"], True, [])
    assert not redis_client.exists("retry", f"BID-{BID}-failed")


def test_a_chosen_policy_holds_for_the_gem_s_jobs_too(
    redis_client: redis.Redis, ran: list[Any], work: Callable[[], Any], refusals: Callable[[], list[str]]
) -> None:
    """Whoever has asked for `refuse` gets it."""
    sidekiq.configure(extension_keys={"bid": "refuse"})
    open_batch(redis_client, "1")

    work()

    eventually(lambda: len(refusals()) == 1)
    assert ran == []


def test_a_job_of_a_batch_that_nobody_knows_is_run_where_the_policy_says_so(
    redis_client: redis.Redis, ran: list[Any], work: Callable[[], Any], refusals: Callable[[], list[str]]
) -> None:
    """And the batches that are there are counted all the same."""
    sidekiq.configure(extension_keys={"bid": "run"})
    open_batch(redis_client, "1")
    push(redis_client, "Import", ["late"], bid="AnotherOneGone")

    work()

    eventually(lambda: len(callbacks()) == 2)
    eventually(lambda: sorted(ran) == ["1", "late"])
    assert refusals() == []
    assert not redis_client.exists("BID-AnotherOneGone")


@pytest.mark.parametrize(
    ("kind", "error", "outcome"),
    [
        ("success", None, "ok"),
        ("interrupted", None, "failed"),
        ("dead", ValueError("its retries are over"), "failed"),
        ("dead", None, None),
        ("stopped", None, None),
    ],
)
def test_ends_count_as_they_do_in_ruby(kind: EndKind, error: Exception | None, outcome: str | None) -> None:
    """
    An iterable job that is interrupted passes the gem's middleware with an exception; of what people kill, or a
    middleware of the client stops, the gem does not hear.
    """
    end = JobEnd(kind, {"class": "Import", "bid": BID}, b"", "mixed", 1.5, Dialect.pinned("8.1.7"), error)

    assert [effect[3] for effect in SidekiqBatchExtension().end(end)] == ([] if outcome is None else [outcome])


def test_a_damaged_batch_keeps_its_jobs(redis_client: redis.Redis, ran: list[Any], work: Callable[[], Any]) -> None:
    """A key of another type is no batch's: nothing is written, and the job stays where it is."""
    open_batch(redis_client, "1")
    redis_client.delete(f"BID-{BID}-jids")
    redis_client.set(f"BID-{BID}-failed", "?")

    worker = work()
    eventually(lambda: ran)
    worker.stop(timeout_seconds=1)

    assert redis_client.hget(f"BID-{BID}", "pending") == b"1"
    assert [job.args for job in Queue("mixed")] == [["1"]]


@pytest.mark.parametrize("command", sorted(set(re.findall(r"redis\.call\('(\w+)'", END.source))))
def test_an_end_that_was_refused_is_counted_once_when_it_is_sent_again(
    redis_client: redis.Redis, redis_url: str, command: str
) -> None:
    """Counted before the refusal and again afterwards, it would bring callbacks before the last job, or never."""
    jids = open_batch(redis_client, "1", "2")
    rights = ("ACL", "SETUSER", "clerk", "on", ">pw", "~*", "&*", "+@all")
    redis_client.execute_command(*rights)
    sidekiq.configure(redis_url=redis_url.replace("://", "://clerk:pw@"))
    pool = sync_client.current().pool

    ends: list[tuple[str, EndKind]] = [(jids[0], "retry"), (jids[0], "success"), (jids[1], "success")]
    for jid, kind in ends:
        payload = {"class": "Import", "jid": jid, "bid": BID}
        effects = [*SidekiqBatchExtension().end(JobEnd(kind, payload, b"", "mixed", 1.5, Dialect.pinned("8.1.7")))]
        redis_client.execute_command(*rights, f"-{command.lower()}")
        try:
            pool.run(lambda link, vital=effects: write(link, vital))
        except RedisReplyError:
            redis_client.execute_command(*rights)
            pool.run(lambda link, vital=effects: write(link, vital))
    redis_client.execute_command(*rights)
    redis_client.acl_deluser("clerk")

    assert redis_client.hget(f"BID-{BID}", "pending") == b"0"
    assert sorted(json.loads(raw)["args"][1] for raw in redis_client.lrange("queue:ruby", 0, -1)) == [
        "complete",
        "success",
    ]


def test_a_callback_that_cannot_be_read_goes_to_ruby_as_a_text(
    redis_client: redis.Redis, ran: list[Any], work: Callable[[], Any]
) -> None:
    """There it fails, and is shown; nobody would hear of one that is passed over."""
    open_batch(redis_client, "1")
    redis_client.delete(f"BID-{BID}-callbacks-success")
    redis_client.sadd(f"BID-{BID}-callbacks-success", '{"callback": "a/b')

    work()

    eventually(lambda: len(callbacks()) == 2)
    assert callbacks()[1] == ['{"callback": "a/b', "success", None, BID, None]
