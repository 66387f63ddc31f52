"""The job that another's end pushes goes straight in flight, where a fetch right behind would bring it and no other."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import monotonic
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch import flusher
from sidekiq_py.engine.fetch.direct_handoff import direct_handoff_of
from sidekiq_py.engine.fetch.exchange import Exchange
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.outcome import Attempt, Outcome, Question
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import job_counts, settle_script
from sidekiq_py.redis_access.job_path.settle_script import SETTLE, Join, Once, Take, Unless
from sidekiq_py.registry import FunctionDefinition, Registry
from tests.engine.fetch.in_flight_jobs import OWNER, fetch, held, push
from tests.support.cutting_proxy import WHERES, CuttingProxy, Where
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.no_more_threads import without_more_threads
from tests.support.redis_server import RedisServer
from tests.support.stored_keys import all_keys
from tests.support.waiting import eventually

STEPS = 30
TAKE = Take("queue:default", b"next", b"2.0:default", OWNER, ("queue:high", "queue:default"))


def settle(link: Link, field: bytes, *vital: settle_script.Effect) -> Any:
    """The reply of the script that ends a job."""
    counters = job_counts.count_commands(1767312000.0, failed=False)
    return SETTLE.run(link, *settle_script.settle_parts(f"sidekiq_py:inflight:{OWNER}", field, vital, counters))


# ---- the script


@pytest.mark.parametrize("before", [b"", b"7"])
def test_it_goes_straight_in_flight(link: Link, redis_client: redis.Redis, before: bytes) -> None:
    """In the step that ends the other; the reply tells the number of the notices, as that of a fetch does."""
    push(redis_client, "first")
    [(field, _)] = fetch(link)
    if before:
        redis_client.set("sidekiq_py:orders", before)

    reply = settle(link, field, ("SADD", "queues", "default"), TAKE, ("SET", "result", "1"))

    assert reply == [before]
    assert held(redis_client) == {b"2.0:default": b"next"}
    assert redis_client.exists("queue:default", "queue:high") == 0
    assert (redis_client.get("result"), redis_client.get("stat:processed")) == (b"1", b"1")


def test_it_does_so_where_it_is_all_that_an_end_writes(link: Link, redis_client: redis.Redis) -> None:
    """Of one command nothing is looked at beforehand."""
    push(redis_client, "first")
    [(field, _)] = fetch(link)

    assert settle(link, field, TAKE) == [b""]
    assert held(redis_client) == {b"2.0:default": b"next"}


@pytest.mark.parametrize(
    "stands_in_the_way",
    [
        ("LPUSH", "queue:default", "other"),
        ("LPUSH", "queue:high", "other"),
        ("SET", "queue:high", "no list"),
        ("SADD", "paused", "elsewhere"),
        ("HSET", "sidekiq_py:suspects", "sha", "0:1"),
        ("ZADD", "sidekiq_py:revoked", 9e9, "x"),
        ("SET", "sidekiq_py:revoked", "no zset"),
        ("LPUSH", "sidekiq_py:orders", "no string"),
        ("HDEL", "sidekiq_py:owners", OWNER),
        ("DEL", f"sidekiq_py:lease:{OWNER}"),
    ],
    ids=lambda command: " ".join(map(str, command[:2])),
)
def test_it_is_pushed_where_a_fetch_has_more_to_see_to(
    link: Link, redis_client: redis.Redis, stands_in_the_way: tuple[Any, ...]
) -> None:
    """Behind those that wait; what the fetch makes of it is the fetch's affair."""
    push(redis_client, "first")
    [(field, _)] = fetch(link)
    redis_client.execute_command(*stands_in_the_way)

    reply = settle(link, field, ("SADD", "queues", "default"), TAKE, ("SET", "result", "1"))

    assert reply == 1
    assert held(redis_client) == {}
    assert redis_client.lindex("queue:default", 0) == b"next"
    assert redis_client.get("result") == b"1"


def test_nothing_is_taken_by_a_job_that_is_not_in_flight_any_more(link: Link, redis_client: redis.Redis) -> None:
    """Who has it now will push it, or has."""
    push(redis_client, "first")
    [(field, _)] = fetch(link)
    assert settle(link, field, TAKE) == [b""]
    before = all_keys(redis_client)

    assert settle(link, field, TAKE) == 0
    assert all_keys(redis_client) == before


def test_owners_of_a_foreign_type_leave_it_to_the_fetch_to_say_so(link: Link, redis_client: redis.Redis) -> None:
    """The one job has ended all the same."""
    push(redis_client, "first")
    [(field, _)] = fetch(link)
    redis_client.delete("sidekiq_py:owners")
    redis_client.set("sidekiq_py:owners", "no hash")

    assert settle(link, field, ("SADD", "queues", "default"), TAKE) == 1
    assert redis_client.lrange("queue:default", 0, -1) == [b"next"]


