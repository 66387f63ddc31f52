"""The proxy cuts where it is told to, and nowhere else."""

from collections.abc import Callable, Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.cutting_proxy import CuttingProxy
from tests.support.redis_server import RedisServer


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[CuttingProxy]:
    """Before the shared server."""
    with CuttingProxy(redis_server.port) as one:
        yield one


@pytest.fixture
def connect(proxy: CuttingProxy) -> Iterator[Callable[..., redis.Redis]]:
    """Clients that try nothing twice."""
    clients: list[redis.Redis] = []

    def new(timeout: float = 60) -> redis.Redis:
        clients.append(redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0), socket_timeout=timeout))
        return clients[-1]

    yield new
    for client in clients:
        client.close()


def test_it_passes_on_what_is_not_to_be_cut(connect: Callable[..., redis.Redis], redis_client: redis.Redis) -> None:
    """Also large replies."""
    redis_client.set("large", b"x" * 300_000)

    assert connect().get("large") == b"x" * 300_000


@pytest.mark.parametrize(("where", "is_executed"), [("in request", False), ("before reply", True), ("in reply", True)])
def test_it_cuts_the_chosen_request(
    proxy: CuttingProxy,
    connect: Callable[..., redis.Redis],
    redis_client: redis.Redis,
    where: str,
    is_executed: bool,
) -> None:
    """Once; whether it was executed is told by where it was cut."""
    client = connect()
    proxy.cut(b"needle", where)  # type: ignore[arg-type]

    client.set("hay", "1")
    with pytest.raises(redis.ConnectionError):
        client.set("needle", "1")
    client.set("needle2", "1")

    assert bool(redis_client.exists("needle")) is is_executed
    assert redis_client.mget("hay", "needle2") == [b"1", b"1"]
    assert proxy.cuts == {where: 1}


def test_it_cuts_after_a_reply(proxy: CuttingProxy, connect: Callable[..., redis.Redis]) -> None:
    """The reply arrives; the next command on this connection does not."""
    client = connect()
    proxy.cut(b"needle", "after reply")
    with client.client() as one:
        assert one.set("needle", "1")

        with pytest.raises(redis.ConnectionError):
            one.ping()

    assert proxy.cuts == {"after reply": 1}


def test_what_it_swallows_is_never_answered(proxy: CuttingProxy, connect: Callable[..., redis.Redis]) -> None:
    """Until it is told to be a network again; then on new connections."""
    client = connect(timeout=2)
    client.ping()
    proxy.swallow(True)
    with pytest.raises(redis.TimeoutError):
        client.ping()
    proxy.swallow(False)

    assert connect().ping()
