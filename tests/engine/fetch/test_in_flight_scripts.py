"""The scripts that take jobs from queues and end them: each moves a job in one step, or leaves it where it was."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile

import pytest
import redis

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import in_flight, recover
from sidekiq_py.redis_access.job_path.in_flight import FetchPlan
from tests.engine.fetch.in_flight_jobs import ABOUT, OWNER, acknowledge, claim, digest, fetch, held, jobs_of, push
from tests.support.redis_server import RedisServer


@pytest.fixture
def full_server(new_redis_server: Callable[..., RedisServer]) -> Iterator[tuple[redis.Redis, Link]]:
    """A server of its own, to be filled up by `config_set("maxmemory", 1)`."""
    server = new_redis_server()
    client = server.client()
    pool = Pool(RedisSettings(server.url))
    link = pool.new_link()
    yield client, link
    link.close()
    client.close()


# ---- fetch


def test_a_fetch_moves_the_oldest_jobs_into_the_owners_hash(link: Link, redis_client: redis.Redis) -> None:
    """The reply names them in the order in which they are to run; the rest stays queued."""
    push(redis_client, "a", "b", "c")

    taken = fetch(link, batch=4, max_jobs=2)

    assert taken == [(b"4.0:default", b"a"), (b"4.1:default", b"b")]
    assert held(redis_client) == dict(taken)
    assert redis_client.lrange("queue:default", 0, -1) == [b"c"]


def test_the_first_fetch_enters_the_owner_and_its_lease(link: Link, redis_client: redis.Redis) -> None:
    """From the first job on others can find what this process holds."""
    fetch(link, lease_ms=5000)

    assert redis_client.hgetall("sidekiq_py:owners") == {OWNER.encode(): ABOUT.encode()}
    assert 0 < redis_client.pttl(f"sidekiq_py:lease:{OWNER}") <= 5000


def test_an_owner_that_is_not_entered_fetches_nothing(link: Link, redis_client: redis.Redis) -> None:
    """It was recovered: what it takes now nobody would look for."""
    push(redis_client, "a")

    with pytest.raises(RedisReplyError) as caught:
        fetch(link, registration="")

    assert caught.value.code == in_flight.FENCED
    assert redis_client.lrange("queue:default", 0, -1) == [b"a"]


def test_an_owner_that_departed_cannot_enter_again(link: Link, redis_client: redis.Redis) -> None:
    """Its first fetch lost the reply, then it was recovered: those who still look after it would take its new jobs."""
    push(redis_client, "a")
    redis_client.hset("sidekiq_py:departed", OWNER, "1 {}")

    with pytest.raises(RedisReplyError, match="FENCED"):
        fetch(link)

    assert redis_client.llen("queue:default") == 1


def test_an_owner_may_enter_twice_after_a_lost_reply(link: Link, redis_client: redis.Redis) -> None:
    """It cannot know that its first fetch went through."""
    push(redis_client, "a", "b")
    fetch(link, max_jobs=1, batch=1)

    assert jobs_of(fetch(link, max_jobs=1, batch=2)) == [b"b"]


def test_strict_order_empties_the_first_queue_first(link: Link, redis_client: redis.Redis) -> None:
    """However many there are."""
    push(redis_client, "low1", "low2", queue="low")
    push(redis_client, "high1", "high2", queue="high")

    taken = fetch(link, ("high", 0), ("low", 0))

    assert jobs_of(taken) == [b"high1", b"high2", b"low1", b"low2"]


def test_weights_are_drawn_for_each_job(link: Link, redis_client: redis.Redis) -> None:
    """In a batch of thousands the shares are as the weights say."""
    for queue in ("often", "seldom"):
        push(redis_client, *[queue] * 8000, queue=queue)

    taken = fetch(link, ("often", 3), ("seldom", 1), max_jobs=8000, seed=42)

    counts = Counter(jobs_of(taken))
    assert counts[b"often"] == pytest.approx(6000, abs=150)
    assert len(taken) == len(held(redis_client)) == 8000


def test_the_seed_of_a_fetch_decides_from_which_queues_it_draws(link: Link, redis_client: redis.Redis) -> None:
    """Redis 6.2 starts each script with the same random numbers: without seeds, single jobs all come from one queue."""
    for queue in ("often", "seldom"):
        push(redis_client, *[queue] * 400, queue=queue)

    first, again, other = (
        jobs_of(fetch(link, ("often", 3), ("seldom", 1), max_jobs=100, batch=batch, seed=seed))
        for batch, seed in enumerate((1, 1, 2))
    )

    assert first == again
    assert first != other


def test_an_empty_queue_gives_its_share_to_the_others(link: Link, redis_client: redis.Redis) -> None:
    """A weight is no reservation."""
    push(redis_client, *"abc", queue="seldom")

    assert jobs_of(fetch(link, ("often", 5), ("seldom", 1))) == [b"a", b"b", b"c"]


def test_a_queue_without_a_weight_beside_others_counts_as_one(link: Link, redis_client: redis.Redis) -> None:
    """As in `-q default -q critical,3`; only where no queue has a weight the order is strict."""
    push(redis_client, *["often"] * 400, queue="often")
    push(redis_client, *["plain"] * 400, queue="plain")

    counts = Counter(jobs_of(fetch(link, ("plain", 0), ("often", 3), max_jobs=400)))

    assert counts[b"plain"] == pytest.approx(100, abs=40)
    assert jobs_of(fetch(link, ("empty", 3), ("plain", 0), max_jobs=1, batch=2)) == [b"plain"]


def test_a_paused_queue_is_left_alone_and_named(link: Link, redis_client: redis.Redis) -> None:
    """Its jobs stay, the others come."""
    push(redis_client, "a", queue="low")
    push(redis_client, "b")
    redis_client.sadd("paused", "low", "unheard-of")
    plan = in_flight.FetchPlan(OWNER, ABOUT, 1000, 1, [("low", 0), ("default", 0)], 9, 999, 1, False)

    reply = in_flight.FETCH.run(link, *plan.command_parts())

    assert reply == [[0], [b""], b"1.0:default", b"b"]
    assert redis_client.llen("queue:low") == 1


def test_a_batch_ends_where_the_bytes_do(link: Link, redis_client: redis.Redis) -> None:
    """But one job comes, however large."""
    push(redis_client, "x" * 900, "y" * 200, "z" * 200)

    assert [len(job) for job in jobs_of(fetch(link, max_bytes=1000))] == [900]
    assert [len(job) for job in jobs_of(fetch(link, max_bytes=100, batch=2))] == [200]


def test_large_jobs_are_not_read_by_the_dozen_for_the_one_that_fits(link: Link, redis_client: redis.Redis) -> None:
    """Redis does nothing else while it copies them: with twenty of 50 MB that took seconds a fetch."""
    push(redis_client, *("x" * 1000 for _ in range(20)))

    with redis_client.monitor() as monitor:
        taken = fetch(link, max_bytes=500)
        redis_client.ping()
        commands = [one["command"] for one in takewhile(lambda one: one["command"] != "PING", monitor.listen())]

    assert len(taken) == 1
    assert [command for command in commands if command.startswith("LRANGE")] == ["LRANGE queue:default -1 -1"]


def test_of_hundreds_of_queues_hardly_more_jobs_are_read_than_come(link: Link, redis_client: redis.Redis) -> None:
    """A hundred jobs were read of each of 500 queues, to take two of each: Redis did nothing else for 30 ms."""
    names = [f"customer-{number}" for number in range(100)]
    for name in names:
        push(redis_client, *[name] * 100, queue=name)

    with redis_client.monitor() as monitor:
        taken = fetch(link, *[(name, 1) for name in names], max_jobs=200)
        redis_client.ping()
        commands = [one["command"] for one in takewhile(lambda one: one["command"] != "PING", monitor.listen())]

    windows = [command.split()[2:] for command in commands if command.startswith("LRANGE")]
    assert len(taken) == 200
    assert sum(int(last) - int(first) + 1 for first, last in windows) < 4 * len(taken)


def test_weighted_queues_that_run_empty_during_a_fetch_leave_the_rest_to_the_others(
    link: Link, redis_client: redis.Redis
) -> None:
    """However few jobs each has: all come, each once, and in the order of its queue."""
    sizes = {f"customer-{number}": number % 4 for number in range(200)}
    for name, size in sizes.items():
        if size:
            push(redis_client, *(f"{name} {place}" for place in range(size)), queue=name)

    taken = jobs_of(fetch(link, *[(name, 1 + size) for name, size in sizes.items()], max_jobs=1000))

    by_queue = {name: [job for job in taken if job.startswith(f"{name} ".encode())] for name in sizes}
    assert len(taken) == sum(sizes.values())
    assert by_queue == {name: [f"{name} {place}".encode() for place in range(size)] for name, size in sizes.items()}


def test_a_queue_that_runs_empty_during_a_fetch_leaves_the_others_their_weights(
    link: Link, redis_client: redis.Redis
) -> None:
    """Its share is not the last queue's."""
    push(redis_client, *["short"] * 3, queue="short")
    for queue in ("often", "seldom"):
        push(redis_client, *[queue] * 2000, queue=queue)

    taken = jobs_of(fetch(link, ("short", 1000), ("often", 3), ("seldom", 1), max_jobs=2003, seed=42))

    assert Counter(taken)[b"short"] == 3
    assert Counter(taken)[b"often"] == pytest.approx(1500, abs=80)