def test_it_is_in_its_queue_where_the_end_is_refused_after_it(link: Link, redis_client: redis.Redis) -> None:
    """Nobody hears that it was taken, and the end will be sent again."""
    push(redis_client, "first")
    [(field, _)] = fetch(link)

    with pytest.raises(RedisReplyError, match="syntax error"):
        settle(link, field, TAKE, ("SET", "result", "1", "no such option"))

    assert held(redis_client) == {field: b"first"}
    assert redis_client.lrange("queue:default", 0, -1) == [b"next"]


@pytest.mark.parametrize(
    ("beside", "is_taken"),
    [
        ((), True),
        ((Unless("result", "x", (("SET", "result", "1"), ("PUBLISH", "result", "1"))),), True),
        ((Once("marks", "done", (("LPUSH", "queue:high", b"more"),)),), False),
        ((Join("whole", "done", 1, b"placeholder", (("LPUSH", "queue:high", b"more"),)),), False),
        ((("LPUSH", "queue:elsewhere", b"more"),), False),
        ((("RPUSH", "queue:default", b"more"),), False),
        ((["SET", "result", "1"],), False),
    ],
)
def test_an_end_that_may_push_more_leaves_it_to_a_fetch(beside: tuple[Any, ...], is_taken: bool) -> None:
    """Which of them is to run first it knows."""
    owner = Owner(OWNER, "")
    unit = UnitOfWork(b"first", "default", owner, b"1.0:default", is_marked=False, fetched_at=0.0)
    unit.end = ([*beside, ("LPUSH", "queue:default", b"next")], ())

    found = direct_handoff_of(unit, owner, 2, {"queue:high": "high", "queue:default": "default"})

    assert (found is not None) == is_taken
    if found is not None:
        assert (found.next_job.raw, found.next_job.field, found.next_job.queue) == (b"next", b"2.0:default", "default")


def test_a_queue_of_a_foreign_type_leaves_the_end_unwritten(link: Link, redis_client: redis.Redis) -> None:
    """As a push would."""
    push(redis_client, "first")
    [(field, _)] = fetch(link)
    redis_client.set("queue:default", "no list")
    before = all_keys(redis_client)

    with pytest.raises(RedisReplyError, match="WRONGTYPE queue:default is a string, and LPUSH needs a list"):
        settle(link, field, ("SADD", "queues", "default"), TAKE)

    assert all_keys(redis_client) == before


def test_a_full_redis_is_worked_empty_by_it(new_redis_server: Callable[..., RedisServer]) -> None:
    """The end of the one makes room for the other."""
    server = new_redis_server()
    client = server.client()
    one = RedisSettings(server.url)
    with ExitStack() as exits:
        exits.callback(client.close)
        pool = Client(one.url).pool
        link = pool.new_link()
        exits.callback(link.close)
        push(client, "first")
        [(field, _)] = fetch(link)
        client.config_set("maxmemory", 1)

        assert settle(link, field, TAKE, ("HDEL", "elsewhere", "x")) == [b""]
        assert held(client) == {b"2.0:default": b"next"}


def test_an_end_that_is_refused_while_no_thread_can_start_is_sent_again(
    pool: Pool, link: Link, redis_client: redis.Redis
) -> None:
    """It cannot be deferred then. If it were dropped, the job would stay in flight until the process ends."""
    ownership = Ownership("host:1:abc", ["default"], 30)
    owner = ownership.current
    owner.published = owner.about
    settler = Settler(
        pool.new_link(),
        on_pending=lambda: None,
        on_lost_connection=lambda: None,
        count=lambda jobs: None,
        downtime=Downtime(),
    )
    exchange = Exchange(pool.new_link(), settler, ownership, ["default"], max_bytes=10**6, on_notices=None)
    push(redis_client, "first")
    [(field, raw)] = fetch(link, owner=owner.name, registration=owner.about)
    unit = owner.units[field] = UnitOfWork(raw, "default", owner, field, is_marked=False, fetched_at=0.0)
    unit.end = ([("SADD", "queues", "default"), ("LPUSH", "queue:default", b"next")], ())
    settler.acknowledge(unit)
    redis_client.set("queue:default", "no list")
    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        without_more_threads(lambda: exchange.run([("default", 0)], 1, monotonic()))
    redis_client.delete("queue:default")

    settler.flush()

    assert (held(redis_client), redis_client.lrange("queue:default", 0, -1)) == ({}, [b"next"])
    settler.close()
    exchange.close()


# ---- a worker


