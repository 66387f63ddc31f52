"""Jobs of ordinary length are taken one by one: by plain moves into an inbox, and by no script."""

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, combinations

import pytest
import redis

from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.fetch.idle_workers import IdleWorkers
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.engine.ownership.recovery import Recovery
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from tests.engine.fetch.in_flight_jobs import digest, push
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually

# A job without an id is taken by a script, as its bytes cannot name it.
A, B = '{"jid":"a"}', '{"jid":"b"}'

MakeFetcher = Callable[..., ReliableFetcher]


@pytest.fixture
def make_fetcher(pool: Pool) -> Iterator[MakeFetcher]:
    """A fetcher of the given queues, whose owner is entered."""
    made: list[ReliableFetcher] = []

    def make(weights: dict[str, int] | None = None, name: str = "me:1:abc") -> ReliableFetcher:
        weights = weights or {"default": 0}
        ownership = Ownership(name, list(weights), 30)
        capsule = CapsuleConfig(queues=tuple(QueueConfig(queue, weight) for queue, weight in weights.items()))
        fetcher = ReliableFetcher(capsule, Config(), pool, ownership, report=lambda error, context: None)
        made.append(fetcher)
        # The first fetch enters the owner.
        refill(fetcher, 1)
        return fetcher

    yield make
    for fetcher in made:
        fetcher.close()


def refill(fetcher: ReliableFetcher, count: int) -> list[UnitOfWork]:
    """What a fetch for so many idle processors brings."""
    with fetcher._buffer.fetching:
        fetcher._buffer.refill(count)
    units = list(fetcher._buffer.jobs)
    fetcher._buffer.jobs.clear()
    return units


def calls_of(client: redis.Redis) -> Counter[str]:
    """How often each command was called since the statistics were reset."""
    stats = client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): told["calls"] for name, told in stats.items()})