def test_jobs_of_many_sizes_come_in_order_and_once(link: Link, redis_client: redis.Redis) -> None:
    """However the queue is read inside."""
    jobs = [f"{number}" + "x" * (number % 7 * 300) for number in range(700)]
    push(redis_client, *jobs)

    taken = [job for batch in range(9) for job in jobs_of(fetch(link, batch=batch, max_jobs=200, max_bytes=200_000))]

    assert taken == [job.encode() for job in jobs]
    assert redis_client.llen("queue:default") == 0


def test_equal_payloads_stay_two_jobs(link: Link, redis_client: redis.Redis) -> None:
    """Each has a field of its own."""
    push(redis_client, "same", "same")

    assert len(dict(fetch(link))) == len(held(redis_client)) == 2


def test_a_queue_of_a_foreign_type_is_named_and_keeps_no_other_from_being_served(
    link: Link, redis_client: redis.Redis
) -> None:
    """Its number comes as -1 minus it, so that it can be told from one that is paused."""
    push(redis_client, "a")
    redis_client.set("queue:odd", "a string")
    redis_client.sadd("paused", "low")

    plan = FetchPlan(
        OWNER, ABOUT, 30_000, 1, (("low", 0), ("odd", 0), ("default", 0)), 10, 1_000_000, 1, may_take_marked=True
    )
    assert in_flight.FETCH.run(link, *plan.command_parts()) == [[0, -2], [b""], b"1.0:default", b"a"]


