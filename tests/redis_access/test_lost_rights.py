"""Each script that moves or ends a job, run by a user without one of its commands: the job stands in one place."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import redis

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import in_flight, promote, recover, settle_script
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits
from sidekiq_py.redis_access.job_path.promote import Move
from sidekiq_py.redis_access.job_path.recover import Entry, Fate
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.redis_access.reads import job_sets, queues
from sidekiq_py.redis_access.reads.queues import PlacedJob
from tests.engine.fetch.in_flight_jobs import ABOUT, OWNER, claim, fetch
from tests.support.redis_server import RedisServer

JOB = b'{"class":"HardJob","args":[],"jid":"0123456789abcdef01234567","queue":"default"}'
FIELD = b"1.0:default"
INBOX = f"sidekiq_py:inbox:{OWNER}:default"
IN_FLIGHT = f"sidekiq_py:inflight:{OWNER}"
LATER = 4_000_000_000.0
LIMITS = DeadLimits(max_jobs=10, timeout_seconds=1000)


def in_queue(client: redis.Redis) -> None:
    """Two jobs: the one that the script takes is not the last."""
    client.sadd("queues", "default")
    client.rpush("queue:default", b"another", JOB)


def in_hash(client: redis.Redis) -> None:
    """Taken by a fetch."""
    client.hset("sidekiq_py:owners", OWNER, ABOUT)
    client.set(f"sidekiq_py:lease:{OWNER}", 1)
    client.hset(IN_FLIGHT, FIELD, JOB)


def in_inbox(client: redis.Redis) -> None:
    """Taken by a move."""
    client.hset("sidekiq_py:owners", OWNER, ABOUT)
    client.set(f"sidekiq_py:lease:{OWNER}", 1)
    client.lpush(INBOX, JOB)


def in_schedule(client: redis.Redis) -> None:
    """Due."""
    client.zadd("schedule", {JOB: 1.0})


def with_a_pause(place: Callable[[redis.Redis], Any]) -> Callable[[redis.Redis], Any]:
    """With what makes scripts look more closely: another queue that is paused, a suspect, a revoked job."""

    def put(client: redis.Redis) -> None:
        place(client)
        client.sadd("paused", "low")
        client.hset("sidekiq_py:suspects", "some", "1:1.0")
        client.zadd("sidekiq_py:revoked", {"another": LATER})

    return put


def ended(*vital: Effect, listed: bytes | None = None) -> Callable[[Pool, Link], Any]:
    """The end of a job that writes all this, and a counter."""
    counters = [("INCRBY", "stat:processed", 1)]
    return lambda _, link: in_flight.settle(link, OWNER, FIELD, vital=vital, counters=counters, listed=listed)


def moved(target: Any, *effects: Effect) -> Callable[[Pool, Link], Any]:
    """What the poller does with a due job."""
    step = Move(JOB, target, "default", JOB, str(LATER), effects)

    def move(pool: Pool, _: Link) -> None:
        for done in promote.move(pool, "schedule", [step], now=2.0, limits=LIMITS):
            if done.refusal:
                raise done.refusal

    return move


def recovered(entry: Entry) -> Callable[[Pool, Link], Any]:
    """What others do with a job of an owner that is gone."""
    return lambda _, link: recover.put_back(link, OWNER, [Fate(entry, 1, 1.0)])


RETRY = ("ZADD", "retry", LATER, JOB)
BACK = (("SADD", "queues", "default"), ("LPUSH", "queue:default", JOB))
RESULT = (("HSET", "result", "value", 1), ("INCRBY", "count", 1), ("SET", "text", "x"))

SCENARIOS: dict[str, tuple[Script, Callable[[redis.Redis], Any], Callable[[Pool, Link], Any]]] = {
    "fetch": (in_flight.FETCH, in_queue, lambda _, link: fetch(link)),
    "fetch beside a pause": (in_flight.FETCH, with_a_pause(in_queue), lambda _, link: fetch(link)),
    "claim": (in_flight.CLAIM, in_inbox, lambda _, link: claim(link, JOB)),
    "claim beside a pause": (in_flight.CLAIM, with_a_pause(in_inbox), lambda _, link: claim(link, JOB)),
    "claim for an owner that is gone": (
        in_flight.CLAIM,
        lambda client: client.lpush(INBOX, JOB),
        lambda _, link: claim(link, JOB),
    ),
    "give back": (in_flight.GIVE_BACK, in_hash, lambda _, link: in_flight.give_back(link, OWNER, [FIELD])),
    "give back from an inbox": (
        in_flight.GIVE_BACK,
        in_inbox,
        lambda _, link: in_flight.give_back(link, OWNER, [FIELD], {FIELD: JOB}),
    ),
    "recover": (recover.RECOVER, in_hash, recovered(Entry(FIELD, JOB))),
    "recover from an inbox": (recover.RECOVER, in_inbox, recovered(Entry(b"0.0@default", JOB, is_listed=True))),
    "move to another queue": (
        queues.MOVE_TAIL,
        in_queue,
        lambda pool, _: queues.move_tail(pool, "default", "other", 1),
    ),
    "move a chosen job": (
        queues.TAKE_JOBS,
        in_queue,
        lambda pool, _: queues.take_jobs(pool, "default", [PlacedJob(JOB, 0)], target="other"),
    ),
    "promote to a queue": (promote.PROMOTE, in_schedule, moved("queue")),
    "promote to dead": (promote.PROMOTE, in_schedule, moved("dead")),
    "promote, later": (
        promote.PROMOTE,
        lambda client: client.zadd("retry", {JOB: 1.0}),
        lambda pool, _: promote.move(
            pool, "retry", [Move(JOB, "schedule", "", JOB, str(LATER))], now=2.0, limits=LIMITS
        ),
    ),
    "promote to dead, with an extension": (settle_script.SETTLE, in_schedule, moved("dead", *RESULT)),
    "reschedule": (
        job_sets.RESCHEDULE,
        in_schedule,
        lambda pool, _: job_sets.reschedule(pool, "schedule", JOB, score="2.0", spelling=JOB + b" "),
    ),
    "retry": (settle_script.SETTLE, in_hash, ended(RETRY)),
    "retry from an inbox": (settle_script.SETTLE, in_inbox, ended(RETRY, listed=JOB)),
    "retry, with a result": (settle_script.SETTLE, in_hash, ended(RETRY, *RESULT)),
    "retry from an inbox, with a result": (settle_script.SETTLE, in_inbox, ended(RETRY, *RESULT, listed=JOB)),
    "back to its queue": (settle_script.SETTLE, in_hash, ended(*BACK, *RESULT)),
    "back to its queue from an inbox": (settle_script.SETTLE, in_inbox, ended(*BACK, *RESULT, listed=JOB)),
}


def commands_of(script: Script) -> set[str]:
    """That its text calls; those of a job's end come as arguments."""
    written = set(re.findall(r"redis\.p?call\((?:is_scored and )?'(\w+)'", script.text.decode()))
    if script is settle_script.SETTLE:
        written |= {"HDEL", "LREM", "ZREM", *(command[0] for command in (RETRY, *BACK, *RESULT))}
    return written


