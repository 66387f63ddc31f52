"""A failover that sentinels make: a worker goes to the new primary by itself."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.kill.conftest import Fleet
from tests.support.child_process import tied_to_this_process
from tests.support.ledger import STARTED, Ledger, job_text, push_jobs
from tests.support.redis_server import RedisServer, find_server_program
from tests.support.waiting import eventually


@pytest.fixture
def primary(new_redis_server: Callable[..., RedisServer]) -> RedisServer:
    """The server that takes writes at first."""
    return new_redis_server(config={"shutdown-timeout": "0"})


@pytest.fixture
def replica(new_redis_server: Callable[..., RedisServer], primary: RedisServer) -> RedisServer:
    """The one that takes them later."""
    server = new_redis_server(config={"shutdown-timeout": "0", "replicaof": f"127.0.0.1 {primary.port}"})
    client = server.client()
    eventually(lambda: client.info("replication")["master_link_status"] == "up", 10)
    client.close()
    return server


@pytest.fixture
def sentinel(
    primary: RedisServer, replica: RedisServer, new_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> Iterator[redis.Redis]:
    """A sentinel that knows both."""
    # Another server finds a free port, and leaves it.
    holder = new_redis_server()
    holder.stop()
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"port {holder.port}\n"
        f"sentinel monitor jobs 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds jobs 1000\n"
        "sentinel failover-timeout jobs 5000\n"
    )
    program = find_server_program()
    assert program is not None
    process = subprocess.Popen(
        tied_to_this_process([program, str(configuration), "--sentinel"]), stdout=subprocess.DEVNULL, cwd=tmp_path
    )
    client = redis.Redis(port=holder.port, decode_responses=True)

    def knows_both() -> bool:
        try:
            return len(client.sentinel_slaves("jobs")) == 1
        except redis.RedisError:
            return False

    eventually(knows_both, 20)
    yield client
    client.close()
    process.terminate()
    process.wait()


def test_a_worker_follows_a_failover(
    primary: RedisServer,
    replica: RedisServer,
    sentinel: redis.Redis,
    tmp_path: Path,
    report: Callable[[object], None],
) -> None:
    """Ordered while the worker is idle, so that Redis itself loses nothing; its owner and lease have gone over, too."""
    with ExitStack() as exits:
        # Whoever becomes the primary closes all connections.
        patience = Retry(ConstantBackoff(0.05), 100)
        before = primary.client()
        after = replica.client(retry=patience, retry_on_error=[redis.ConnectionError])
        exits.callback(before.close)
        exits.callback(after.close)
        port = sentinel.connection_pool.connection_kwargs["port"]
        fleet = Fleet(primary.url, before, Ledger(tmp_path / "ledger"), exits)
        fleet.worker_url = f"redis+sentinel://127.0.0.1:{port}/jobs/0"
        worker = fleet.start()
        push_jobs(before, [job_text(number) for number in range(100)])
        fleet.wait_until_done(10)

        sentinel.sentinel_failover("jobs")
        eventually(lambda: after.info("replication")["role"] == "master", 20)
        failed_over_at = time.monotonic()
        push_jobs(after, [job_text(number) for number in range(100, 200)])

        eventually(lambda: fleet.ledger.count(STARTED) == 200, 20)
        took = time.monotonic() - failed_over_at
        fleet.client = after
        fleet.wait_until_done(10)
        books = fleet.books(200)
        report(f"{books}; all had run {took:.1f} s after the failover")
        assert worker.is_running
        assert (books.once, books.lost, books.doubled) == (200, (), ())