def test_a_user_who_may_not_take_jobs_off_a_queue_gets_none(link: Link, redis_client: redis.Redis) -> None:
    """Otherwise they would be in flight and in their queue, and run twice."""
    push(redis_client, "a")
    redis_client.execute_command("ACL", "SETUSER", "default", "-ltrim")

    try:
        with pytest.raises(RedisReplyError):
            fetch(link)
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+ltrim")

    assert held(redis_client) == {}


# ---- suspects


def test_a_suspect_is_fetched_alone_and_marked(link: Link, redis_client: redis.Redis) -> None:
    """So that its mark says: it had started."""
    push(redis_client, "a", "suspect", "b")
    redis_client.hset("sidekiq_py:suspects", digest(b"suspect"), "0:1.000")

    assert fetch(link, batch=1) == [(b"1.0:default", b"a")]
    assert fetch(link, batch=2) == [(b"2.0!default", b"suspect")]
    assert fetch(link, batch=3) == [(b"3.0:default", b"b")]


def test_a_suspect_with_a_death_waits_behind_the_others(link: Link, redis_client: redis.Redis) -> None:
    """While this process holds another one: that one may be the culprit."""
    push(redis_client, "suspect", "a")
    redis_client.hset("sidekiq_py:suspects", digest(b"suspect"), "1:1.000")

    assert jobs_of(fetch(link, may_take_marked=False)) == [b"a"]
    assert redis_client.lrange("queue:default", 0, -1) == [b"suspect"]
    assert fetch(link, batch=2) == [(b"2.0!default", b"suspect")]


