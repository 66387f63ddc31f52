"""Blocking moves with their claims."""

import signal
import time
from collections.abc import Iterator

import pytest
import redis

from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.fetch.waiters import Waiters
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.wire import keys
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually


@pytest.fixture
def ownership(redis_client: redis.Redis) -> Ownership:
    """An owner that is entered."""
    owned = Ownership("host:1:abc", ["default"], 30)
    redis_client.hset(keys.OWNERS, owned.current.name, owned.current.about)
    owned.current.published = owned.current.about
    return owned


def open_moves(redis_client: redis.Redis) -> int:
    """How many clients wait in a blocking move."""
    return sum(client["cmd"] == "blmove" for client in redis_client.client_list())


def client_ids(redis_client: redis.Redis) -> set[str]:
    return {client["id"] for client in redis_client.client_list()}


def collected(group: Waiters) -> list[UnitOfWork]:
    """What has come within a second."""
    units: list[UnitOfWork] = []
    end = time.monotonic() + 1
    while not units and time.monotonic() < end:
        units += group.collect(None, 0.1)[0]
    return units


def test_two_moves_that_are_served_in_one_turn_do_not_swap_their_jobs(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """What a unit holds is what stands in flight under its field: the wrong job would be acknowledged otherwise."""
    groups = [Waiters(pool, ownership, ["default"], 0.05) for _ in range(2)]
    for group in groups:
        group.open(())
    eventually(lambda: open_moves(redis_client) == 2)

    redis_client.lpush(keys.queue("default"), b"first", b"second")

    units = [unit for group in groups for unit in collected(group)]
    assert sorted(unit.raw for unit in units) == sorted(jobs_in_flight(redis_client)) == [b"first", b"second"]
    for group in groups:
        group.close()


def test_a_move_whose_connection_broke_here_alone_costs_no_job(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Redis serves the old move and its claim all the same; what they took is an orphan and goes back."""
    old = Waiters(pool, ownership, ["default"], 0.05)
    new = Waiters(pool, ownership, ["default"], 0.05)
    old.open(())
    new.open(())
    eventually(lambda: open_moves(redis_client) == 2)
    for waiter in old._waiters:
        waiter.close_batch()

    redis_client.lpush(keys.queue("default"), b"first", b"second")

    [unit] = collected(new)
    assert sorted(jobs_in_flight(redis_client)) == [b"first", b"second"]
    with pool.link() as link:
        assert ownership.give_back_orphans(link) == 1
    [given_back] = redis_client.lrange(keys.queue("default"), 0, -1)
    assert {given_back, unit.raw} == {b"first", b"second"}
    old.close()
    new.close()


def test_a_paused_queue_whose_job_was_not_claimed_is_left_alone_and_no_more(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """A moment that has passed, and after which nothing is waited for, would let the leader look without a rest."""
    group = Waiters(pool, ownership, ["default"], 0.01)
    group.open(())
    eventually(lambda: open_moves(redis_client) == 1)
    redis_client.sadd(keys.PAUSED, "default")
    redis_client.lpush(keys.queue("default"), b"job")
    eventually(lambda: group.collect(None, 0.1) and not group.any_open)
    assert group.cool_until > 0

    eventually(lambda: group.open(["default"]) or not group.cool_until)

    assert not group.any_open
    assert redis_client.lrange(keys.queue("default"), 0, -1) == [b"job"]
    group.close()


def test_what_open_moves_have_brought_of_a_paused_queue_goes_back_in_its_order(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """One after the other, the last that came would be the next to run."""
    group = Waiters(pool, ownership, ["default"], 0.05)
    group.open(())
    group._open_another("default")
    eventually(lambda: open_moves(redis_client) == 2)
    redis_client.sadd(keys.PAUSED, "default")
    redis_client.lpush(keys.queue("default"), b"first", b"second", b"third")

    eventually(lambda: group.collect(None, 0.1) and not group.any_open)

    assert redis_client.lrange(keys.queue("default"), 0, -1) == [b"third", b"second", b"first"]
    assert jobs_in_flight(redis_client) == []
    assert not ownership.current.units
    group.close()


def test_a_job_of_a_paused_queue_goes_back_when_no_move_there_is_open(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Another one would be served it at once. Until then it counts as one that is known."""
    group = Waiters(pool, ownership, ["default"], 0.05)
    group.open(())
    group._open_another("default")
    eventually(lambda: open_moves(redis_client) == 2)
    redis_client.sadd(keys.PAUSED, "default")
    redis_client.lpush(keys.queue("default"), b"first")
    assert eventually(lambda: group.collect(None, 0.1) and ownership.current.units)
    with pool.link() as link:
        assert ownership.give_back_orphans(link) == 0
    assert jobs_in_flight(redis_client) == [b"first"]

    redis_client.lpush(keys.queue("default"), b"second")
    eventually(lambda: group.collect(None, 0.1) and not group.any_open)

    assert redis_client.lrange(keys.queue("default"), 0, -1) == [b"second", b"first"]
    assert not ownership.current.units
    group.close()


def test_a_queue_that_is_ended_brings_what_is_under_way_and_is_waited_for_no_more(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Other queues are."""
    group = Waiters(pool, ownership, ["default", "low"], 0.05)
    group.open(())
    eventually(lambda: open_moves(redis_client) == 2)

    group.serve(["low"])
    assert group.awaits("default")
    redis_client.lpush(keys.queue("default"), b"last")

    assert [unit.raw for unit in collected(group)] == [b"last"]
    group.open(())
    assert (group.awaits("default"), group.awaits("low")) == (False, True)
    assert not group.closed
    group.close()


class Counted:
    """A settler, and how many successes it has counted."""

    def __init__(self, pool: Pool, trust_seconds: float = 60.0) -> None:
        self.count = 0
        self.settler = Settler(
            pool.new_link(),
            on_pending=lambda: None,
            on_lost_connection=lambda: None,
            count=self.add,
            downtime=Downtime(),
            trust_seconds=trust_seconds,
        )

    def add(self, count: int) -> None:
        """So many more."""
        self.count += count


@pytest.fixture
def counted(pool: Pool) -> Iterator[Counted]:
    """Of the group under test."""
    made = Counted(pool)
    yield made
    made.settler.close()


@pytest.fixture
def group(pool: Pool, ownership: Ownership, counted: Counted, redis_client: redis.Redis) -> Iterator[Waiters]:
    """Waits on one queue, under a lease, and takes along what the settler has."""
    redis_client.set(keys.lease(ownership.current.name), "1")
    waiters = Waiters(pool, ownership, ["default"], 0.05, settler=counted.settler)
    yield waiters
    waiters.close()


def test_what_has_succeeded_goes_along_with_the_next_move(
    group: Waiters, counted: Counted, redis_client: redis.Redis
) -> None:
    """In the same packet, before the move: by itself it costs Redis nearly as much as the job's push."""
    group.open(())
    redis_client.lpush(keys.queue("default"), b'{"jid":"a"}')
    [unit] = collected(group)
    counted.settler.acknowledge(unit)
    reads = redis_client.info("stats")["total_reads_processed"]

    group.open(())
    eventually(lambda: group.collect(None, 1) and counted.count)

    # This one, and that of the question itself.
    assert redis_client.info("stats")["total_reads_processed"] - reads == 2
    assert jobs_in_flight(redis_client) == []
    assert group.awaits("default")
    assert not unit.owner.units


def test_while_a_job_runs_another_move_is_open(group: Waiters, counted: Counted, redis_client: redis.Redis) -> None:
    """The connection that brought the job waits for its end."""
    before = client_ids(redis_client)
    for number in range(3):
        group.open(())
        redis_client.lpush(keys.queue("default"), b'{"jid":"%d"}' % number)
        [unit] = collected(group)
        group.open(())
        assert group.awaits("default")
        counted.settler.acknowledge(unit)
        group.open(())

    eventually(lambda: open_moves(redis_client) == 2)
    assert len(client_ids(redis_client) - before) == 2


def test_a_queue_has_three_connections_and_no_more(group: Waiters, counted: Counted, redis_client: redis.Redis) -> None:
    """What finds none is handed in by itself."""
    owner = group._ownership.current
    units = [UnitOfWork(b"%d" % one, "default", owner, b"1.0@default", False, 0.0, is_listed=True) for one in range(4)]
    group._served = "default"
    group.open(())
    for unit in units:
        counted.settler.acknowledge(unit)
        group.open(())

    eventually(lambda: open_moves(redis_client) == 3)
    assert counted.settler.has_pending


def test_a_success_whose_answer_was_lost_is_handed_in_once_more_and_counted_once(
    group: Waiters, counted: Counted, redis_client: redis.Redis
) -> None:
    """Redis has done what was sent; the second time it finds nothing to remove."""
    group.open(())
    redis_client.lpush(keys.queue("default"), b'{"jid":"a"}')
    [unit] = collected(group)
    counted.settler.acknowledge(unit)
    group.open(())
    eventually(lambda: jobs_in_flight(redis_client) == [])

    group.close()

    assert counted.settler.has_pending
    counted.settler.flush()
    assert (counted.count, unit.owner.units) == (1, {})


def succeeded(group: Waiters, counted: Counted, redis_client: redis.Redis, jid: str) -> UnitOfWork:
    """A job that has come by a move, and whose success waits to go along with the next."""
    group.open(())
    redis_client.lpush(keys.queue("default"), f'{{"jid":"{jid}"}}')
    [unit] = collected(group)
    counted.settler.acknowledge(unit)
    return unit


def test_an_error_beside_a_reply_ends_the_connection_on_which_more_is_to_come(
    group: Waiters, counted: Counted, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply to the open move would be taken for that to the next one."""
    succeeded(group, counted, redis_client, "first")
    [answered] = [waiter for waiter in group._waiters if not waiter.is_open]
    with monkeypatch.context() as patched:
        patched.setattr(counted.settler, "note_done", lambda *args: 1 / 0)
        group.open(())
        with pytest.raises(ZeroDivisionError):
            collected(group)
    assert not answered.link.is_open

    counted.settler.flush()
    group.open(())
    redis_client.lpush(keys.queue("default"), b'{"jid":"second"}')
    assert b'{"jid":"second"}' in [unit.raw for unit in collected(group)]


def test_an_interrupt_between_two_replies_ends_the_connection(
    group: Waiters, counted: Counted, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a signal handler that a job has left behind. The reply to the open move would be taken for the next one's."""
    succeeded(group, counted, redis_client, "first")
    [answered] = [waiter for waiter in group._waiters if not waiter.is_open]
    group.open(())
    with monkeypatch.context() as patch:
        patch.setattr(Link, "has_unread", property(lambda link: signal.raise_signal(signal.SIGINT)))
        with pytest.raises(KeyboardInterrupt):
            collected(group)

    assert not answered.link.is_open


@pytest.fixture
def silent_group(group: Waiters, counted: Counted, redis_client: redis.Redis) -> Waiters:
    """Its connection has carried a success already, and knows that Redis leaves out replies; one job was counted."""
    succeeded(group, counted, redis_client, "first")
    group.open(())
    eventually(lambda: group.collect(None, 0.1) and counted.count == 1)
    return group


def test_a_success_gets_no_reply_of_its_own(silent_group: Waiters, counted: Counted, redis_client: redis.Redis) -> None:
    """It would go out at once, as the move behind it waits, and wake a process that has nothing to do."""
    unit = succeeded(silent_group, counted, redis_client, "second")
    silent_group.open(())
    eventually(lambda: jobs_in_flight(redis_client) == [])

    assert not silent_group._waiters[0].link.wait_readable(0)
    assert counted.count == 2
    redis_client.lpush(keys.queue("default"), b'{"jid":"third"}')
    [third] = collected(silent_group)
    assert (list(unit.owner.units.values()), counted.count) == ([third], 2)


@pytest.mark.parametrize("is_old_epoch", [False, True])
def test_a_success_of_a_job_that_others_may_have_recovered_is_counted_by_its_reply(
    silent_group: Waiters, counted: Counted, ownership: Ownership, redis_client: redis.Redis, is_old_epoch: bool
) -> None:
    """Its lease has run out, or this process goes on under its next epoch: the job counts where it runs again."""
    unit = succeeded(silent_group, counted, redis_client, "second")
    redis_client.delete(keys.inbox(unit.owner.name, "default"), keys.in_flight(unit.owner.name))
    if is_old_epoch:
        ownership.current = ownership._next_owner()
    else:
        unit.owner.confirmed_at -= ownership.trust_seconds
    silent_group.open(())

    eventually(lambda: silent_group._waiters[0].link.wait_readable(0))
    silent_group.collect(None, 0)

    assert counted.count == 1


def test_a_success_that_redis_reads_in_pieces_gets_its_reply(
    silent_group: Waiters, counted: Counted, redis_client: redis.Redis
) -> None:
    """What refuses the first piece may be over when the move behind it is read."""
    succeeded(silent_group, counted, redis_client, "x" * 20_000)
    silent_group.open(())

    eventually(lambda: silent_group._waiters[0].link.wait_readable(0))
    silent_group.collect(None, 0)

    assert (counted.count, jobs_in_flight(redis_client)) == (2, [])


def test_a_connection_on_which_a_reply_can_be_left_out_no_more_is_ended(
    silent_group: Waiters, counted: Counted, redis_client: redis.Redis
) -> None:
    """Redis answers what it was to be silent about, and each reply would be taken for that to something else."""
    succeeded(silent_group, counted, redis_client, "second")
    [answered] = [waiter for waiter in silent_group._waiters if not waiter.is_open]
    redis_client.execute_command("ACL", "SETUSER", "default", "-client")
    try:
        silent_group.open(())
        with pytest.raises(RedisReplyError, match="NOPERM"):
            collected(silent_group)
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+client")

    assert not answered.link.is_open
    counted.settler.flush()
    assert (counted.count, jobs_in_flight(redis_client)) == (2, [])


def test_a_success_without_a_reply_whose_connection_broke_is_handed_in_once_more_and_counted_once(
    silent_group: Waiters, counted: Counted, redis_client: redis.Redis
) -> None:
    """Nobody knows whether it had arrived."""
    unit = succeeded(silent_group, counted, redis_client, "second")
    silent_group.open(())
    eventually(lambda: jobs_in_flight(redis_client) == [])

    silent_group.close()

    assert counted.settler.has_pending
    counted.settler.flush()
    assert (counted.count, unit.owner.units) == (2, {})


def test_a_move_that_is_cut_off_just_after_it_was_sent_is_not_left_open(
    silent_group: Waiters, counted: Counted, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    In the main thread a signal handler that a job has left behind may raise anywhere. A job that the move brought later
    would stay in the inbox, and its reply would be taken for that of the next move.
    """
    succeeded(silent_group, counted, redis_client, "second")

    def interrupt(count: int) -> None:
        counted.add(count)
        if count > 0:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(counted.settler, "count", interrupt)
        with pytest.raises(KeyboardInterrupt):
            silent_group.open(())
    counted.settler.flush()
    silent_group.open(())
    redis_client.lpush(keys.queue("default"), b'{"jid":"third"}')
    [third] = collected(silent_group)

    redis_client.lpush(keys.queue("default"), b'{"jid":"fourth"}')

    assert not silent_group.awaits("default")
    assert redis_client.lrange(keys.queue("default"), 0, -1) == [b'{"jid":"fourth"}']
    assert jobs_in_flight(redis_client) == [third.raw]


def test_a_success_without_a_reply_is_refused_where_the_move_behind_it_is(
    silent_group: Waiters, counted: Counted, redis_client: redis.Redis
) -> None:
    """It stays in flight and known, is counted no more, and is handed in once more."""
    unit = succeeded(silent_group, counted, redis_client, "second")
    redis_client.config_set("min-replicas-to-write", 1)
    try:
        silent_group.open(())
        with pytest.raises(RedisReplyError, match="NOREPLICAS"):
            collected(silent_group)
    finally:
        redis_client.config_set("min-replicas-to-write", 0)

    assert (counted.count, jobs_in_flight(redis_client)) == (1, [unit.raw])
    assert unit.field in unit.owner.units
    counted.settler.flush()
    assert (counted.count, jobs_in_flight(redis_client)) == (2, [])


def hand_in_refused(group: Waiters, counted: Counted, redis_client: redis.Redis) -> None:
    """Have the next move carry the acknowledgement, while the user may not use LREM."""
    redis_client.execute_command("ACL", "SETUSER", "default", "-lrem")
    try:
        group.open(())
        eventually(lambda: group.collect(None, 0.1) and counted.settler.has_pending)
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+lrem")


def test_a_success_gets_a_reply_where_none_has_said_lately_that_redis_accepts_it(
    pool: Pool, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """A user who has lost the right to LREM may still move: without a reply its jobs would run again, unheard."""
    counted = Counted(pool, trust_seconds=0.0)
    redis_client.set(keys.lease(ownership.current.name), "1")
    group = Waiters(pool, ownership, ["default"], 0.05, settler=counted.settler)
    succeeded(group, counted, redis_client, "first")
    group.open(())
    eventually(lambda: group.collect(None, 0.1) and counted.count == 1)
    unit = succeeded(group, counted, redis_client, "second")
    hand_in_refused(group, counted, redis_client)

    assert (counted.count, jobs_in_flight(redis_client)) == (1, [unit.raw])
    assert unit.field in unit.owner.units
    counted.settler.flush()
    assert (counted.count, jobs_in_flight(redis_client)) == (2, [])
    group.close()
    counted.settler.close()


def test_after_a_refusal_the_next_success_gets_a_reply(
    silent_group: Waiters, counted: Counted, redis_client: redis.Redis
) -> None:
    """What refused one refuses the others, and they would run again."""
    counted.settler.take_back(counted.settler.drain())

    succeeded(silent_group, counted, redis_client, "second")
    silent_group.open(())

    assert not counted.settler.is_accepted
    eventually(lambda: silent_group.collect(None, 0.1) and counted.count == 2)
    assert counted.settler.is_accepted


def test_where_replies_may_not_be_left_out_each_success_gets_its_own(
    ownership: Ownership, redis_url: str, redis_client: redis.Redis
) -> None:
    """The rights of a user who was made for an earlier release, or a proxy that does not know the command."""
    redis_client.execute_command("ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-client")
    redis_client.set(keys.lease(ownership.current.name), "1")
    links = Pool(RedisSettings(redis_url.replace("redis://", "redis://plain:secret@")))
    counted = Counted(links)
    group = Waiters(links, ownership, ["default"], 0.05, settler=counted.settler)
    try:
        for number in range(3):
            unit = succeeded(group, counted, redis_client, str(number))
            group.open(())
            expected = number + 1
            eventually(lambda expected=expected: group.collect(None, 0.1) and counted.count == expected)
            assert (jobs_in_flight(redis_client), unit.owner.units) == ([], {})
    finally:
        group.close()
        counted.settler.close()
        links.close()
        redis_client.execute_command("ACL", "DELUSER", "plain")


def test_a_success_that_was_refused_beside_a_move_is_handed_in_by_itself(
    group: Waiters, counted: Counted, redis_client: redis.Redis
) -> None:
    """The move stays open."""
    group.open(())
    redis_client.lpush(keys.queue("default"), b'{"jid":"a"}')
    [unit] = collected(group)
    counted.settler.acknowledge(unit)
    hand_in_refused(group, counted, redis_client)

    assert group.awaits("default")
    counted.settler.flush()
    assert (counted.count, jobs_in_flight(redis_client)) == (1, [])
