"""StatsD over a real socket, with the names of Sidekiq Pro."""

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.contrib.testing.worker import start_worker

import sidekiq_py as sidekiq
from sidekiq_py.contrib import statsd
from sidekiq_py.engine.upkeep.queue_trends import note_sizes
from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.telemetry import BATCH, JOB_START

WorkOff = Callable[..., None]
TAGS = "worker:Mail,queue:default"


@pytest.fixture
def agent() -> Iterator[socket.socket]:
    """The socket that receives the packets."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(30)
        yield sock
        statsd.stop()


def start(agent: socket.socket, **options: object) -> None:
    """Send to *agent*."""
    statsd.start(*agent.getsockname(), **options)


def begin(payload: dict[str, object], queue: str) -> None:
    """Start a job."""
    JOB_START.emit({"payload": payload, "queue": queue, "identity": "me:1:abc"})


def next_of_a_job(agent: socket.socket) -> str:
    """The next packet about a job, skipping those about queues, which a worker sends now and then."""
    while not (packet := agent.recv(1000).decode()).startswith("jobs."):
        pass
    return packet


def test_an_address_or_tags_that_cannot_be_meant_are_refused() -> None:
    """The letters of a text would be tags, and a lookup's error names no host."""
    with pytest.raises(OSError, match=r"StatsD's host 'localhost:8125' cannot be found: .* The port is an argument"):
        statsd.start("localhost:8125")
    with pytest.raises(ConfigError, match=r"tags is 'env:a'; give a list: \['env:a'\]"):
        statsd.start(tags="env:a")
    with pytest.raises(ConfigError, match="port is 99999; give a number from 1 to 65535"):
        statsd.start(port=99999)


def test_a_job_that_succeeds_is_counted_and_timed(agent: socket.socket, work_off: WorkOff) -> None:
    """One packet at its start, and one at its end."""
    start(agent)
    sidekiq.job(name="Mail")(lambda: None).perform_async()

    work_off(1)

    assert next_of_a_job(agent) == f"jobs.count:1|c|#{TAGS}"
    perform, success = next_of_a_job(agent).splitlines()
    assert re.fullmatch(rf"jobs\.perform:\d+\.\d+\|ms\|#{TAGS}", perform)
    assert success == f"jobs.success:1|c|#{TAGS}"


def test_a_job_that_fails_is_counted_as_that(agent: socket.socket, work_off: WorkOff) -> None:
    """It is timed all the same."""
    start(agent)
    sidekiq.job(name="Mail", retry=False)(lambda: 1 / 0).perform_async()

    work_off(1)

    next_of_a_job(agent)
    perform, failure = next_of_a_job(agent).splitlines()
    assert perform.startswith("jobs.perform:")
    assert failure == f"jobs.failure:1|c|#{TAGS}"


def test_names_and_tags_may_be_the_programs(agent: socket.socket) -> None:
    """A prefix before each name, and the program's tags after ours."""
    start(agent, namespace="shop", tags=["env:production"])

    begin({"class": "Mail"}, "default")

    assert agent.recv(1000).decode() == f"shop.jobs.count:1|c|#{TAGS},env:production"


def test_a_strangers_class_cannot_write_metrics_of_its_own(agent: socket.socket) -> None:
    """Characters that would end a tag or a line are replaced; Ruby's colons stay."""
    start(agent)

    begin({"class": "Billing::Mail\nevil:1|c", "args": []}, "a,b|c#d")

    assert agent.recv(1000).decode() == "jobs.count:1|c|#worker:Billing::Mail_evil_1_c,queue:a_b_c_d"


def test_nobody_has_to_listen(agent: socket.socket, work_off: WorkOff) -> None:
    """A packet that no one receives costs no job and is not reported."""
    start(agent)
    agent.close()
    job = sidekiq.job(name="Mail")(lambda: None)
    job.perform_bulk([[], [], []])

    work_off(3)


def test_a_forked_process_sends_by_a_socket_of_its_own(agent: socket.socket) -> None:
    """Children of `--processes` inherit the parent's handlers."""
    start(agent)
    begin({"class": "Mail"}, "default")
    [attachment] = [one for one in JOB_START.handlers if one.id == "sidekiq_py.contrib.statsd"]
    before = attachment.handler._socket  # type: ignore[attr-defined]

    pid = os.fork()
    if pid == 0:
        begin({"class": "Child"}, "default")
        os._exit(0 if attachment.handler._socket is not before else 1)  # type: ignore[attr-defined]

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [agent.recv(1000).decode() for _ in range(2)][1] == "jobs.count:1|c|#worker:Child,queue:default"


def test_threads_whose_first_jobs_start_together_share_a_socket(
    agent: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """Each closed the socket that another one was about to use, and the log of a starting worker showed errors."""
    together = threading.Barrier(8)

    def run() -> None:
        together.wait()
        begin({"class": "Mail"}, "default")

    for _ in range(20):
        start(agent)
        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert not caplog.records


def test_a_second_start_sends_elsewhere(agent: socket.socket) -> None:
    """Nothing is counted twice."""
    start(agent)
    start(agent, namespace="new")

    begin({"class": "Mail"}, "default")

    assert agent.recv(1000).decode().startswith("new.jobs.count")
    agent.setblocking(False)
    with pytest.raises(BlockingIOError):
        agent.recv(1000)


def test_a_name_of_a_megabyte_fits_into_a_packet(agent: socket.socket) -> None:
    """It is cut, because the kernel would refuse the packet."""
    start(agent)

    begin({"class": "M" * 1_000_000}, "q" * 1_000_000)

    assert agent.recv(1000).decode() == f"jobs.count:1|c|#worker:{'M' * 200},queue:{'q' * 200}"


def test_sizes_of_queues_are_gauges(agent: socket.socket, redis_url: str, redis_client: "redis.Redis[bytes]") -> None:
    """For all queues, by the worker that records them once a minute."""
    start(agent, tags=["env:production"])
    redis_client.sadd("queues", "low")
    redis_client.lpush("queue:low", '{"class":"Mail","enqueued_at":1700000000.5}')
    pool = Pool(RedisSettings(redis_url))

    note_sizes(pool, 1_700_000_010.5)
    pool.close()

    tags = "queue:low,env:production"
    assert agent.recv(1000).decode() == f"queue.size:1|g|#{tags}\nqueue.latency:10.000|g|#{tags}"


def test_batches_are_counted_by_what_becomes_of_them(agent: socket.socket) -> None:
    """Sidekiq Pro has no metric for deaths."""
    start(agent)
    for event in ("created", "death", "complete", "success"):
        BATCH.emit({"bid": "abc", "event": event})

    received = [agent.recv(1000).decode() for _ in range(3)]

    assert received == ["batches.created:1|c", "batches.complete:1|c", "batches.success:1|c"]


def test_a_task_that_has_expired_is_counted(agent: socket.socket, redis_url: str) -> None:
    """It does not run."""
    start(agent)
    app = Celery("shop", broker=redis_url, backend=redis_url, set_as_current=False)
    app.conf.worker_hijack_root_logger = False
    app.task(name="Mail")(lambda: None)
    with start_worker(app, loglevel=0, perform_ping_check=False):
        app.send_task("Mail", expires=-5)

        packets = [agent.recv(1000).decode() for _ in range(2)]

    assert [packet.split("|")[0] for packet in packets] == ["jobs.count:1", "jobs.expired:1"]
    assert packets[1] == "jobs.expired:1|c|#worker:Mail,queue:celery"