def test_a_suspect_that_has_to_wait_holds_up_no_queue_behind_its_own(link: Link, redis_client: redis.Redis) -> None:
    """Though its queue comes first and has no other job."""
    push(redis_client, "suspect")
    push(redis_client, "a", queue="low")
    redis_client.hset("sidekiq_py:suspects", digest(b"suspect"), "1:1.000")

    assert jobs_of(fetch(link, ("default", 0), ("low", 0), may_take_marked=False)) == [b"a"]
    assert redis_client.lrange("queue:default", 0, -1) == [b"suspect"]


def test_a_queue_of_suspects_is_not_turned_round_for_ever(link: Link, redis_client: redis.Redis) -> None:
    """A fetch that finds no other job ends, and none is lost on the way."""
    jobs = [f"suspect {number}" for number in range(30)]
    push(redis_client, *jobs)
    redis_client.hset("sidekiq_py:suspects", mapping={digest(job.encode()): "2:1.000" for job in jobs})

    assert fetch(link, may_take_marked=False) == []
    assert sorted(redis_client.lrange("queue:default", 0, -1)) == sorted(job.encode() for job in jobs)


# ---- claim


def test_a_claim_takes_the_job_it_names(link: Link, redis_client: redis.Redis) -> None:
    """From the inbox into the hash; others in the inbox run already."""
    fetch(link)
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", "runs", "arrived")

    assert claim(link, b"arrived") == b"7.0:default"
    assert held(redis_client) == {b"7.0:default": b"arrived"}
    assert redis_client.lrange(f"sidekiq_py:inbox:{OWNER}:default", 0, -1) == [b"runs"]


def test_a_claim_of_what_is_gone_is_none(link: Link, redis_client: redis.Redis) -> None:
    """It went back as an orphan meanwhile, and may be running: it must not come into being once more."""
    fetch(link)

    assert claim(link, b"gone") is None
    assert held(redis_client) == {}
    assert redis_client.exists("queue:default") == 0


def test_a_claim_by_one_who_was_shut_out_puts_the_job_back_in_front(link: Link, redis_client: redis.Redis) -> None:
    """It is the next to run, for somebody else."""
    fetch(link)
    push(redis_client, "next")
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", "arrived")
    redis_client.hdel("sidekiq_py:owners", OWNER)

    assert claim(link, b"arrived") is None
    assert redis_client.rpop("queue:default", 2) == [b"arrived", b"next"]
    assert held(redis_client) == {}


def test_jobs_of_a_paused_queue_go_back_together_in_the_order_in_which_they_came(
    link: Link, redis_client: redis.Redis
) -> None:
    """A claim leaves each of them where it is; what was moved first is the next to run."""
    fetch(link)
    push(redis_client, "next")
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", "runs", "first", "second")
    redis_client.sadd("paused", "default")

    replies = [in_flight.claim(link, OWNER, "7.0", "default", raw) for raw in (b"second", b"first")]
    moved = in_flight.put_back(link, OWNER, "default", [b"second", b"first"])

    assert (replies, moved) == ([in_flight.PAUSED] * 2, 2)
    assert redis_client.rpop("queue:default", 3) == [b"first", b"second", b"next"]
    assert redis_client.lrange(f"sidekiq_py:inbox:{OWNER}:default", 0, -1) == [b"runs"]


def test_a_waiter_leaves_a_suspect_with_a_death_to_a_fetch(link: Link, redis_client: redis.Redis) -> None:
    """One without a death it takes, marked."""
    fetch(link)
    inbox = f"sidekiq_py:inbox:{OWNER}:default"
    redis_client.hset("sidekiq_py:suspects", mapping={digest(b"one"): "0:1.000", digest(b"two"): "1:1.000"})

    redis_client.lpush(inbox, "one")
    assert claim(link, b"one") == b"7.0!default"
    redis_client.lpush(inbox, "two")
    assert claim(link, b"two", number="8.0") is None
    assert redis_client.lrange("queue:default", 0, -1) == [b"two"]


@pytest.mark.parametrize("key", ["paused", "sidekiq_py:suspects"])
def test_a_foreign_key_in_place_of_the_paused_or_the_suspects_holds_up_no_job(
    link: Link, redis_client: redis.Redis, key: str
) -> None:
    """`paused` has no prefix: any program on the same Redis may have a key of that name."""
    redis_client.set(key, "no")
    push(redis_client, "fetched")
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", "arrived")

    assert jobs_of(fetch(link)) == [b"fetched"]
    assert claim(link, b"arrived") == b"7.0:default"


