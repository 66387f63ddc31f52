"""The lookout: one process reads the whole registry, and no dead process is overlooked for that."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import redis

from sidekiq_py.config import Config
from sidekiq_py.engine.ownership.host import ProcessPlace, registration
from sidekiq_py.engine.ownership.housekeeper import Housekeeper
from sidekiq_py.engine.ownership.lookout import Lookout
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.ownership.pending_deaths import PendingDeaths
from sidekiq_py.engine.ownership.recovery import Recovery
from sidekiq_py.hooks import Hooks
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire.dialect import Dialect
from tests.engine.fetch.in_flight_jobs import fetch, push
from tests.support.waiting import eventually

HERE = ProcessPlace.here()
# The number of this process, which bears it, but was started at another time.
GONE = replace(HERE, start=HERE.start + 1)
ELSEWHERE = ProcessPlace("another boot", "n", 7, 8)
BEAT_SECONDS = 5.0

Start = Callable[[str], tuple[Lookout, Ownership]]


def enter(link: Link, ownership: Ownership) -> None:
    """Its first fetch."""
    owner = ownership.current
    fetch(link, owner=owner.name, registration=owner.about)
    owner.published = owner.about


@pytest.fixture
def start(link: Link) -> Start:
    """Starts what asks for the turn in a process of that identity, on this machine, which has entered."""

    def new(identity: str) -> tuple[Lookout, Ownership]:
        ownership = Ownership(identity, ["default"], 30)
        enter(link, ownership)
        return Lookout(link, ownership, BEAT_SECONDS), ownership

    return new


def walks(lookout: Lookout, *neighbours: ProcessPlace) -> bool:
    """One beat: it asks, and walks if it must."""
    must = asked(lookout, *neighbours)
    if must:
        lookout.has_walked()
    return must


def asked(lookout: Lookout, *neighbours: ProcessPlace) -> bool:
    """Whether it must walk."""
    lookout.announce()
    return lookout.must_walk(neighbours, lookout._link.command(*lookout.question))


def settled(start: Start, *identities: str) -> list[Lookout]:
    """Processes that know of each other; the first is the lookout."""
    found = [start(identity)[0] for identity in identities]
    for _ in range(2):
        for lookout in found:
            walks(lookout)
    return found


def test_everybody_walks_once_and_then_one_alone(start: Start) -> None:
    """A worker that starts where another one was killed takes up its jobs at once."""
    lookouts = settled(start, "a:1:x", "b:2:x", "c:3:x")

    for _ in range(3):
        assert [walks(lookout) for lookout in lookouts] == [True, False, False]
    assert walks(start("d:4:x")[0])


def test_a_lookout_that_died_is_replaced_when_its_lease_has_run_out(start: Start, redis_client: redis.Redis) -> None:
    """That is three beats, half of an ordinary lease: before any lease of its machine has run out."""
    _, other = settled(start, "a:1:x", "b:2:x")
    assert 0 < redis_client.pttl("sidekiq_py:lookout") <= 3 * BEAT_SECONDS * 1000
    redis_client.delete("sidekiq_py:lookout")

    assert walks(other)
    assert redis_client.get("sidekiq_py:lookout") == b"b:2:x"


def test_a_process_that_starts_takes_a_lease_without_an_end(start: Start, redis_client: redis.Redis) -> None:
    """A copy of Redis may have lost it. Otherwise nobody would be the lookout for as long as the key is there."""
    redis_client.set("sidekiq_py:lookout", "gone:1:x")

    [lookout] = settled(start, "a:1:x")

    assert lookout.is_holder
    assert redis_client.pttl("sidekiq_py:lookout") > 0


@pytest.mark.parametrize("left_seconds", [None, 3600])
def test_a_lease_that_nobody_renews_and_that_does_not_end_is_taken_within_a_minute(
    start: Start, redis_client: redis.Redis, left_seconds: int | None
) -> None:
    """If the clock of Redis is set back by an hour as the lookout dies, nobody would find the dead for that hour."""
    first, other = settled(start, "a:1:x", "b:2:x")
    redis_client.set("sidekiq_py:lookout", "gone:1:x", ex=left_seconds)

    for _ in range(60 // int(BEAT_SECONDS)):
        walks(first)
        walks(other)

    assert first.is_holder != other.is_holder
    assert 0 < redis_client.pttl("sidekiq_py:lookout") <= 3 * BEAT_SECONDS * 1000


def test_a_lookout_that_leaves_makes_room_at_once(start: Start) -> None:
    """And one that is none takes nothing from it."""
    first, other = settled(start, "a:1:x", "b:2:x")
    other.leave()
    assert not walks(other)

    first.leave()
    assert walks(other)


def test_who_enters_on_this_machine_is_heard_of(start: Start) -> None:
    """Or its neighbours would not see it die, as long as the lookout lives on another machine."""
    _, other = settled(start, "a:1:x", "b:2:x")

    walks(start("new:3:x")[0])

    assert walks(other)
    assert not walks(other)


def test_the_next_epoch_of_a_process_is_heard_of(link: Link, start: Start) -> None:
    """It stands in the registry under a new name."""
    _, other = settled(start, "a:1:x", "b:2:x")
    third, ownership = start("c:3:x")
    walks(third)
    walks(other)
    ownership.advance(ownership.current)
    enter(link, ownership)

    walks(third)

    assert walks(other)


def test_a_neighbour_that_is_gone_is_seen_by_the_others_of_its_machine(start: Start) -> None:
    """Redis is not asked for that."""
    _, other = settled(start, "a:1:x", "b:2:x")

    assert not walks(other, HERE, ELSEWHERE)
    assert walks(other, HERE, GONE)


def test_a_walk_that_failed_is_made_again(start: Start) -> None:
    """What was announced before is not forgotten with it."""
    _, other = settled(start, "a:1:x", "b:2:x")
    walks(start("new:3:x")[0])

    assert asked(other)
    assert walks(other)
    assert not walks(other)


@pytest.fixture
def announced() -> list[str]:
    """The jobs that other processes left without their death handlers having been called."""
    return []


@pytest.fixture
def housekeeper(pool: Pool, link: Link, announced: list[str]) -> Iterator[Housekeeper]:
    """
    Of a living process that was told of its neighbours, and has death handlers; its beats are made by hand.
    """
    own = pool.new_link()
    ownership = Ownership("me:1:abc", ["default"], 30)
    enter(link, ownership)
    hooks = Hooks()
    hooks.on_death(lambda payload, error: None)
    recovery = Recovery(
        Config(),
        own,
        ownership,
        dialect=Dialect.unknown,
        pending_deaths=PendingDeaths(pool, ownership, hooks, Dialect.unknown),
        on_pending_death=lambda death, payload, error: announced.append(payload["jid"]),
    )
    yield Housekeeper(own, ownership, recovery, BEAT_SECONDS, lambda error, context: pytest.fail(str(error)))
    own.close()


def commands_of_a_beat(housekeeper: Housekeeper, client: redis.Redis) -> Counter[str]:
    """How often each command was called."""
    client.config_resetstat()
    housekeeper._turn()
    stats = client.info("commandstats")
    found = Counter({name.removeprefix("cmdstat_"): int(row["calls"]) for name, row in stats.items()})
    return found - Counter({"config|resetstat": 1, "info": 1})


def test_a_beat_reads_nothing_of_the_others_in_a_process_that_is_not_the_lookout(
    housekeeper: Housekeeper, redis_client: redis.Redis
) -> None:
    """Read by everybody, the registry cost Redis the square of the fleet: 25 % of a core for 1,000 idle processes."""
    redis_client.set("sidekiq_py:lookout", "another", ex=60)
    redis_client.hset(
        "sidekiq_py:owners", mapping={f"o:{number}:x:1": registration(ELSEWHERE, []) for number in range(300)}
    )
    housekeeper._turn()
    housekeeper._turn()

    assert commands_of_a_beat(housekeeper, redis_client) == {
        "hkeys": 1,
        "lrange": 1,
        # The renewal of its own lease.
        "hexists": 1,
        "set": 1,
        "mget": 1,
        "exists": 1,
    }


def test_a_beat_with_nothing_to_do_wakes_redis_up_once(housekeeper: Housekeeper, redis_client: redis.Redis) -> None:
    """The look at what is in flight and the lookout's lease go in one packet."""
    redis_client.set("sidekiq_py:lookout", "another", ex=60)
    housekeeper._turn()
    housekeeper._turn()
    reads = redis_client.info("stats")["total_reads_processed"]

    housekeeper._turn()

    # Its own, and that of the question.
    assert redis_client.info("stats")["total_reads_processed"] - reads == 2


