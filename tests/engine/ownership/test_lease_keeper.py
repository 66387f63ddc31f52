"""The lease of a living worker: nothing else that the worker does may cost it, and no wait for Redis."""

import ctypes
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import monotonic
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.callback_thread import CallbackThread
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.ownership.host import ProcessPlace, registration
from sidekiq_py.engine.ownership.lease_keeper import LeaseKeeper
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
from sidekiq_py.wire import keys
from tests.support.cutting_proxy import CuttingProxy
from tests.support.ledger import job_text, push_jobs
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

# Longer than a busy machine holds up a process now and then.
LEASE_SECONDS = 4
ELSEWHERE = registration(ProcessPlace("another boot", "n", 7, 8), ["other"])


class LeaseLostError(Exception):
    """No living worker may see this."""


@pytest.fixture
def proxy(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[CuttingProxy]:
    """A network of its own before the emptied server."""
    with CuttingProxy(redis_server.port) as one:
        yield one


@pytest.fixture
def hooks() -> Hooks:
    """Of the worker."""
    return Hooks()


@pytest.fixture
def launch(proxy: CuttingProxy, hooks: Hooks) -> Iterator[Callable[..., Launcher]]:
    """Starts a worker here, behind the proxy, whose lease is LEASE_SECONDS long; it runs the functions it is given."""
    started: list[tuple[Launcher, Client]] = []

    def start(**jobs: Callable[..., object]) -> Launcher:
        config = Config(
            redis=RedisSettings(proxy.url),
            sidekiq_version="6.4.1",
            capsules=(CapsuleConfig(concurrency=1),),
            lease_seconds=LEASE_SECONDS,
            embedded=True,
        )
        registry = Registry()
        for name, function in jobs.items():
            registry.add(FunctionDefinition(name, {}, function, function))
        client = Client(proxy.url, sidekiq_version="6.4.1")
        launcher = Launcher(
            WorkerParts(config, registry=registry, hooks=hooks, server_middleware=Chain(), client=client)
        )
        started.append((launcher, client))
        launcher.start()
        return launcher

    yield start
    proxy.delay_seconds = 0
    for launcher, client in started:
        launcher.stop(timeout_seconds=1)
        client.close()


def entered(client: redis.Redis, launcher: Launcher) -> str:
    """The worker's owner, once Redis knows it."""
    owner = launcher.parts.ownership.current.name
    eventually(lambda: client.hexists(keys.OWNERS, owner))
    return owner


def check_lease(client: redis.Redis, owner: str) -> None:
    """It stands."""
    if not client.exists(keys.lease(owner)):
        raise LeaseLostError(owner)


def leave_departed(client: redis.Redis, number: int) -> None:
    """So many workers have left a job each."""
    pipe = client.pipeline()
    for owner in range(number):
        pipe.hset(keys.DEPARTED, f"gone:{owner}:abc:1", f"{time.time():.3f} {ELSEWHERE}")
        pipe.hset(keys.in_flight(f"gone:{owner}:abc:1"), "1.0:other", f"job {owner}")
    pipe.execute()


def test_the_lease_stands_while_the_jobs_of_many_others_are_brought_back_over_a_slow_link(
    launch: Callable[..., Launcher], proxy: CuttingProxy, redis_client: redis.Redis
) -> None:
    """Renewed by the thread that brings them back, it would run out in the middle of a job, which would run twice."""
    owner = entered(redis_client, launch())
    proxy.delay_seconds = 0.03
    leave_departed(redis_client, 300)

    def are_some_back() -> bool:
        check_lease(redis_client, owner)
        return time.monotonic() - began > LEASE_SECONDS and redis_client.llen("queue:other") > 0

    began = time.monotonic()
    eventually(are_some_back)
    assert redis_client.llen("queue:other") < 300


def test_the_lease_stands_while_exit_handlers_take_their_time(
    launch: Callable[..., Launcher], hooks: Hooks, redis_client: redis.Redis
) -> None:
    """A job that did not heed Shutdown still runs then."""
    launcher = launch()
    owner = entered(redis_client, launcher)

    @hooks.on("exit")
    def linger() -> None:
        end = time.monotonic() + LEASE_SECONDS + 0.5
        eventually(lambda: check_lease(redis_client, owner) or time.monotonic() > end)
        seen.append(owner)

    seen: list[str] = []
    launcher.stop(timeout_seconds=0)

    assert seen == [owner]
    assert not redis_client.exists(keys.lease(owner))


def test_an_error_handler_that_takes_its_time_costs_no_lease(
    launch: Callable[..., Launcher], hooks: Hooks, proxy: CuttingProxy, redis_client: redis.Redis
) -> None:
    """It is told that the lease could not be renewed, and the lease is renewed meanwhile."""
    release = threading.Event()
    calls: list[str] = []

    @hooks.on_error
    def slow(error: BaseException, context: dict[str, object]) -> None:
        calls.append(str(context["context"]))
        release.wait(60)

    owner = entered(redis_client, launch())
    # The housekeeper's renewals are among these.
    proxy.cut(b"\r\nXX\r\n", "before reply", times=10)
    eventually(lambda: "the lease could not be renewed; trying again" in calls)
    redis_client.delete(keys.lease(owner))

    eventually(lambda: redis_client.exists(keys.lease(owner)))
    release.set()


def in_the_registry(redis_client: redis.Redis, lease_seconds: int) -> Ownership:
    """An owner in the registry, as its first fetch enters it."""
    ownership = Ownership("host:1:abc", ["default"], lease_seconds)
    owner = ownership.current
    redis_client.hset(keys.OWNERS, owner.name, owner.about)
    owner.published = owner.about
    return ownership


@pytest.fixture
def callbacks() -> Iterator[CallbackThread]:
    """Where the keeper's errors are told."""
    one = CallbackThread()
    yield one
    one.stop(5)


def test_a_connection_that_is_gone_without_a_word_is_given_up_before_the_lease_runs_out(
    proxy: CuttingProxy, redis_client: redis.Redis, callbacks: CallbackThread
) -> None:
    """Waited for as long as other replies are, it would cost the lease: another connection is still in time."""
    pool = Pool(RedisSettings(proxy.url, socket_timeout_seconds=60))
    ownership = in_the_registry(redis_client, 3)
    owner = ownership.current
    errors: list[BaseException] = []
    flusher = LeaseKeeper(pool, ownership, 0.1, callbacks=callbacks, report=lambda error, context: errors.append(error))
    flusher.start()
    eventually(lambda: redis_client.exists(keys.lease(owner.name)))

    proxy.swallow(True)
    lost_at = monotonic()
    eventually(lambda: errors)
    proxy.swallow(False)

    eventually(lambda: owner.confirmed_at > lost_at)
    check_lease(redis_client, owner.name)
    flusher.stop()
    pool.close()


def test_a_redis_that_does_not_reply_is_no_sign_of_a_frozen_process(
    proxy: CuttingProxy, redis_client: redis.Redis, callbacks: CallbackThread, caplog: pytest.LogCaptureFixture
) -> None:
    """The log must not blame the process or its machine for the time in which the lease waits for Redis."""
    pool = Pool(RedisSettings(proxy.url))
    ownership = in_the_registry(redis_client, 3)
    errors: list[BaseException] = []
    keeper = LeaseKeeper(pool, ownership, 0.1, callbacks=callbacks, report=lambda error, context: errors.append(error))
    keeper.start()
    eventually(lambda: redis_client.exists(keys.lease(ownership.current.name)))

    proxy.swallow(True)
    eventually(lambda: errors)
    proxy.swallow(False)
    renewed_at = monotonic()
    eventually(lambda: ownership.current.confirmed_at > renewed_at)
    keeper.stop()
    told = threading.Event()
    callbacks.call(told.set)

    assert told.wait(10)
    assert "The lease was renewed" not in caplog.text
    pool.close()


def test_a_renewal_that_failed_is_tried_again_long_before_the_next_beat(
    proxy: CuttingProxy, redis_client: redis.Redis, callbacks: CallbackThread
) -> None:
    """A lease lives for a few beats only."""
    pool = Pool(RedisSettings(proxy.url, socket_timeout_seconds=0.2))
    ownership = in_the_registry(redis_client, 300)
    owner = ownership.current
    errors: list[BaseException] = []
    keeper = LeaseKeeper(pool, ownership, 100, callbacks=callbacks, report=lambda error, context: errors.append(error))
    proxy.swallow(True)
    keeper.start()
    eventually(lambda: errors)

    proxy.swallow(False)

    eventually(lambda: redis_client.exists(keys.lease(owner.name)))
    keeper.stop()
    pool.close()


def test_a_lease_that_the_housekeeper_has_renewed_is_left_alone(
    pool: Pool, redis_client: redis.Redis, callbacks: CallbackThread
) -> None:
    """It renews the lease once, over a connection that is open from then on, and next with the third beat."""
    ownership = in_the_registry(redis_client, 300)
    owner = ownership.current
    keeper = LeaseKeeper(pool, ownership, 1, callbacks=callbacks, report=lambda error, context: None)
    keeper.start()
    eventually(lambda: redis_client.exists(keys.lease(owner.name)))
    owner.renewed_at = monotonic() + 60
    redis_client.set(keys.lease(owner.name), "1", px=5000)

    eventually(lambda: keeper.pulse.overdue_seconds < -1.1)
    assert redis_client.pttl(keys.lease(owner.name)) < 6000
    eventually(lambda: redis_client.pttl(keys.lease(owner.name)) > 200_000)
    keeper.stop()


def test_a_comparison_renews_the_lease(link: Link, redis_client: redis.Redis) -> None:
    """An idle process sends Redis fewer packets that way."""
    ownership = in_the_registry(redis_client, 300)
    owner = ownership.current
    redis_client.set(keys.lease(owner.name), "1", px=5000)
    ownership.give_back_orphans(link)
    assert redis_client.pttl(keys.lease(owner.name)) > 200_000
    assert monotonic() - owner.renewed_at < 200


def test_a_password_that_changed_costs_no_lease_when_the_housekeeper_has_ended(
    new_redis_server: Callable[..., RedisServer], callbacks: CallbackThread
) -> None:
    """The connection that was opened with the old one stays. In a stop, a job that does not end needs the lease."""
    server = new_redis_server()
    client = redis.Redis(port=server.port)
    pool = Pool(RedisSettings(server.url))
    ownership = Ownership("host:1:abc", ["default"], 2)
    owner = ownership.current
    keeper = LeaseKeeper(pool, ownership, 0.1, callbacks=callbacks, report=lambda error, context: None)
    keeper.start()
    # The housekeeper is at work from the first fetch on.
    owner.renewed_at = monotonic() + 60
    client.hset(keys.OWNERS, owner.name, owner.about)
    owner.published = owner.about
    eventually(lambda: client.exists(keys.lease(owner.name)))
    client.config_set("requirepass", "changed")
    changed_at = owner.renewed_at = monotonic()
    eventually(lambda: owner.confirmed_at > changed_at + 1.5)
    check_lease(client, owner.name)
    keeper.stop()
    pool.close()
    client.close()


@pytest.mark.parametrize("ago", [120, math.inf])
def test_a_lease_that_the_housekeeper_has_not_renewed_in_time_is_renewed(
    pool: Pool, redis_client: redis.Redis, callbacks: CallbackThread, ago: float
) -> None:
    """Recovery of many jobs, or a slow reply, holds it up. This comes long before the third beat, after six seconds."""
    ownership = in_the_registry(redis_client, 300)
    owner = ownership.current
    owner.renewed_at = monotonic() - ago
    keeper = LeaseKeeper(pool, ownership, 2, callbacks=callbacks, report=lambda error, context: None)
    keeper.start()
    eventually(lambda: redis_client.exists(keys.lease(owner.name)))
    eventually(lambda: monotonic() - owner.renewed_at < 100)
    own_at = owner.renewed_at
    eventually(lambda: owner.renewed_at > own_at)
    assert owner.renewed_at - own_at < 5
    keeper.stop()


def test_the_housekeeper_renews_no_lease_that_is_gone(link: Link, redis_client: redis.Redis) -> None:
    """Others may have recovered this process. The lease keeper finds out."""
    ownership = in_the_registry(redis_client, 300)
    owner = ownership.current
    ownership.give_back_orphans(link)
    assert not redis_client.exists(keys.lease(owner.name))
    assert owner.renewed_at == -math.inf


def test_a_reply_that_took_long_confirms_no_more_than_when_it_was_asked_for(
    proxy: CuttingProxy, redis_client: redis.Redis
) -> None:
    """The lease may have run out on the way; and whoever has asked since knows better."""
    pool = Pool(RedisSettings(proxy.url))
    ownership = in_the_registry(redis_client, 1)
    owner = ownership.current
    owner.confirmed_at = 0.0
    with pool.link() as link:
        link.connect()
        proxy.delay_seconds = 0.7

        ownership.renew(link)
        assert not ownership.trusts(monotonic())

        owner.confirmed_at = later = monotonic() + 60
        ownership.renew(link)
        assert owner.confirmed_at == later
    pool.close()


def test_a_job_that_keeps_the_interpreter_lock_is_told_of(
    redis_url: str, callbacks: CallbackThread, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing in this process can renew the lease meanwhile; where the process was idle, it was frozen."""
    pool = Pool(RedisSettings(redis_url))
    ownership = Ownership("host:1:abc", ["default"], 1)
    flusher = LeaseKeeper(pool, ownership, 0.05, callbacks=callbacks, report=lambda error, context: None)
    # A function of C that is called without releasing the lock.
    snooze = ctypes.PyDLL(None).usleep
    with caplog.at_level(logging.WARNING, "sidekiq"):
        flusher.start()
        eventually(lambda: ownership.current.confirmed_at)
        snooze(600_000)
        eventually(lambda: "The lease was renewed" in caplog.text)
    flusher.stop()
    pool.close()

    assert "After 1 s without a renewal, other workers may run this worker's jobs. The process was" in caplog.text


def test_a_worker_that_is_robbed_all_the_same_goes_on(
    launch: Callable[..., Launcher], redis_client: redis.Redis
) -> None:
    """Under its next epoch, whose lease the same thread renews."""
    ran: list[int] = []
    launcher = launch(run=ran.append)
    first = entered(redis_client, launcher)
    redis_client.hdel(keys.OWNERS, first)
    redis_client.delete(keys.lease(first))
    eventually(lambda: launcher.parts.ownership.current.name != first)
    push_jobs(redis_client, [job_text(1, "run")])

    eventually(lambda: ran == [1])
    second = entered(redis_client, launcher)
    redis_client.delete(keys.lease(second))
    eventually(lambda: redis_client.exists(keys.lease(second)))