# ---- acknowledge and settle


def test_acknowledging_counts_only_what_was_still_in_flight(link: Link, redis_client: redis.Redis) -> None:
    """A job that somebody else has recovered is his to count."""
    push(redis_client, "a", "b")
    fields = [field for field, _ in fetch(link)]
    redis_client.hdel(f"sidekiq_py:inflight:{OWNER}", fields[0])

    assert acknowledge(link, *fields) == 1
    assert acknowledge(link, *fields) == 0
    assert held(redis_client) == {}


def test_of_two_equal_jobs_in_an_inbox_each_is_acknowledged_by_itself(link: Link, redis_client: redis.Redis) -> None:
    """Two jobs with the same bytes stay two jobs."""
    inbox = f"sidekiq_py:inbox:{OWNER}:default"
    redis_client.lpush(inbox, "same", "same")

    assert acknowledge(link, listed=[("default", b"same")]) == 1
    assert redis_client.lrange(inbox, 0, -1) == [b"same"]
    assert acknowledge(link, listed=[("default", b"same"), ("default", b"same")]) == 1


def test_a_job_in_an_inbox_is_settled_once(link: Link, redis_client: redis.Redis) -> None:
    """Its bytes name it there; sent again after a lost reply the end finds it gone and writes nothing."""
    inbox = f"sidekiq_py:inbox:{OWNER}:default"
    redis_client.lpush(inbox, "a", "other")

    def settle() -> bool:
        return in_flight.settle(link, OWNER, b"3.0@default", vital=[("ZADD", "retry", 5, "b")], listed=b"a")

    assert (settle(), settle()) == (True, False)
    assert redis_client.zrange("retry", 0, -1) == [b"b"]
    assert redis_client.lrange(inbox, 0, -1) == [b"other"]


def test_of_two_equal_jobs_in_an_inbox_each_is_settled_by_itself(link: Link, redis_client: redis.Redis) -> None:
    """The other one still runs here, or waits in the buffer; if this process dies, it must be found."""
    inbox = f"sidekiq_py:inbox:{OWNER}:default"
    redis_client.lpush(inbox, "same", "same")

    assert in_flight.settle(link, OWNER, b"3.0@default", vital=[("INCR", "ended")], listed=b"same")

    assert redis_client.lrange(inbox, 0, -1) == [b"same"]


def test_a_job_in_an_inbox_stays_there_if_its_end_is_refused(link: Link, redis_client: redis.Redis) -> None:
    """Nothing is written then, as for one in the hash."""
    inbox = f"sidekiq_py:inbox:{OWNER}:default"
    redis_client.lpush(inbox, "a")
    redis_client.set("retry", "no sorted set")

    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        in_flight.settle(link, OWNER, b"3.0@default", vital=[("ZADD", "retry", 5, "b")], listed=b"a")

    assert redis_client.lrange(inbox, 0, -1) == [b"a"]


def test_jobs_in_inboxes_and_in_the_hash_go_back_together(link: Link, redis_client: redis.Redis) -> None:
    """The first of them is the next to run, wherever it stood."""
    push(redis_client, "hashed", "waits")
    [(field, _)] = fetch(link, max_jobs=1)
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", "listed")

    moved = in_flight.give_back(link, OWNER, [b"2.0@default", field], {b"2.0@default": b"listed"})

    assert moved == 2
    assert redis_client.rpop("queue:default", 3) == [b"listed", b"hashed", b"waits"]
    assert redis_client.exists(f"sidekiq_py:inbox:{OWNER}:default") == 0


def test_an_overwritten_inbox_keeps_no_other_job_from_going_back(link: Link, redis_client: redis.Redis) -> None:
    """They would wait for another worker to recover them."""
    redis_client.set(f"sidekiq_py:inbox:{OWNER}:low", "foreign")
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", "job")

    assert in_flight.give_back_listed(link, OWNER, [("low", b"gone"), ("default", b"job"), ("low", b"gone")]) == 1

    assert redis_client.lrange("queue:default", 0, -1) == [b"job"]
    assert not redis_client.exists("queue:low")


