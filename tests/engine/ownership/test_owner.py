"""Owners: what a process knows of its own jobs, and when it learns that they are not its own any more."""

import threading
from typing import Any

import pytest
import redis

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.owner import Owner, Ownership, UnitOfWork, forget, give_back
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight
from tests.engine.fetch.in_flight_jobs import fetch, held, push
from tests.support.waiting import eventually


@pytest.fixture
def ownership() -> Ownership:
    """Of a process that fetches from `default` and `low`."""
    return Ownership("host:1:abc", ["default", "low"], lease_seconds=30)


def enter(link: Link, ownership: Ownership) -> Owner:
    """Enter the present owner by a first fetch; its jobs are not taken in."""
    owner = ownership.current
    batch = owner.open_batch()
    fetch(link, owner=owner.name, registration=owner.about, batch=batch)
    owner.published = owner.about
    owner.close_batch(batch)
    return owner


def known(owner: Owner, field: bytes) -> UnitOfWork:
    """Take a job in, as the reader of a fetch's reply does."""
    unit = owner.units[field] = UnitOfWork(b"x", "default", owner, field, False, monotonic())
    return unit


def test_a_job_that_nobody_here_knows_is_an_orphan() -> None:
    """Its fetch is over, and its reply was never read."""
    owner = Owner("o:1", "{}")
    first, second = owner.open_batch(), owner.open_batch()
    known(owner, b"1.0:default")
    owner.close_batch(first)

    assert owner.orphans([b"1.0:default", b"1.1:default", b"2.0:default"]) == [b"1.1:default"]
    owner.close_batch(second)
    assert owner.orphans([b"2.0:default"]) == [b"2.0:default"]


def test_a_job_whose_reply_is_read_during_the_comparison_is_no_orphan() -> None:
    """The reader takes it in, then closes its batch: who looks at the table first and then at the batches is fooled."""
    owner = Owner("o:1", "{}")
    batch = owner.open_batch()

    class Watched(dict[bytes, UnitOfWork]):
        """A table whose owner reads the reply right after somebody has looked into it."""

        def __contains__(self, field: object) -> bool:
            found = super().__contains__(field)
            if batch in owner.outstanding:
                known(owner, b"1.0:default")
                owner.close_batch(batch)
            return found

    owner.units = Watched()

    assert owner.orphans([b"1.0:default"]) == []


def test_orphans_go_back_to_their_queue(link: Link, ownership: Ownership, redis_client: redis.Redis) -> None:
    """The known stay."""
    push(redis_client, "a", "b")
    owner = enter(link, ownership)
    known(owner, b"1.0:default")

    assert ownership.give_back_orphans(link) == 1
    assert redis_client.lrange("queue:default", 0, -1) == [b"b"]
    assert held(redis_client, owner.name) == {b"1.0:default": b"a"}