@pytest.mark.parametrize("is_lookout", [True, False])
def test_each_process_takes_over_the_death_handlers_of_one_that_is_gone(
    housekeeper: Housekeeper, redis_client: redis.Redis, announced: list[str], is_lookout: bool
) -> None:
    """The lookout may have no handler for that error."""
    if not is_lookout:
        redis_client.set("sidekiq_py:lookout", "another", ex=60)
    housekeeper._turn()
    redis_client.hset(
        "sidekiq_py:deaths", "dead:2:def:1 1", b'{"error_class":"E","message":"m"}\n{"class":"A","jid":"a"}'
    )

    housekeeper._turn()

    assert announced == ["a"]


def test_the_lookout_looks_after_all(housekeeper: Housekeeper, link: Link, redis_client: redis.Redis) -> None:
    """Also after who entered without a word."""
    housekeeper._turn()
    push(redis_client, "a")
    fetch(link, owner="dead:2:def:1", registration=registration(GONE, ["default"]))

    housekeeper._turn()

    assert redis_client.lrange("queue:default", 0, -1) == [b"a"]


def test_a_process_that_is_not_the_lookout_brings_back_the_jobs_of_a_neighbour_that_died(
    housekeeper: Housekeeper, link: Link, redis_client: redis.Redis
) -> None:
    """The lookout may live on another machine, from where that cannot be seen."""
    redis_client.set("sidekiq_py:lookout", "another", ex=60)
    housekeeper._turn()
    push(redis_client, "a")
    fetch(link, owner="dead:2:def:1", registration=registration(GONE, ["default"]))
    redis_client.set(f"sidekiq_py:newest:{HERE.machine}", "dead:2:def:1")

    housekeeper._turn()

    assert redis_client.lrange("queue:default", 0, -1) == [b"a"]


def test_a_housekeeper_that_stops_leaves_the_lease_to_others(
    housekeeper: Housekeeper, redis_client: redis.Redis
) -> None:
    """A deploy does not delay the recovery of what died before it."""
    housekeeper.start()
    eventually(lambda: redis_client.exists("sidekiq_py:lookout"))

    housekeeper.stop()

    assert not redis_client.exists("sidekiq_py:lookout")
