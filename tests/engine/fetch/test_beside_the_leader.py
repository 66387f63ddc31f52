"""While jobs arrive one at a time, the processor whose job has just ended waits beside the leader."""

import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.flusher import RETRY_SECONDS
from sidekiq_py.engine.fetch.leader import _received
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.fetch.waiters import BLOCK_SECONDS
from sidekiq_py.engine.ownership.owner import Ownership, UnitOfWork
from sidekiq_py.redis_access.connection.pool import Pool
from tests.engine.fetch.in_flight_jobs import push
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually

SOON = BLOCK_SECONDS / 2


class Processors:
    """Threads that take jobs. A job ends when the test says so."""

    def __init__(self, fetcher: ReliableFetcher, count: int) -> None:
        self.fetcher = fetcher
        self.started: list[bytes] = []
        self._may_end: dict[bytes, threading.Event] = {}
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while (unit := self.fetcher.take()) is not None:
            self._finish(unit)

    def _finish(self, unit: UnitOfWork) -> None:
        self.started.append(unit.raw)
        self._may_end.setdefault(unit.raw, threading.Event()).wait()
        self.fetcher.acknowledge(unit, 0.001)

    def end(self, *jobs: str) -> None:
        """Let these jobs end, now or as soon as they have started."""
        for job in jobs:
            self._may_end.setdefault(job.encode(), threading.Event()).set()

    def have_started(self, *jobs: str) -> bool:
        """Wait until exactly these jobs have started, for less time than a move stays open."""
        return eventually(lambda: sorted(self.started) == sorted(job.encode() for job in jobs), SOON)

    def stop(self) -> None:
        """End all jobs and all threads."""
        for may_end in list(self._may_end.values()):
            may_end.set()
        self.fetcher.quiet()
        for thread in self._threads:
            thread.join()


Start = Callable[..., Processors]


@pytest.fixture
def start(pool: Pool) -> Iterator[Start]:
    """Starts a fetcher with processors. Its flusher does not run, so nothing is sent or put back in the background."""
    made: list[Processors] = []

    def start(count: int, *queues: str) -> Processors:
        names = queues or ("default",)
        capsule = CapsuleConfig(queues=tuple(QueueConfig(name) for name in names))
        fetcher = ReliableFetcher(
            capsule,
            Config(),
            pool,
            Ownership("me:1:abc", names, 30),
            report=lambda error, context: None,
            downtime=Downtime(),
        )
        made.append(Processors(fetcher, count))
        return made[-1]

    yield start
    for processors in made:
        processors.stop()
        processors.fetcher.close()


def job(name: str) -> str:
    """The bytes of a job with this id."""
    return f'{{"jid":"{name}"}}'


def moves(client: redis.Redis) -> int:
    """The number of open blocking moves."""
    return int(client.info("clients")["blocked_clients"])


def run_one(processors: Processors, client: redis.Redis, name: str, queue: str = "default") -> None:
    """Have one job arrive, start and end, and wait until a processor waits beside the leader."""
    start_one(processors, client, name, queue)
    processors.end(job(name))
    eventually(lambda: processors.fetcher._leader._is_accompanied)
    eventually(lambda: not jobs_in_flight(client) and not processors.fetcher._waiters.any_unwatched)


def start_one(processors: Processors, client: redis.Redis, name: str, queue: str = "default") -> None:
    """Have one job arrive and start, and wait until its processor would wait beside the leader if the job ended."""
    eventually(lambda: moves(client) >= 1)
    push(client, job(name), queue=queue)
    eventually(lambda: job(name).encode() in processors.started, SOON)
    # Otherwise the next leader may take the acknowledgement along.
    fetcher = processors.fetcher
    eventually(lambda: fetcher._leader._is_led and fetcher.awaits(queue) and not fetcher._waiters.any_unwatched)
    # It would be true if the job came within a millisecond, and then a fetch comes before the next wait.
    fetcher._leader._has_backlog = False


def test_two_processors_wait_with_a_move_each(start: Start, redis_client: redis.Redis) -> None:
    """The second move carries the acknowledgement of the job that has ended."""
    processors = start(3)

    run_one(processors, redis_client, "a")

    eventually(lambda: moves(redis_client) == 2)
    assert processors.fetcher._leader.idle == 3