class Chained:
    """A worker of one thread, and a job `step` whose end pushes the next one, up to number `STEPS`."""

    def __init__(self, url: str, *queues: str, namespace: str = "") -> None:
        self.settings = RedisSettings(url, namespace=namespace)
        self.ran: list[Any] = []
        self.on_step: Callable[[int], None] = lambda number: None
        self.more: Callable[[int], tuple[Any, ...]] = lambda number: ()
        self.asked: list[Any] = []
        self.registry = Registry()
        self.registry.add(FunctionDefinition("other", {}, self.ran.append, self.ran.append))
        step = FunctionDefinition("step", {}, self.step, self.step)
        step.decide_outcome = self.decide_outcome
        self.registry.add(step)
        self.queues = tuple(QueueConfig(name) for name in queues or ("default",))
        self.client = Client(url, sidekiq_version="6.4.1")
        self.launcher: Launcher | None = None

    def step(self, number: int) -> None:
        self.ran.append(number)
        self.on_step(number)

    def decide_outcome(self, attempt: Attempt) -> Outcome:
        number = attempt.payload["args"][0]
        following = job_text(number + 1, "step").encode()
        vital: tuple[Any, ...] = (("SADD", "queues", "default"), ("LPUSH", "queue:default", following))
        question = Question(("HGET", "texts", str(number)), self.asked.append)
        wanted = (*self.more(number), *(vital if number < STEPS else ()))
        return Outcome("done", attempt.payload, vital=wanted, question=question)

    def start(self) -> None:
        config = Config(
            redis=self.settings,
            sidekiq_version="6.4.1",
            capsules=(CapsuleConfig(concurrency=1, queues=self.queues),),
            job_log=False,
            embedded=True,
        )
        self.launcher = Launcher(
            WorkerParts(config, registry=self.registry, hooks=Hooks(), server_middleware=Chain(), client=self.client)
        )
        self.launcher.start()

    def stop(self) -> None:
        if self.launcher is not None:
            self.launcher.stop(timeout_seconds=1)
        self.client.close()


@pytest.fixture
def make_chained(redis_url: str) -> Iterator[Callable[..., Chained]]:
    """Workers that are stopped in the end."""
    with ExitStack() as exits:

        def make(*queues: str, url: str = redis_url, **options: Any) -> Chained:
            one = Chained(url, *queues, **options)
            exits.callback(one.stop)
            return one

        yield make


def nothing_is_left(client: redis.Redis) -> bool:
    """No job stands anywhere."""
    return not client.keys("*sidekiq_py:in[fb]*:*") and not client.keys("*queue:*")


