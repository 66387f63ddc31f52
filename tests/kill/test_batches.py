"""Batches while workers, the processes that open them, and Redis are killed."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.api import Batches, Queue
from sidekiq_py.client import sync_client
from sidekiq_py.errors import RedisError
from sidekiq_py.extensions.batches import audit, state
from sidekiq_py.extensions.batches.state import BatchStatus
from tests.support.batch_program import CALLBACKS
from tests.support.in_flight import jobs_in_flight
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, WorkerProcess

WORKERS = 2


class Night:
    """Workers and an opener on one Redis, and those who kill them."""

    def __init__(self, server: RedisServer, exits: ExitStack, folder: Path, batches: int, jobs: int, seed: int) -> None:
        self.server = server
        self.batches = batches
        self.jobs = jobs
        self.draw = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self._exits = exits
        self._next = 0
        self.said = folder / "opened"
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.opener = self._open()

    def _worker(self) -> WorkerProcess:
        arguments = ["-c", "4", "-q", "default"]
        worker = WorkerProcess("tests.support.batch_program", redis_url=self.server.url, arguments=arguments).start()
        self._exits.callback(worker.kill)
        return worker

    def _open(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.support.batch_program", self.server.url]
        words += [str(self._next), str(self.batches - self._next), str(self.jobs)]
        with self.said.open("a") as lines:
            opener = subprocess.Popen(words, stdout=lines, stderr=subprocess.DEVNULL, cwd=REPOSITORY)
        self._exits.callback(opener.wait)
        self._exits.callback(opener.kill)
        return opener

    @property
    def is_open(self) -> bool:
        """Not all batches were opened yet; one whose opener was killed is left as it is."""
        if self.opener.poll() is None:
            return True
        # What it said, and the one at which it was killed.
        numbers = [int(line.split()[0]) for line in self.said.read_text().splitlines()]
        self._next = max([self._next, *(number + 1 for number in numbers)])
        if self.opener.returncode != 0:
            self._next += 1
        if self._next >= self.batches:
            return False
        self.opener = self._open()
        return True

    def kill_one(self, *, kills_redis: bool) -> None:
        """A worker, the opener, or Redis."""
        what = self.draw.choices(["worker", "opener", "redis"], [5, 5, 1 if kills_redis else 0])[0]
        if what == "worker":
            at = self.draw.randrange(WORKERS)
            self.workers[at].kill()
            self.workers[at] = self._worker()
        elif what == "opener":
            if self.opener.poll() is not None:
                return
            self.opener.kill()
            self.opener.wait()
        else:
            self.server.restart(kill=True)
        self.kills[what] += 1


def is_idle(client: redis.Redis) -> bool:
    """Nothing is queued but callbacks, nothing is in flight, nothing waits."""
    for _ in range(3):
        if client.llen("queue:default") or client.zcard("retry") or client.zcard("schedule"):
            return False
        owners = {*client.hkeys("sidekiq_py:owners"), *client.hkeys("sidekiq_py:departed")}
        if any(jobs_in_flight(client, owner.decode()) for owner in owners):
            return False
    return True


def found_wrong(
    status: BatchStatus, client: redis.Redis, callbacks: Counter[tuple[str, str]], ended: bool
) -> list[str]:
    """What does not add up in the books of one batch."""
    key = f"sidekiq_py:batch:{status.bid}"
    succeeded = client.bitcount(f"{key}:succeeded")
    wrong = []
    if status.total - status.pending != succeeded:
        wrong.append(f"{status.total - status.pending} counted as succeeded, {succeeded} have")
    if audit.waiting_numbers(status.pool, status.bid):
        wrong.append("members wait that are nowhere")
    if status.pending != status.dead + status.failures + status.lost:
        wrong.append(f"{status.pending} pending, {status.dead} dead, {status.failures} failed, {status.lost} lost")
    if not status.complete:
        wrong.append("no complete")
    if status.jobs is not None:
        rows = {state: count for state, count in status.jobs.counts().items() if count}
        ends = {"finished": succeeded, "dead": status.dead, "error": status.failures, "lost": status.lost}
        if rows != {state: count for state, count in ends.items() if count}:
            wrong.append(f"rows say {rows}, and the books {ends}")
    if status.success != ended:
        wrong.append(f"success: {status.success}, though {ended}")
    if status.parent_bid is None:
        expected = {"complete": 1, "success": int(status.success), "death": int(status.death_at is not None)}
        for event, count in expected.items():
            if callbacks[status.bid, event] != count:
                wrong.append(f"{event} was enqueued {callbacks[status.bid, event]} times, not {count}")
    return [f"{status!r}: {what}" for what in wrong]


@pytest.fixture
def night(
    new_redis_server: Callable[..., RedisServer], request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Night, redis.Redis, int]]:
    """What is about to happen, a client, and how many kills."""
    batches, jobs, kills = request.param
    server = new_redis_server(appendonly=True)
    program.reset()
    program.configure(redis_url=server.url, sidekiq_version="7")
    with ExitStack() as exits:
        client = server.client(retry_on_error=[redis.ConnectionError], socket_timeout=30)
        exits.callback(client.close)
        yield Night(server, exits, tmp_path, batches, jobs, seed=7), client, kills
    sync_client.current().close()
    program.reset()


@pytest.mark.parametrize(
    "night",
    [(60, 100, 12), pytest.param((400, 330, 200), marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
    indirect=True,
)
def test_each_callback_is_enqueued_once_and_the_counts_add_up(
    night: tuple[Night, redis.Redis, int], report: Callable[[object], None]
) -> None:
    """Whoever is killed, and whenever; what an opener has left open is closed by hand."""
    dark, client, kills = night
    while dark.is_open or sum(dark.kills.values()) < kills:
        time.sleep(dark.draw.uniform(0.1, 0.6))
        if sum(dark.kills.values()) < kills:
            dark.kill_one(kills_redis=True)
    eventually(lambda: _is_idle_now(client), 120, every_seconds=0.2)
    left_open = list(Batches().in_state("open"))
    for status in left_open:
        sidekiq.Batch.find(status.bid).close()
    eventually(lambda: _is_idle_now(client), 60, every_seconds=0.2)

    books = {status.bid: status for status in Batches()}
    children = {status.bid: status.parent_bid for status in books.values() if status.parent_bid}
    callbacks = Counter((job.args[0], job.args[1]) for job in Queue(CALLBACKS))
    unhappy = {status.bid for status in books.values() if status.pending}
    unhappy |= {parent for child, parent in children.items() if child in unhappy and parent}
    wrong = [
        text
        for status in books.values()
        for text in found_wrong(status, client, callbacks, ended=status.bid not in unhappy)
    ]
    report(
        f"batches={len(books)} of which children={len(children)} jobs={sum(one.total for one in books.values())} "
        f"kills={dict(dark.kills)} left_open={len(left_open)} dead={sum(one.dead for one in books.values())} "
        f"callbacks={callbacks.total()}"
    )
    assert wrong == []
    assert len(books) - len(children) >= dark.batches - dark.kills["opener"] - dark.kills["redis"]
    assert list(state.bids(sync_client.current().pool, running=True)) or not unhappy


def _is_idle_now(client: redis.Redis) -> bool:
    try:
        return is_idle(client)
    except (redis.RedisError, RedisError):
        return False