@pytest.mark.parametrize("is_recovered", [False, True])
def test_an_overwritten_hash_keeps_no_job_in_an_inbox(
    link: Link, redis_client: redis.Redis, *, is_recovered: bool
) -> None:
    """It would be in flight until someone deleted the hash."""
    redis_client.set(f"sidekiq_py:inflight:{OWNER}", "foreign")
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", LISTED.raw)

    if is_recovered:
        assert recover.put_back(link, OWNER, [recover.Fate(LISTED, 0, 1.0)]) == [LISTED.field]
    else:
        assert in_flight.give_back(link, OWNER, [LISTED.field], {LISTED.field: LISTED.raw}) == 1

    assert redis_client.lrange("queue:default", 0, -1) == [LISTED.raw]
    assert not redis_client.exists(f"sidekiq_py:inbox:{OWNER}:default")


def test_of_two_equal_jobs_in_an_inbox_each_goes_back_by_itself(link: Link, redis_client: redis.Redis) -> None:
    """The other one may be running."""
    inbox = f"sidekiq_py:inbox:{OWNER}:default"
    redis_client.lpush(inbox, "same", "same")

    assert in_flight.give_back_listed(link, OWNER, [("default", b"same")]) == 1

    assert redis_client.lrange(inbox, 0, -1) == redis_client.lrange("queue:default", 0, -1) == [b"same"]


@pytest.fixture
def _without_lrem(redis_client: redis.Redis) -> Iterator[None]:
    """The user loses the right while the worker runs; at its start it would be told."""
    redis_client.execute_command("ACL", "SETUSER", "default", "-lrem")
    yield
    redis_client.execute_command("ACL", "SETUSER", "default", "+lrem")


LISTED = recover.Entry(b"2.0@default", b"listed", is_listed=True)


def test_a_user_who_may_not_look_into_an_inbox_is_told(link: Link, redis_client: redis.Redis) -> None:
    """The jobs stay in flight, which the log of a stop should say."""
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", LISTED.raw)
    redis_client.execute_command("ACL", "SETUSER", "default", "-lpos")

    try:
        with pytest.raises(RedisReplyError, match="NOPERM"):
            in_flight.give_back(link, OWNER, [LISTED.field], {LISTED.field: LISTED.raw})
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+lpos")


@pytest.mark.usefixtures("_without_lrem")
@pytest.mark.parametrize(
    "attempt",
    [
        lambda link: in_flight.give_back(link, OWNER, [LISTED.field], {LISTED.field: LISTED.raw}),
        lambda link: in_flight.claim(link, OWNER, "2.0", "default", LISTED.raw),
        lambda link: in_flight.settle(link, OWNER, LISTED.field, vital=[("LPUSH", "q", "x")], listed=LISTED.raw),
        lambda link: recover.put_back(link, OWNER, [recover.Fate(LISTED, 0, 1.0)]),
    ],
    ids=["given back", "claimed", "settled", "recovered"],
)
def test_without_the_right_to_lrem_a_job_in_an_inbox_is_not_written_elsewhere(
    link: Link, redis_client: redis.Redis, attempt: Callable[[Link], object]
) -> None:
    """It could not leave the inbox, and would be written once more at each attempt."""
    inbox = f"sidekiq_py:inbox:{OWNER}:default"
    redis_client.lpush(inbox, LISTED.raw)

    with suppress(RedisReplyError):
        attempt(link)

    assert redis_client.keys() == [inbox.encode()]
    assert redis_client.lrange(inbox, 0, -1) == [LISTED.raw]


def test_another_process_finds_a_job_in_an_inbox_by_its_public_field(link: Link, redis_client: redis.Redis) -> None:
    """It settles what ran past its time limit; the bytes themselves may be too long for a pipe."""
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:low", "a", "b")
    public = in_flight.public_field(b"3.0@low", b"a")

    assert in_flight.find_job(link, OWNER, public) == (b"a", b"0.0@low", b"a")
    redis_client.lrem(f"sidekiq_py:inbox:{OWNER}:low", 1, "a")
    assert in_flight.find_job(link, OWNER, public) is None


