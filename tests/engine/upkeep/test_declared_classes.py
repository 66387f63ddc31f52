"""A worker says which classes it can run, and stops saying so when it is gone."""

import json
from collections.abc import Callable, Iterator

import pytest
import redis

from sidekiq_py.active_job import active_job
from sidekiq_py.active_job.declared import forget_active_jobs
from sidekiq_py.engine.upkeep.declared_classes import Declared
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.processes import declared_classes
from sidekiq_py.registry import FunctionDefinition, Registry, registry
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

IDENTITY = "host:1:abc"
KEY = f"sidekiq_py:declared:{IDENTITY}"


@pytest.fixture
def jobs() -> Registry:
    """Two jobs."""
    found = Registry()
    for name in ("Sum", "Billing::Invoice"):
        found.add(FunctionDefinition(name, {}, print, print))
    return found


@pytest.fixture
def invoice_job() -> Iterator[None]:
    """An Active Job in the program's registry."""
    active_job("Billing::InvoiceJob")(lambda number: None)
    yield
    forget_active_jobs()


class Clock:
    """A monotonic clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_the_classes_stand_in_redis_for_three_minutes(pool: Pool, redis_client: redis.Redis, jobs: Registry) -> None:
    """Sorted, as a JSON array."""
    Declared(pool, IDENTITY, jobs).keep()

    assert json.loads(redis_client.get(KEY)) == ["Billing::Invoice", "Sum"]
    assert 60 < redis_client.ttl(KEY) <= 180


def test_a_beat_a_minute_makes_them_last(pool: Pool, redis_client: redis.Redis, jobs: Registry) -> None:
    """What stands there is not sent again, and the beats between cost nothing."""
    clock = Clock()
    declared = Declared(pool, IDENTITY, jobs, monotonic=clock)
    declared.keep()
    redis_client.set(KEY, "[]", ex=5)

    clock.seconds += 59
    declared.keep()
    assert redis_client.ttl(KEY) <= 5

    clock.seconds += 1
    declared.keep()
    assert redis_client.get(KEY) == b"[]"
    assert redis_client.ttl(KEY) > 60


def test_what_redis_has_lost_is_said_again(pool: Pool, redis_client: redis.Redis, jobs: Registry) -> None:
    """At once after a restart without its data, and within a minute if only the list is gone."""
    clock = Clock()
    declared = Declared(pool, IDENTITY, jobs, monotonic=clock)
    declared.keep()

    redis_client.flushall()
    declared.keep(was_known=False)
    assert redis_client.exists(KEY)

    redis_client.delete(KEY)
    clock.seconds += 60
    declared.keep()
    assert redis_client.exists(KEY)


def test_active_jobs_stand_there_by_their_own_names(invoice_job: None) -> None:
    """And not by that of their wrapper."""
    assert "Billing::InvoiceJob" in registry.classes()
    assert not [name for name in registry.classes() if "Wrapper" in name]


def test_a_user_who_may_not_write_our_keys_is_left_in_peace(
    new_redis_server: Callable[..., RedisServer], jobs: Registry
) -> None:
    """The basic fetcher needs none of them."""
    server = new_redis_server()
    admin = server.client()
    admin.acl_setuser("basic", enabled=True, nopass=True, keys=["queue:*"], categories=["+@all"])
    admin.close()
    pool = Pool(RedisSettings(f"redis://basic:x@127.0.0.1:{server.port}/0"))
    declared = Declared(pool, IDENTITY, jobs)

    declared.keep()
    pool.close()
    server.stop()

    declared.keep(was_known=False)


@pytest.mark.parametrize("raw", [b"", b"{", b"7", b'{"a":1}'])
def test_what_cannot_be_read_counts_as_unsaid(pool: Pool, redis_client: redis.Redis, raw: bytes) -> None:
    """As with a process of a release that says nothing."""
    redis_client.set(KEY, raw)

    assert declared_classes.read(pool, [IDENTITY, "other"]) == {IDENTITY: None, "other": None}


def test_a_foreign_key_hides_no_other_process(pool: Pool, redis_client: redis.Redis) -> None:
    """What another program has put there concerns one process alone."""
    redis_client.lpush(KEY, "foreign")
    redis_client.set("sidekiq_py:declared:other", '["Sum"]')

    assert declared_classes.read(pool, [IDENTITY, "other"]) == {IDENTITY: None, "other": frozenset({"Sum"})}


def test_a_worker_says_it_with_its_heartbeat(
    start_worker: Callable[..., WorkerProcess], redis_client: redis.Redis
) -> None:
    """Under its identity."""
    worker = start_worker("tests.cli.worker_jobs")

    raw = eventually(lambda: redis_client.get(f"sidekiq_py:declared:{worker.identity}"))

    assert json.loads(raw) == ["Die", "Note", "Sleep"]