CASES = [(name, command) for name, (script, _, _) in SCENARIOS.items() for command in sorted(commands_of(script))]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One whose users these tests change."""
    with RedisServer() as server:
        yield server


@pytest.mark.parametrize(("name", "command"), CASES)
def test_a_job_stands_in_one_place_where_its_user_loses_a_right(server: RedisServer, name: str, command: str) -> None:
    """Whether the script goes through without it, or refuses."""
    script, place, act = SCENARIOS[name]
    admin = server.client()
    asks = (settle_script.SETTLE, promote.PROMOTE, job_sets.RESCHEDULE)
    if script in asks and admin.info("server")["redis_version"].startswith("6."):
        pytest.skip("a script can ask what its user may do since Redis 7.0")
    admin.flushall()
    place(admin)
    rules = f"reset on >secret ~* &* +@all -{command.lower()}"
    admin.execute_command("ACL", "SETUSER", "worker", *rules.split())  # type: ignore[no-untyped-call]
    pool = Pool(RedisSettings(server.url.replace("redis://", "redis://worker:secret@")))
    link = pool.new_link()
    refusal = None
    try:
        # Whoever was refused tries once more, as a worker does.
        for _ in range(2):
            try:
                act(pool, link)
                break
            except RedisReplyError as error:
                refusal = error
    finally:
        link.close()
        pool.close()

    assert places(admin) == 1, f"after {refusal}: {admin.keys()}"
    admin.close()


def places(client: redis.Redis) -> int:
    """In how many the job stands."""
    found = 0
    for key in client.scan_iter():
        read: dict[Any, Callable[[bytes], Iterable[Any]]] = {
            b"list": lambda key: client.lrange(key, 0, -1),
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"hash": client.hvals,
        }
        members = read.get(client.type(key), lambda _: [])(key)  # type: ignore[no-untyped-call]
        found += sum(JOB in member for member in members)
    return found