def test_settling_writes_once(link: Link, redis_client: redis.Redis) -> None:
    """Sent again after a lost reply it finds the job gone and writes nothing."""
    push(redis_client, "a")
    [(field, _)] = fetch(link)

    def settle() -> bool:
        return in_flight.settle(
            link, OWNER, field, vital=[("ZADD", "retry", 5, "b")], counters=[("INCRBY", "stat:failed", 1)]
        )

    assert (settle(), settle()) == (True, False)
    assert redis_client.zrange("retry", 0, -1, withscores=True) == [(b"b", 5.0)]
    assert redis_client.get("stat:failed") == b"1"


def test_a_job_whose_retry_cannot_be_written_stays_in_flight(link: Link, redis_client: redis.Redis) -> None:
    """And nothing is counted."""
    push(redis_client, "a")
    [(field, _)] = fetch(link)
    redis_client.set("retry", "a string")

    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        in_flight.settle(link, OWNER, field, vital=[("ZADD", "retry", 5, "b")], counters=[("INCRBY", "stat:failed", 1)])

    assert held(redis_client) == {field: b"a"}
    assert redis_client.get("stat:failed") is None


# ---- give back


def test_what_is_given_back_runs_next_and_in_order(link: Link, redis_client: redis.Redis) -> None:
    """The first of them first; queues are known again even if they had been forgotten."""
    push(redis_client, *"abc")
    push(redis_client, "x", queue="low")
    fields = [field for field, _ in fetch(link, ("low", 0), ("default", 0), max_jobs=3)]

    assert in_flight.give_back(link, OWNER, fields) == len(fields)
    assert redis_client.rpop("queue:default", 3) == [b"a", b"b", b"c"]
    assert redis_client.rpop("queue:low") == b"x"
    assert redis_client.smembers("queues") == {b"default", b"low"}
    assert in_flight.give_back(link, OWNER, fields) == 0


def test_a_job_that_cannot_go_back_does_not_keep_the_others(link: Link, redis_client: redis.Redis) -> None:
    """Its queue's key has become a string; it stays in flight."""
    push(redis_client, "x", queue="odd")
    push(redis_client, "a")
    fields = [field for field, _ in fetch(link, ("odd", 0), ("default", 0))]
    redis_client.set("queue:odd", "a string")

    assert in_flight.give_back(link, OWNER, fields) == 1
    assert held(redis_client) == {b"1.0:odd": b"x"}


# ---- leases


def test_an_owner_that_was_recovered_cannot_renew(link: Link, redis_client: redis.Redis) -> None:
    """Nor does its lease come back."""
    fetch(link)
    assert in_flight.renew(link, OWNER, ABOUT, 1000)

    assert in_flight.fence(link, OWNER, certain=True, now=5.0)

    assert not in_flight.renew(link, OWNER, ABOUT, 1000)
    assert redis_client.exists(f"sidekiq_py:lease:{OWNER}") == 0
    assert redis_client.hgetall("sidekiq_py:departed") == {OWNER.encode(): b"5.000 " + ABOUT.encode()}


def test_a_lease_that_stands_is_renewed_without_a_script(link: Link, redis_client: redis.Redis) -> None:
    """Every process does so every five seconds. One that has run out comes back all the same."""
    fetch(link)
    redis_client.config_resetstat()

    assert in_flight.renew(link, OWNER, ABOUT, 60_000)

    assert redis_client.pttl(f"sidekiq_py:lease:{OWNER}") > 30_000
    assert not {"cmdstat_evalsha", "cmdstat_eval"} & redis_client.info("commandstats").keys()
    redis_client.delete(f"sidekiq_py:lease:{OWNER}")
    assert in_flight.renew(link, OWNER, ABOUT, 60_000)
    assert redis_client.exists(f"sidekiq_py:lease:{OWNER}")


def test_an_owner_that_still_has_its_lease_is_entered_again(link: Link, redis_client: redis.Redis) -> None:
    """A fence removes both, so Redis has only lost the registry: nobody else knows of its jobs."""
    fetch(link)
    redis_client.delete("sidekiq_py:owners")

    assert in_flight.renew(link, OWNER, ABOUT, 1000)

    assert redis_client.hgetall("sidekiq_py:owners") == {OWNER.encode(): ABOUT.encode()}


def test_an_owner_with_a_lease_is_fenced_only_for_certain(link: Link, redis_client: redis.Redis) -> None:
    """Between a look at its lease and the fence it may have renewed it."""
    fetch(link)

    assert not in_flight.fence(link, OWNER, certain=False, now=5.0)
    redis_client.delete(f"sidekiq_py:lease:{OWNER}")
    assert in_flight.fence(link, OWNER, certain=False, now=5.0)
    assert not in_flight.fence(link, OWNER, certain=False, now=5.0)