def test_a_job_takes_no_script(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """It is moved, stands in the inbox while it runs, and is acknowledged along with the next move."""
    fetcher = make_fetcher()
    push(redis_client, A, B)
    redis_client.config_resetstat()

    [first] = refill(fetcher, 1)
    assert jobs_in_flight(redis_client) == [A.encode()]
    fetcher.acknowledge(first, 0.004)
    [second] = refill(fetcher, 1)

    assert (first.raw, second.raw) == (A.encode(), B.encode())
    assert jobs_in_flight(redis_client) == [B.encode()]
    calls = calls_of(redis_client)
    assert (calls["evalsha"], calls["lmove"], calls["lrem"]) == (0, 2, 1)


def test_a_pause_is_heeded_at_once(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """What a move has brought all the same goes back to the front of its queue."""
    fetcher = make_fetcher()
    push(redis_client, "a", "b", "c")
    refill(fetcher, 1)
    redis_client.sadd("paused", "default")

    assert refill(fetcher, 1) == []
    assert redis_client.rpop("queue:default", 2) == [b"b", b"c"]
    assert jobs_in_flight(redis_client) == [b"a"]


@pytest.mark.parametrize("obstacle", ["a pause", "a foreign key"])
def test_a_queue_that_stays_shut_is_looked_at_twice_a_second(
    make_fetcher: MakeFetcher, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    """That may take days. A fetch every 50 ms cost Redis 200 commands a second for each process."""
    fetcher = make_fetcher({"shut": 0, "default": 0})
    if obstacle == "a pause":
        redis_client.sadd("paused", "shut")
    else:
        redis_client.set("queue:shut", "a string")
    for _ in range(2):
        # The first one takes jobs singly, and only sees that something is paused.
        refill(fetcher, 1)
    pauses: list[float | None] = []
    collect = fetcher._waiters.collect

    def collect_and_note(wake_fd: int | None, seconds: float | None) -> tuple[list[UnitOfWork], bool]:
        pauses.append(seconds)
        return collect(wake_fd, seconds)

    monkeypatch.setattr(fetcher._waiters, "collect", collect_and_note)
    taken: list[UnitOfWork | None] = []
    thread = threading.Thread(target=lambda: taken.append(fetcher.take()))
    thread.start()
    eventually(lambda: len(pauses) >= 3)
    redis_client.delete("paused", "queue:shut")
    redis_client.lpush("queue:shut", A)
    thread.join(10)

    assert set(pauses[:3]) == {0.5}
    assert [unit.queue for unit in taken if unit is not None] == ["shut"]


def test_a_suspect_is_marked_as_started(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """Only a marked one collects deaths: it must not slip through by a plain move."""
    fetcher = make_fetcher()
    push(redis_client, "deadly")
    redis_client.hset(keys.SUSPECTS, digest(b"deadly"), "0:1.000")

    [unit] = refill(fetcher, 1)

    assert unit.is_marked
    assert redis_client.hkeys(keys.in_flight(fetcher._ownership.current.name)) == [unit.field]


def test_of_several_suspects_one_comes(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """With others marked beside it, those that had not even started would bear a death for it."""
    fetcher = make_fetcher()
    push(redis_client, "a", "b", "c")
    redis_client.hset(keys.SUSPECTS, mapping={digest(raw): "0:1.000" for raw in (b"a", b"b", b"c")})

    units = refill(fetcher, 3)

    assert [(unit.raw, unit.is_marked) for unit in units] == [(b"a", True)]
    assert redis_client.rpop("queue:default", 3) == [b"b", b"c"]


def test_a_suspect_that_killed_a_process_comes_after_another_has_ended(
    make_fetcher: MakeFetcher, redis_client: redis.Redis
) -> None:
    """If the process dies while both run, nobody could tell which of them did it."""
    fetcher = make_fetcher()
    push(redis_client, "a", "b")
    redis_client.hset(keys.SUSPECTS, mapping={digest(raw): "1:1.000" for raw in (b"a", b"b")})

    def several_refills() -> list[UnitOfWork]:
        # The first ones put suspects behind other jobs.
        return [unit for _ in range(5) for unit in refill(fetcher, 3)]

    [first] = several_refills()
    fetcher.acknowledge(first, 0.004)
    [second] = several_refills()

    assert (first.is_marked, second.is_marked, {first.raw, second.raw}) == (True, True, {b"a", b"b"})


def test_a_process_that_was_shut_out_takes_nothing(
    make_fetcher: MakeFetcher, redis_client: redis.Redis, link: Link
) -> None:
    """Its lease is gone: what the move has brought goes back, and the next fetch finds out why."""
    fetcher = make_fetcher()
    in_flight.fence(link, fetcher._ownership.current.name, certain=True, now=1.0)
    before = fetcher._ownership.current
    push(redis_client, "a")

    assert refill(fetcher, 1) == []
    assert redis_client.lrange("queue:default", 0, -1) == [b"a"]
    refill(fetcher, 1)
    assert fetcher._ownership.current is not before


@pytest.mark.parametrize("wants_notices", [True, False])
def test_a_look_finds_each_key_that_is_rarely_there(link: Link, redis_client: redis.Redis, wants_notices: bool) -> None:
    """Alone or together with others, and whether the lease is there or not."""
    plan = in_flight.TakePlan("me", ["default"], wants_notices=wants_notices)
    rare = [keys.PAUSED, keys.SUSPECTS, keys.REVOKED]
    awaited = {keys.PAUSED, keys.SUSPECTS, *([keys.REVOKED] if wants_notices else [])}
    for present in chain.from_iterable(combinations([*rare, keys.lease("me")], count) for count in range(5)):
        redis_client.delete(*rare, keys.lease("me"))
        for key in present:
            redis_client.set(key, "")

        is_plain = keys.lease("me") in present and awaited.isdisjoint(present)
        assert plan.is_plain(link.batch(plan.look)) == is_plain, present


def test_a_process_that_slept_moves_nothing_before_it_has_asked(
    make_fetcher: MakeFetcher, redis_client: redis.Redis
) -> None:
    """It may have been struck off meanwhile, and nobody would look into its inbox after its death."""
    fetcher = make_fetcher()
    asleep = fetcher._ownership.current
    redis_client.delete(keys.OWNERS, keys.lease(asleep.name))
    asleep.confirmed_at = -math.inf
    push(redis_client, A)
    redis_client.config_resetstat()

    refill(fetcher, 1)

    assert calls_of(redis_client)["lmove"] == 0
    assert fetcher._ownership.current is not asleep


def test_an_idle_process_that_slept_asks_before_it_waits_again(
    make_fetcher: MakeFetcher, redis_client: redis.Redis
) -> None:
    """Its last move has ended without a job; no job is needed to find out."""
    fetcher = make_fetcher()
    asleep = fetcher._ownership.current
    idle = threading.Thread(target=fetcher.take, daemon=True)
    idle.start()
    eventually(lambda: fetcher._waiters.any_open)
    redis_client.delete(keys.OWNERS, keys.lease(asleep.name))
    asleep.confirmed_at = -math.inf

    eventually(lambda: fetcher._ownership.current is not asleep)

    fetcher.quiet()
    idle.join()


def test_nobody_reads_what_a_leader_is_still_opening(
    make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told to stop in the midst of it, it gets its replies, and ends at once."""
    fetcher = make_fetcher()
    is_opening, may_go_on = threading.Event(), threading.Event()
    connect = Link.connect

    def slowly(link: Link) -> None:
        if threading.current_thread() is idle and fetcher._waiters.any_open:
            is_opening.set()
            may_go_on.wait(10)
        connect(link)

    monkeypatch.setattr(Link, "connect", slowly)
    idle = threading.Thread(target=fetcher.take, daemon=True)
    idle.start()
    assert is_opening.wait(10)
    stopping = threading.Thread(target=fetcher.quiet, daemon=True)
    stopping.start()
    eventually(lambda: fetcher._leader.is_quiet)

    assert not fetcher._leader.has_untended_moves

    may_go_on.set()
    stopping.join()
    idle.join()
    assert fetcher._leader.has_untended_moves


class FetchesMeanwhile(IdleWorkers):
    """The leader has left with a job and woken another one, and before that one looks, more jobs are fetched beside."""

    def __init__(self, fetcher: ReliableFetcher) -> None:
        super().__init__()
        self._fetcher = fetcher
        self._fetches = 1

    def wake(self, count: int) -> int:
        """As it is; then fetch."""
        woken = super().wake(count)
        if self._fetcher._buffer.jobs and self._fetches:
            self._fetches -= 1
            with self._fetcher._buffer.fetching:
                self._fetcher._buffer.refill(2)
        return woken


def test_an_idle_processor_leads_though_the_one_that_was_woken_for_that_found_a_job(
    make_fetcher: MakeFetcher, redis_client: redis.Redis
) -> None:
    """Otherwise nobody would lead until a job has ended, and jobs would wait beside idle processors."""
    fetcher = make_fetcher()
    fetcher._leader._change = FetchesMeanwhile(fetcher)
    taken: list[bytes] = []

    def take() -> None:
        unit = fetcher.take()
        if unit is not None:
            taken.append(unit.raw)

    processors = [threading.Thread(target=take, daemon=True) for _ in range(3)]
    for processor in processors:
        processor.start()
    eventually(lambda: fetcher._leader.idle == 3 and fetcher._waiters.any_open)

    # One is for the leader, one is fetched beside.
    push(redis_client, A, B)
    eventually(lambda: len(taken) == 2)
    push(redis_client, '{"jid":"c"}')

    eventually(lambda: len(taken) == 3)
    for processor in processors:
        processor.join(5)
    assert sorted(taken) == [A.encode(), B.encode(), b'{"jid":"c"}']


def test_several_queues_are_asked_in_one_step(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """Strictly in order where there are no weights."""
    fetcher = make_fetcher({"high": 0, "low": 0})
    push(redis_client, B, "l2", queue="low")
    push(redis_client, A, queue="high")
    redis_client.config_resetstat()

    units = refill(fetcher, 2)

    assert [(unit.queue, unit.raw) for unit in units] == [("high", A.encode()), ("low", B.encode())]
    calls = calls_of(redis_client)
    assert calls["evalsha"] + calls["eval"] <= 2


def test_a_queue_that_had_a_job_is_asked_by_a_plain_move(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """The script asks the others only where it has none any more."""
    fetcher = make_fetcher({"high": 0, "low": 0})
    push(redis_client, *[f'{{"jid":"h{number}"}}' for number in range(4)], queue="high")
    push(redis_client, A, queue="low")
    refill(fetcher, 1)
    redis_client.config_resetstat()

    units = refill(fetcher, 1) + refill(fetcher, 2)
    calls = calls_of(redis_client)
    [last] = refill(fetcher, 1)

    assert [unit.raw for unit in units] == [b'{"jid":"h1"}', b'{"jid":"h2"}', b'{"jid":"h3"}']
    assert (calls["lmove"], calls["evalsha"]) == (3, 0)
    assert (last.queue, last.raw) == ("low", A.encode())
    push(redis_client, B, queue="high")
    assert [unit.raw for unit in refill(fetcher, 1)] == [B.encode()]


def test_long_jobs_come_as_many_as_a_batch_may_hold(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """A move asks for no size: eight jobs of 50 MB would come in one reply."""
    fetcher = make_fetcher()
    long = "x" * (Config().buffer_bytes // 3)
    push(redis_client, *[f'{{"jid":"{number}","args":["{long}"]}}' for number in range(9)])
    refill(fetcher, 1)

    assert len(refill(fetcher, 8)) == 2
    assert len(refill(fetcher, 8)) == 2


def test_weights_hold(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """Of three weights to one, three jobs in four; drawn anew for each job."""
    fetcher = make_fetcher({"often": 3, "rarely": 1})
    push(redis_client, *map(str, range(2000)), queue="often")
    push(redis_client, *map(str, range(2000)), queue="rarely")
    drawn: Counter[str] = Counter()
    fetcher._buffer.size.ran(0.050)

    # Counted in jobs: where a round trip takes long, each fetches more of them, and the queues would be empty.
    while drawn.total() < 1000:
        for unit in refill(fetcher, 4):
            drawn[unit.queue] += 1
            fetcher.acknowledge(unit, 0.050)

    assert 0.70 < drawn["often"] / drawn.total() < 0.80


def test_a_queue_of_a_foreign_type_holds_up_no_other(make_fetcher: MakeFetcher, redis_client: redis.Redis) -> None:
    """A move from there is an error: then it is the script that fetches, which leaves that queue alone."""
    fetcher = make_fetcher({"broken": 0, "fine": 0})
    redis_client.set("queue:broken", "no list")
    push(redis_client, "a", queue="fine")

    units = refill(fetcher, 1) or refill(fetcher, 1)

    assert [unit.raw for unit in units] == [b"a"]
    assert fetcher._exchange.paused == ["broken"]


@pytest.fixture
def without(redis_client: redis.Redis) -> Iterator[Callable[..., object]]:
    """Takes these rights away from the user until the test ends."""
    yield lambda *rights: redis_client.execute_command("ACL", "SETUSER", "default", *[f"-{right}" for right in rights])
    redis_client.execute_command("ACL", "SETUSER", "default", "+@all")


def test_what_may_not_be_moved_is_fetched_at_once(
    make_fetcher: MakeFetcher, redis_client: redis.Redis, without: Callable[..., object]
) -> None:
    """A full Redis refuses the moves, too, and not the script."""
    fetcher = make_fetcher()
    push(redis_client, A)
    without("lmove")

    [unit] = refill(fetcher, 1)

    assert unit.raw == A.encode()


@pytest.mark.parametrize("queues", [("default",), ("default", "other")])
def test_a_fetch_that_redis_refuses_is_an_error_by_plain_moves_too(
    make_fetcher: MakeFetcher, without: Callable[..., object], queues: tuple[str, ...]
) -> None:
    """Otherwise the log would say that Redis is online, and then say nothing, while the worker gets no jobs."""
    fetcher = make_fetcher(dict.fromkeys(queues, 0))
    without("lmove", "evalsha", "eval")

    with pytest.raises(RedisReplyError, match="NOPERM"):
        refill(fetcher, 1)


def test_what_a_lost_reply_has_left_in_an_inbox_goes_back(
    make_fetcher: MakeFetcher, redis_client: redis.Redis, link: Link
) -> None:
    """At once where no move is under way, else when all have ended that were; what runs here stays."""
    fetcher = make_fetcher()
    ownership = fetcher._ownership
    owner = ownership.current
    push(redis_client, "runs")
    refill(fetcher, 1)
    redis_client.lpush(keys.inbox(owner.name, "default"), "lost")
    batch = owner.open_batch()

    assert ownership.give_back_orphans(link) == 0
    later = owner.open_batch()
    owner.close_batch(batch)
    assert ownership.give_back_orphans(link) == 1

    assert redis_client.lrange("queue:default", 0, -1) == [b"lost"]
    assert jobs_in_flight(redis_client) == [b"runs"]
    owner.close_batch(later)


def test_of_two_equal_jobs_only_the_unknown_one_goes_back(
    make_fetcher: MakeFetcher, redis_client: redis.Redis, link: Link
) -> None:
    """Their bytes are all that tells jobs in an inbox apart."""
    fetcher = make_fetcher()
    push(redis_client, "same")
    refill(fetcher, 1)
    redis_client.lpush(keys.inbox(fetcher._ownership.current.name, "default"), "same")

    assert fetcher._ownership.give_back_orphans(link) == 1
    assert (redis_client.llen("queue:default"), jobs_in_flight(redis_client)) == (1, [b"same"])


def test_what_a_dead_process_had_in_its_inbox_comes_back_as_a_suspect(
    make_fetcher: MakeFetcher, redis_client: redis.Redis, pool: Pool
) -> None:
    """It may have been what killed it; the oldest is the next to run."""
    dead = make_fetcher(name="dead:1:abc")
    push(redis_client, "a", "b")
    refill(dead, 2)
    recovery = Recovery(Config(), pool.new_link(), Ownership("me:2:abc", ["default"], 30), dialect=Dialect.unknown)

    assert recovery.declare_dead(dead._ownership.current.name) == 2

    assert redis_client.rpop("queue:default", 2) == [b"a", b"b"]
    assert {key.decode() for key in redis_client.hkeys(keys.SUSPECTS)} == {digest(b"a"), digest(b"b")}
    assert jobs_in_flight(redis_client) == []
    recovery.close()


def test_a_job_that_seeds_the_random_numbers_does_not_choose_the_next_queue(
    make_fetcher: MakeFetcher, redis_client: redis.Redis
) -> None:
    """As machine learning does at the start of each job: the same queue would be asked first as long as it has jobs."""
    fetcher = make_fetcher({"a": 1, "b": 1})
    for name in ("a", "b"):
        for number in range(40):
            redis_client.lpush(f"queue:{name}", f'{{"jid":"{name}{number}"}}')

    queues = set()
    for _ in range(40):
        random.seed(42)
        [unit] = refill(fetcher, 1)
        queues.add(unit.queue)
        fetcher.acknowledge(unit, 1.0)

    assert queues == {"a", "b"}