def test_neither_wakes_another_one_for_the_job_it_gets(
    start: Start, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one still waits."""
    processors = start(3)
    run_one(processors, redis_client, "a")
    eventually(lambda: moves(redis_client) == 2)
    woken: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr("sidekiq_py.engine.fetch.idle_workers.IdleWorkers.wake", lambda _, count: woken.append(count))
        patch.setattr("sidekiq_py.engine.fetch.leader._send", lambda pipe, message: woken.append(pipe[1]))
        push(redis_client, job("b"))
        assert processors.have_started(job("a"), job("b"))

    assert not woken
    assert moves(redis_client) == 1


def test_a_third_job_finds_a_processor_while_both_run_theirs(start: Start, redis_client: redis.Redis) -> None:
    """The second one that leaves wakes one that leads."""
    processors = start(3)
    run_one(processors, redis_client, "a")

    for name in "bcd":
        push(redis_client, job(name))

    assert processors.have_started(*map(job, "abcd"))


def test_jobs_that_arrive_together_all_start(start: Start, redis_client: redis.Redis) -> None:
    """One read may bring the leader two jobs: the second is for the processor beside it."""
    processors = start(2)
    run_one(processors, redis_client, "a")

    push(redis_client, job("b"), job("c"))

    assert processors.have_started(*map(job, "abc"))


@pytest.mark.parametrize("turns", range(4))
def test_all_queues_are_waited_on_whoever_gets_the_next_job(
    start: Start, redis_client: redis.Redis, turns: int
) -> None:
    """A leader that leaves has open moves on other queues, which the one beside it has to read from then on."""
    processors = start(2, "default", "high", "low")
    eventually(lambda: moves(redis_client) == 3)
    names = [f"default{turn}" for turn in range(turns + 1)]
    for name in names:
        run_one(processors, redis_client, name)

    push(redis_client, job("x"))
    processors.have_started(*map(job, names), job("x"))
    push(redis_client, job("y"), queue="low")

    assert processors.have_started(*map(job, names), job("x"), job("y"))


def test_open_moves_are_read_after_a_resize_lets_the_leader_go_as_a_job_arrives(
    start: Start, redis_client: redis.Redis
) -> None:
    """The processor that was woken to lead gets the job. What arrives on other queues must not wait until it ends."""
    processors = start(2, "default", "low")
    fetcher = processors.fetcher
    fetcher.start()
    eventually(lambda: moves(redis_client) == 2 and fetcher._leader.idle == 2)

    # As by `release`, whose own call to wake the other one comes second.
    fetcher._leader.leaving = 1
    push(redis_client, job("a"))
    assert processors.have_started(job("a"))
    push(redis_client, job("b"), queue="low")

    eventually(lambda: redis_client.llen("queue:low") == 1, SOON)


def test_both_go_when_the_fetcher_is_told_to_stop(start: Start, redis_client: redis.Redis) -> None:
    """Neither waits for the end of its move."""
    processors = start(2)
    run_one(processors, redis_client, "a")
    eventually(lambda: moves(redis_client) == 2)

    processors.fetcher.quiet()

    assert not processors.fetcher._leader._is_led
    assert not processors.fetcher._leader._is_accompanied
    eventually(lambda: not any(thread.is_alive() for thread in processors._threads), SOON)
    assert processors.fetcher._leader.has_untended_moves


def test_as_many_go_as_are_released(start: Start, redis_client: redis.Redis) -> None:
    """Also if all that are idle wait on connections."""
    processors = start(2)
    run_one(processors, redis_client, "a")

    processors.fetcher.release(1)

    eventually(lambda: sum(thread.is_alive() for thread in processors._threads) == 1, SOON)
    push(redis_client, job("b"))
    assert processors.have_started(job("a"), job("b"))


def test_a_queue_that_begins_to_be_served_is_waited_on(start: Start, redis_client: redis.Redis) -> None:
    """Both look up; one of them opens the move."""
    processors = start(2)
    run_one(processors, redis_client, "a")

    processors.fetcher.serve({"default": 0, "low": 0})
    push(redis_client, job("b"), queue="low")

    assert processors.have_started(job("a"), job("b"))


def test_they_survive_a_restart_of_redis(start: Start, redis_client: redis.Redis) -> None:
    """Their connections break, and jobs that come later are waited for as before."""
    processors = start(2)
    run_one(processors, redis_client, "a")
    eventually(lambda: moves(redis_client) == 2)

    redis_client.client_kill_filter(_type="normal", skipme=True)
    push(redis_client, job("b"))

    eventually(lambda: job("b").encode() in processors.started)
    processors.end(job("b"))
    push(redis_client, job("c"))
    eventually(lambda: job("c").encode() in processors.started)


def test_a_full_redis_is_not_reported(start: Start, redis_client: redis.Redis) -> None:
    """It refuses moves but carries out fetches, so this is no outage."""
    processors = start(2)
    reported: list[BaseException] = []
    processors.fetcher._redis_errors.report = lambda error, context: reported.append(error)
    start_one(processors, redis_client, "a")

    redis_client.config_set("maxmemory", 1)
    try:
        processors.end(job("a"))
        eventually(lambda: not jobs_in_flight(redis_client))
        eventually(lambda: not processors.fetcher._leader._is_accompanied)
    finally:
        redis_client.config_set("maxmemory", 0)

    assert not reported


def test_a_full_redis_is_asked_less_and_less_often(
    start: Start, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down to twice a second: twenty requests a second of each process add up."""
    pauses: list[float] = []
    quiet = start(1).fetcher._leader._quiet
    wait = quiet.wait
    monkeypatch.setattr(quiet, "wait", lambda seconds: pauses.append(seconds) or wait(seconds))
    eventually(lambda: moves(redis_client))

    redis_client.config_set("maxmemory", 1)
    try:
        eventually(lambda: pauses[-1:] == [RETRY_SECONDS])
    finally:
        redis_client.config_set("maxmemory", 0)

    assert pauses[0] <= 0.05
    assert pauses == sorted(pauses)


def test_a_call_to_the_leader_does_not_concern_one_that_comes_later(start: Start, redis_client: redis.Redis) -> None:
    """It would leave at once, without waiting for a job. A full event loop calls the leader for each job that ends."""
    processors = start(2)
    eventually(lambda: processors.fetcher.awaits("default"))

    processors.fetcher.wake()

    assert not _received(processors.fetcher._leader._companion_pipe)


def test_one_that_waits_alone_hears_of_a_late_arrival(
    start: Start, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the flusher reads a job, a leader may come, be joined, and leave with a job of its own."""
    fetcher = start(0).fetcher
    leader, keep = fetcher._leader, fetcher._buffer.keep
    with fetcher._buffer.fetching:
        fetcher._buffer.refill(1)
    leader._open_moves()
    push(redis_client, job("a"))

    def kept(units: list[UnitOfWork]) -> int:
        leader._is_accompanied = True
        return keep(units)

    monkeypatch.setattr(fetcher._buffer, "keep", kept)
    eventually(lambda: leader.read_late_arrivals() or fetcher.reserved)
    leader._is_accompanied = False

    assert _received(leader._companion_pipe)


def test_no_processor_spins_whose_acknowledgement_stays(
    start: Start, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor waits beside the leader once for each job that ends, whatever becomes of its acknowledgement."""
    processors = start(2)
    run_one(processors, redis_client, "a")
    times: list[None] = []
    accompany = processors.fetcher._leader._accompany

    def counted(before_waiting: Callable[[], None] | None) -> None:
        times.append(None)
        accompany(before_waiting)

    monkeypatch.setattr(processors.fetcher._leader, "_accompany", counted)
    monkeypatch.setattr(processors.fetcher._waiters, "open", lambda paused: None)
    monkeypatch.setattr(processors.fetcher._settler, "flush", lambda: None)
    push(redis_client, job("b"), job("c"))
    processors.have_started(*map(job, "abc"))
    processors.end(job("b"), job("c"))

    eventually(lambda: processors.fetcher._leader.idle == 2)
    assert len(times) <= 2