def test_a_job_whose_claim_was_cut_off_leaves_the_inbox(
    link: Link, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Only the blocking move came through: without this it would stay there for as long as the process lives."""
    owner = enter(link, ownership)
    redis_client.lpush(f"sidekiq_py:inbox:{owner.name}:low", "arrived")

    assert ownership.give_back_orphans(link) == 1
    assert redis_client.lrange("queue:low", 0, -1) == [b"arrived"]


def test_a_job_that_goes_back_during_the_comparison_and_is_fetched_again_is_no_orphan(
    link: Link, ownership: Ownership, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A buffer returns late jobs at any moment. Their bytes are still the same: one ran here and was in its queue."""
    owner = enter(link, ownership)
    inbox = f"sidekiq_py:inbox:{owner.name}:default"
    redis_client.lpush(inbox, "late")
    read, put_back = in_flight.held, in_flight.give_back_listed

    def take(field: bytes) -> UnitOfWork:
        unit = owner.units[field] = UnitOfWork(b"late", "default", owner, field, False, monotonic(), is_listed=True)
        return unit

    unit = take(b"7.0@default")

    def read_before_it_goes_back(*args: Any) -> Any:
        found = read(*args)
        give_back(link, owner, [unit])
        forget([unit])
        return found

    def put_back_after_it_is_fetched_again(*args: Any) -> int:
        redis_client.lmove("queue:default", inbox, "RIGHT", "LEFT")
        take(b"8.0@default")
        return put_back(*args)

    monkeypatch.setattr(in_flight, "held", read_before_it_goes_back)
    monkeypatch.setattr(in_flight, "give_back_listed", put_back_after_it_is_fetched_again)

    assert ownership.give_back_orphans(link) == 0
    assert not redis_client.exists("queue:default")
    assert redis_client.lrange(inbox, 0, -1) == [b"late"]


def test_a_job_that_went_back_and_is_on_its_way_again_is_no_orphan(
    link: Link, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """An earlier comparison saw it on its way here, too: all moves that were open then have ended since."""
    owner = enter(link, ownership)
    inbox = f"sidekiq_py:inbox:{owner.name}:default"
    redis_client.lpush(inbox, "late")
    first = owner.open_batch()
    assert ownership.give_back_orphans(link) == 0
    unit = UnitOfWork(b"late", "default", owner, b"2.0@default", False, monotonic(), is_listed=True)
    owner.units[unit.field] = unit
    owner.close_batch(first)
    give_back(link, owner, [unit])
    forget([unit])

    second = owner.open_batch()
    redis_client.lmove("queue:default", inbox, "RIGHT", "LEFT")

    assert ownership.give_back_orphans(link) == 0
    # Now as if its reply had been lost.
    owner.close_batch(second)
    assert ownership.give_back_orphans(link) == 1


def test_what_one_comparison_puts_back_is_no_orphan_for_another_once_it_is_fetched_again(
    link: Link, pool: Pool, ownership: Ownership, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage each capsule compares, and so does each beat. A move that is open then brings the job at once."""
    owner = enter(link, ownership)
    inbox = f"sidekiq_py:inbox:{owner.name}:default"
    redis_client.lpush(inbox, "lost")
    put_back, fetched = in_flight.give_back_listed, []
    other = threading.Thread(target=pool.run, args=[ownership.give_back_orphans])

    def put_back_after_the_other(*args: Any) -> int:
        if not fetched and threading.current_thread() is not other:
            other.start()
            other.join(0.5)
            owner.open_batch()
            fetched.append(redis_client.lmove("queue:default", inbox, "RIGHT", "LEFT"))
        return put_back(*args)

    monkeypatch.setattr(in_flight, "give_back_listed", put_back_after_the_other)

    assert ownership.give_back_orphans(link) == 1
    other.join()

    assert fetched == [None]
    assert redis_client.lrange("queue:default", 0, -1) == [b"lost"]


def test_an_inbox_that_another_program_has_overwritten_holds_up_nothing_else(
    link: Link, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """
    Jobs in the other keys go back, at a beat and at the stop, and the beat goes on to the jobs of dead workers. The
    moves and the ends that Redis refuses because of the key are logged, and the doctor names it.
    """
    push(redis_client, "c")
    owner = enter(link, ownership)
    redis_client.set(f"sidekiq_py:inbox:{owner.name}:default", "foreign")
    redis_client.lpush(f"sidekiq_py:inbox:{owner.name}:low", "a")

    assert ownership.give_back_orphans_and_ask(link, ("PING",)) == [b"PONG"]
    assert redis_client.lrange("queue:low", 0, -1) == [b"a"]
    assert redis_client.lrange("queue:default", 0, -1) == [b"c"]

    redis_client.lpush(f"sidekiq_py:inbox:{owner.name}:low", "b")
    ownership.leave(link, 100.0)
    assert redis_client.lrange("queue:low", 0, -1) == [b"a", b"b"]


def test_an_overwritten_key_of_an_earlier_epoch_holds_up_no_job_of_this_one(
    link: Link, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """A process that was considered dead looks after the jobs of both epochs."""
    former = enter(link, ownership)
    redis_client.set(f"sidekiq_py:inbox:{former.name}:low", "foreign")
    ownership.advance(former)
    owner = enter(link, ownership)
    redis_client.lpush(f"sidekiq_py:inbox:{owner.name}:low", "a")

    assert ownership.give_back_orphans(link) == 1
    assert redis_client.lrange("queue:low", 0, -1) == [b"a"]


@pytest.mark.parametrize("foreign", [b"x:default", b"1:default", b"1.0:\xff"])
def test_a_field_that_is_not_ours_holds_up_no_other_job(
    link: Link, ownership: Ownership, redis_client: redis.Redis, foreign: bytes
) -> None:
    """Recovery passes over what another program wrote to the hash. So do the owner's beats and its stop."""
    push(redis_client, "a", "b")
    owner = enter(link, ownership)
    known(owner, b"1.0:default")
    redis_client.hset(f"sidekiq_py:inflight:{owner.name}", foreign, "foreign")

    assert ownership.give_back_orphans(link) == 1
    assert redis_client.lrange("queue:default", 0, -1) == [b"b"]
    ownership.leave(link, 100.0)
    assert redis_client.lrange("queue:default", 0, -1) == [b"b", b"a"]
    assert held(redis_client, owner.name) == {foreign: b"foreign"}


@pytest.mark.parametrize("notice", ["at a beat", "at a fetch"])
def test_an_owner_whose_registry_redis_has_lost_keeps_its_jobs(
    link: Link, ownership: Ownership, redis_client: redis.Redis, notice: str
) -> None:
    """And is entered again, so that others bring them back if this process dies."""
    push(redis_client, "a")
    owner = enter(link, ownership)
    known(owner, b"1.0:default")
    redis_client.delete("sidekiq_py:owners")

    if notice == "at a beat":
        ownership.renew(link)
    else:
        ownership.refused(link, owner)

    assert ownership.current is owner
    assert redis_client.hgetall("sidekiq_py:owners") == {owner.name.encode(): owner.published.encode()}


def test_what_an_earlier_epoch_had_not_started_goes_back_where_nobody_recovers_it(
    link: Link, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Redis has lost its entry and its lease, and only those: no other process knows of it. What runs stays."""
    push(redis_client, "a", "b")
    owner = enter(link, ownership)
    known(owner, b"1.0:default")
    redis_client.lpush(f"sidekiq_py:inbox:{owner.name}:low", "arrived")
    redis_client.delete("sidekiq_py:owners", f"sidekiq_py:lease:{owner.name}")
    ownership.renew(link)

    assert ownership.give_back_orphans(link) == 2
    assert redis_client.lrange("queue:default", 0, -1) == [b"b"]
    assert redis_client.lrange("queue:low", 0, -1) == [b"arrived"]
    assert held(redis_client, owner.name) == {b"1.0:default": b"a"}

    del owner.units[b"1.0:default"]
    assert ownership.give_back_orphans(link) == 1
    assert held(redis_client, owner.name) == {}


def test_renewing_keeps_the_owner(link: Link, ownership: Ownership, redis_client: redis.Redis) -> None:
    """And notes when it was confirmed."""
    owner = enter(link, ownership)
    redis_client.delete(f"sidekiq_py:lease:{owner.name}")
    owner.confirmed_at = 0.0

    ownership.renew(link)

    assert ownership.current is owner
    assert redis_client.exists(f"sidekiq_py:lease:{owner.name}") == 1
    assert ownership.trusts(monotonic())
    assert not ownership.trusts(monotonic() + 19)


def test_an_owner_that_was_recovered_goes_on_as_the_next_epoch(link: Link, redis_client: redis.Redis) -> None:
    """Under a new name, which its parent is told."""
    names: list[str] = []
    ownership = Ownership("host:1:abc", ["default"], 30, names.append)
    owner = enter(link, ownership)
    in_flight.fence(link, owner.name, certain=True, now=1.0)

    ownership.renew(link)
    following = ownership.current
    ownership.advance(owner)

    assert following is ownership.current is not owner
    assert names == ["host:1:abc:1", "host:1:abc:2"]


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (0, "It held no jobs and continues"),
        (1, "Other workers have taken over the 1 job that it held, unless the data is gone"),
        (2, "Other workers have taken over the 2 jobs that it held"),
    ],
)
def test_an_owner_that_redis_forgot_says_what_that_may_mean(
    link: Link,
    ownership: Ownership,
    redis_client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    jobs: int,
    message: str,
) -> None:
    """A Redis that was restarted empty looks the same from here as being taken for dead."""
    owner = enter(link, ownership)
    for number in range(jobs):
        known(owner, f"1.{number}:default".encode())
    redis_client.flushall()

    ownership.renew(link)

    assert "it was considered dead, or Redis has lost its data" in caplog.text
    assert message in caplog.text


def test_one_suspect_with_a_death_at_a_time(ownership: Ownership) -> None:
    """The next may come when the one before it is settled."""
    owner = ownership.current
    assert ownership.reserve_exclusive()
    assert not ownership.reserve_exclusive()

    known(owner, b"1.0!default")
    ownership.release_exclusive(owner, b"1.0!default")
    assert not ownership.reserve_exclusive()

    del owner.units[b"1.0!default"]
    assert ownership.reserve_exclusive()
    ownership.release_exclusive(owner, None)
    assert ownership.reserve_exclusive()


def test_whether_the_key_of_jobs_was_overwritten_is_asked_once(
    link: Link, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """None of them moves if this process was considered dead, and its stop waits for each answer."""
    owner = ownership.current
    for number in range(20):
        field = f"1.{number}@default".encode()
        owner.units[field] = UnitOfWork(field, "default", owner, field, False, monotonic(), is_listed=True)
    redis_client.config_resetstat()

    give_back(link, owner, list(owner.units.values()))

    assert redis_client.info("commandstats")["cmdstat_type"]["calls"] == 1


def test_jobs_whose_key_was_overwritten_go_back_in_their_order(
    link: Link, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Those of other keys go back as ever."""
    owner = enter(link, ownership)
    fields = [b"1.0@default", b"1.1@low", b"1.2@low"]
    units = [
        UnitOfWork(field, field[4:].decode(), owner, field, False, monotonic(), is_listed=True) for field in fields
    ]
    redis_client.lpush(f"sidekiq_py:inbox:{owner.name}:default", fields[0])
    redis_client.set(f"sidekiq_py:inbox:{owner.name}:low", "foreign")

    give_back(link, owner, units)

    assert redis_client.lrange("queue:default", 0, -1) == [b"1.0@default"]
    assert redis_client.lrange("queue:low", 0, -1) == [b"1.2@low", b"1.1@low"]


def test_who_leaves_takes_nothing_along(link: Link, ownership: Ownership, redis_client: redis.Redis) -> None:
    """Not even what came in a fetch whose reply was never read, by an owner that does not know it is entered."""
    push(redis_client, "a", "b")
    push(redis_client, "c", queue="low")
    owner = ownership.current
    fetch(link, ("default", 0), owner=owner.name, registration=owner.about)
    redis_client.lmove("queue:low", f"sidekiq_py:inbox:{owner.name}:low", "RIGHT", "LEFT")

    ownership.leave(link, 5.0)

    assert redis_client.rpop("queue:default", 2) == [b"a", b"b"]
    assert redis_client.lrange("queue:low", 0, -1) == [b"c"]
    assert redis_client.hlen("sidekiq_py:owners") == 0
    assert redis_client.keys("sidekiq_py:in*") == []


def test_who_leaves_also_puts_back_the_jobs_of_an_earlier_epoch(
    link: Link, ownership: Ownership, redis_client: redis.Redis
) -> None:
    """Those that still run follow when the process ends, each under the epoch that took it."""
    push(redis_client, "a", "b")
    earlier = enter(link, ownership)
    running = known(earlier, b"1.0:default")
    redis_client.delete("sidekiq_py:owners", f"sidekiq_py:lease:{earlier.name}")
    ownership.renew(link)

    ownership.leave(link, 5.0, but=[running])
    assert redis_client.lrange("queue:default", 0, -1) == [b"b"]

    ownership.let_go(link, [running])
    link.close()
    eventually(lambda: redis_client.lrange("queue:default", 0, -1) == [b"b", b"a"])


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b'{"class":"Charge","jid":"ab","args":[]}', "Charge with jid ab, 39 bytes from queue low"),
        (b"\xffno JSON", "a payload that cannot be read, 8 bytes from queue low"),
    ],
)
def test_a_log_line_says_which_job_it_is(raw: bytes, shown: str) -> None:
    """By its id; an operator cannot look up the job's field in Redis."""
    assert str(UnitOfWork(raw, "low", None, b"1.0:low", False, 0.0)) == shown