def test_a_chain_needs_no_fetches(
    redis_client: redis.Redis, make_chained: Callable[..., Chained], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step asks Redis once: one script ends it and takes the next. What else it asks comes along."""
    # Where this thread gets no CPU time for 50 ms, the flusher would end a step, and ask nothing else.
    monkeypatch.setattr(flusher, "REMINDER_SECONDS", 60.0)
    chained = make_chained()
    chained.start()
    push_jobs(redis_client, [job_text(STEPS - 1, "step")])
    eventually(lambda: chained.ran == [STEPS - 1, STEPS])
    eventually(lambda: nothing_is_left(redis_client) and len(chained.asked) == 2)
    chained.asked.clear()
    redis_client.hset("texts", mapping={str(number): f"text {number}" for number in range(STEPS + 1)})
    redis_client.config_resetstat()

    push_jobs(redis_client, [job_text(0, "step")])

    eventually(lambda: chained.ran[2:] == list(range(STEPS + 1)))
    eventually(lambda: nothing_is_left(redis_client) and len(chained.asked) > STEPS)
    calls = {name: told["calls"] for name, told in redis_client.info("commandstats").items()}
    assert calls["cmdstat_lpush"] == 1
    assert calls.get("cmdstat_ltrim", 0) <= 2
    assert chained.asked == [b"text %d" % number for number in range(STEPS + 1)]
    assert redis_client.get("stat:processed") == b"%d" % (STEPS + 3)


def test_a_more_urgent_job_comes_first(redis_client: redis.Redis, make_chained: Callable[..., Chained]) -> None:
    """A chain that runs by itself holds nobody up: each of its steps looks at all queues."""
    chained = make_chained("high", "default")
    # The first of them is moved by the wait that was open when the chain began, and runs within milliseconds.
    urgent = [job_text(98, "other"), job_text(99, "other")]
    chained.on_step = lambda number: number == 5 and push_jobs(redis_client, urgent, "high")
    chained.start()

    push_jobs(redis_client, [job_text(0, "step")])

    eventually(lambda: len(chained.ran) == STEPS + 3)
    assert [number for number in chained.ran if number != 98].index(99) == 6
    assert sorted(chained.ran) == [*range(STEPS + 1), 98, 99]


def test_a_job_that_waited_comes_first(redis_client: redis.Redis, make_chained: Callable[..., Chained]) -> None:
    """In one queue, too; also where another job's end has pushed it."""
    chained = make_chained()
    other = ("LPUSH", "queue:default", job_text(99, "other").encode())
    chained.more = lambda number: (other,) if number == 7 else ()
    chained.on_step = lambda number: number == 5 and push_jobs(redis_client, [job_text(98, "other")])
    chained.start()

    push_jobs(redis_client, [job_text(0, "step")])

    eventually(lambda: len(chained.ran) == STEPS + 3)
    assert chained.ran == [*range(6), 98, 6, 7, 99, *range(8, STEPS + 1)]


def test_a_pause_holds_a_chain(redis_client: redis.Redis, make_chained: Callable[..., Chained]) -> None:
    """From the next step on; each runs once in the end."""
    chained = make_chained()
    chained.on_step = lambda number: number == 5 and redis_client.sadd("paused", "default")
    chained.start()
    push_jobs(redis_client, [job_text(0, "step")])

    eventually(lambda: chained.ran == list(range(6)) and redis_client.llen("queue:default") == 1)
    redis_client.srem("paused", "default")

    eventually(lambda: chained.ran == list(range(STEPS + 1)))
    eventually(lambda: nothing_is_left(redis_client))


def test_notices_are_received_along_a_chain(redis_client: redis.Redis, make_chained: Callable[..., Chained]) -> None:
    """No fetch tells of them."""
    chained = make_chained()
    told: list[list[bytes]] = []
    chained.registry.on_notices = told.append
    chained.on_step = lambda number: number == 5 and redis_client.incr("sidekiq_py:orders")
    chained.start()

    push_jobs(redis_client, [job_text(0, "step")])

    eventually(lambda: chained.ran == list(range(STEPS + 1)))
    assert [b"1"] in told


def test_a_step_for_a_queue_of_others_is_pushed(
    redis_client: redis.Redis, make_chained: Callable[..., Chained]
) -> None:
    """Whoever serves it runs it."""
    chained = make_chained("low")
    chained.start()

    push_jobs(redis_client, [job_text(0, "step")], "low")

    eventually(lambda: redis_client.llen("queue:default") == 1)
    eventually(lambda: not jobs_in_flight(redis_client))
    assert chained.ran == [0]


@pytest.mark.parametrize("where", WHERES)
def test_a_chain_goes_on_where_a_connection_breaks(
    redis_server: RedisServer, redis_client: redis.Redis, make_chained: Callable[..., Chained], where: Where
) -> None:
    """What was taken by a step whose reply was lost goes back, and runs; the step has ended and does not run again."""
    with CuttingProxy(redis_server.port) as proxy:
        chained = make_chained(url=proxy.url)
        chained.on_step = lambda number: number in (5, 15, 25) and proxy.cut(SETTLE.digest, where)
        chained.start()
        push_jobs(redis_client, [job_text(0, "step")])

        eventually(lambda: STEPS in chained.ran)
        eventually(lambda: nothing_is_left(redis_client))
        chained.stop()

    assert chained.ran == list(range(STEPS + 1))
    assert proxy.cuts[where] == 3


def test_scripts_are_brought_along_after_a_flush(
    redis_client: redis.Redis, make_chained: Callable[..., Chained]
) -> None:
    """The end is written, and the next step fetched."""
    chained = make_chained()
    chained.on_step = lambda number: number % 10 == 5 and redis_client.script_flush()
    chained.start()

    push_jobs(redis_client, [job_text(0, "step")])

    eventually(lambda: chained.ran == list(range(STEPS + 1)))
    eventually(lambda: nothing_is_left(redis_client))


def test_it_works_under_a_namespace(redis_client: redis.Redis, make_chained: Callable[..., Chained]) -> None:
    """No key stands beside it."""
    chained = make_chained(namespace="rails")
    chained.start()
    redis_client.lpush("rails:queue:default", job_text(0, "step"))

    eventually(lambda: chained.ran == list(range(STEPS + 1)))
    eventually(lambda: nothing_is_left(redis_client))
    assert redis_client.hkeys("rails:sidekiq_py:owners")
    assert [key for key in redis_client.keys("*") if not key.startswith(b"rails:")] == []


def test_a_worker_that_stops_leaves_the_next_step_to_others(
    redis_client: redis.Redis, make_chained: Callable[..., Chained]
) -> None:
    """A chain without an end keeps no worker."""
    first, second = make_chained(), make_chained()
    first.on_step = lambda number: number == 5 and first.launcher is not None and first.launcher.quiet()
    first.start()
    push_jobs(redis_client, [job_text(0, "step")])

    eventually(lambda: first.ran == list(range(6)) and redis_client.llen("queue:default") == 1)
    [waiting] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(waiting)["args"][0] == 6
    second.start()

    eventually(lambda: second.ran == list(range(6, STEPS + 1)))
    assert first.ran == list(range(6))