# ---- a full Redis


def test_a_full_redis_can_be_worked_empty(full_server: tuple[redis.Redis, Link]) -> None:
    """Where nothing can be pushed any more, taking and ending jobs must go on, or it would stay full."""
    client, link = full_server
    push(client, "a", "b", "c", "d")
    client.config_set("maxmemory", 1)

    fields = [field for field, _ in fetch(link)]
    assert len(fields) == 4
    assert in_flight.renew(link, OWNER, ABOUT, 1000)
    assert acknowledge(link, fields[0]) == 1
    assert in_flight.settle(link, OWNER, fields[1], vital=[("ZADD", "retry", 5, "b")])
    assert in_flight.give_back(link, OWNER, fields[2:3]) == 1
    assert in_flight.fence(link, OWNER, certain=True, now=5.0)
    assert (client.lrange("queue:default", 0, -1), client.zrange("retry", 0, -1)) == ([b"c"], [b"b"])


def test_a_job_that_arrived_is_claimed_though_redis_is_full(full_server: tuple[redis.Redis, Link]) -> None:
    """The move into the inbox came through, so the claim must."""
    client, link = full_server
    fetch(link)
    client.lpush(f"sidekiq_py:inbox:{OWNER}:default", "arrived")
    client.config_set("maxmemory", 1)

    assert claim(link, b"arrived") == b"7.0:default"
    assert client.llen(f"sidekiq_py:inbox:{OWNER}:default") == 0


def test_scripts_come_back_after_a_flush(link: Link, redis_client: redis.Redis) -> None:
    """A server that was restarted knows none of them."""
    push(redis_client, "a", "b")
    [(first, _), (second, _)] = fetch(link)

    calls: list[Callable[[], int]] = [
        lambda: in_flight.give_back(link, OWNER, [first]),
        lambda: in_flight.settle(link, OWNER, second, vital=[]),
        lambda: in_flight.renew(link, OWNER, ABOUT, 1000),
        lambda: in_flight.fence(link, OWNER, certain=True, now=1.0),
    ]
    for call in calls:
        redis_client.script_flush()
        assert call()


# ---- notices


def test_what_is_revoked_is_told_with_the_jobs(link: Link, redis_client: redis.Redis) -> None:
    """However the payload is spelled; other ids are not, though they stand beside it."""
    redis_client.zadd("sidekiq_py:revoked", {"a": 9e9, "c": 9e9, "elsewhere": 9e9})
    redis_client.set("sidekiq_py:orders", 7)
    push(redis_client, '{"args":[{"jid":"x"}],"jid":"a"}', '{"jid":"b"}', '{ "jid" : "c" }')
    plan = FetchPlan(OWNER, ABOUT, 30_000, 1, (("default", 0),), 10, 1_000_000, 1, may_take_marked=True)

    reply = in_flight.FETCH.run(link, *plan.command_parts())

    assert reply[1] == [b"7", b"a", b"c"]
    assert len(reply) == 2 + 2 * 3


def test_revokes_of_a_foreign_type_leave_every_job_in_its_queue(link: Link, redis_client: redis.Redis) -> None:
    """Also where a thousand jobs were looked at before; none may be both in flight and in its queue."""
    redis_client.set("sidekiq_py:revoked", "oops")
    jobs = [f'{{"n":{number}}}' for number in range(1100)]
    push(redis_client, *jobs, '{"jid":"a"}')

    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        fetch(link, max_jobs=2000)

    assert held(redis_client) == {}
    assert redis_client.llen("queue:default") == 1101


def test_a_claim_tells_it_too(link: Link, redis_client: redis.Redis) -> None:
    """A worker that waits hears of it like one that fetches."""
    fetch(link)
    redis_client.zadd("sidekiq_py:revoked", {"a": 9e9})
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:default", '{"jid":"a"}')

    reply = in_flight.claim(link, OWNER, "7.0", "default", b'{"jid":"a"}')

    assert reply == [b"7.0:default", b'{"jid":"a"}', [b"", b"a"]]
