"""Redis is restarted, forgets its scripts, is full, turns into a replica or refuses a password, while workers work."""

import random
import re
import time
from collections import Counter
from collections.abc import Callable

import pytest
import redis

from tests.kill.conftest import Fleet
from tests.support.ledger import STARTED, job_text, push_jobs
from tests.support.process_states import children_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

UNSETTLED, ANNOUNCED = "could not settle a job", "death handlers were called"
"""How the lines begin of which there is one for each job that has failed: it is still held, or is in `dead`."""
THREADS = 5
"""Of each process. Once its job is announced, a thread can settle no other."""


def fails(number: int) -> bool:
    """Whether it is one of the jobs that fail."""
    return number % 10 == 3


def mixed(jobs: int, seconds: float) -> list[str]:
    """One in ten fails at once and goes to `dead`."""
    return [job_text(n, "boom", retry=0) if fails(n) else job_text(n, args=[seconds]) for n in range(jobs)]


@pytest.mark.parametrize("jobs", [6000, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_nothing_is_lost_or_doubled_when_redis_is_restarted(
    durable_fleet: Fleet, durable_server: RedisServer, report: Callable[[object], None], how: str, jobs: int
) -> None:
    """Twice, while three workers are busy; it keeps every write on disk before it answers."""
    fleet = durable_fleet
    push_jobs(fleet.client, mixed(jobs, 0.001))
    workers = [fleet.start() for _ in range(3)]
    for quota in (jobs // 5, jobs // 2):
        eventually(lambda quota=quota: fleet.ledger.count(STARTED) > quota)
        durable_server.restart(kill=how == "killed")

    fleet.wait_until_done(60)

    books = fleet.books(jobs)
    report(books)
    assert all(worker.is_running for worker in workers)
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == jobs)
    assert int(fleet.client.get("stat:failed") or 0) == fleet.client.zcard("dead") == jobs // 10


def test_nothing_is_lost_when_redis_and_workers_are_killed(
    durable_fleet: Fleet, durable_server: RedisServer, report: Callable[[object], None]
) -> None:
    """In any order; what runs twice ran before in a process that was killed."""
    fleet, jobs, draw = durable_fleet, 6000, random.Random(99)
    push_jobs(fleet.client, mixed(jobs, 0.01))
    workers = [fleet.start() for _ in range(3)]
    for quota in (800, 1600, 2400, 3200):
        eventually(lambda quota=quota: fleet.ledger.count(STARTED) > quota)
        victim = workers.pop(draw.randrange(3))
        fleet.kill(victim)
        durable_server.restart(kill=True)
        workers.append(fleet.start(wait=False))

    fleet.wait_until_done(60)

    books = fleet.books(jobs)
    report(f"{books}; kills={len(fleet.deaths)}")
    assert (books.lost, books.doubled) == ((), ())
    assert books.once + books.again == jobs
    firsts = [run for runs in fleet.ledger.runs_by_number().values() for run in runs[:-1]]
    assert len(firsts) <= fleet.in_flight_at_deaths
    assert {run.pid for run in firsts} <= fleet.deaths.keys()
    assert fleet.ledger.overlaps(fleet.deaths) == []


def test_a_server_that_forgets_its_scripts_costs_nothing(fleet: Fleet, report: Callable[[object], None]) -> None:
    """Every few milliseconds, in a load that uses all of them."""
    jobs = 4000
    fleet.start(queues=[("default", 0), ("low", 0)])
    fleet.start(queues=[("default", 0), ("low", 0)])
    flushes = 0
    for first in range(0, jobs, 40):
        texts = [job_text(n, "boom", retry=0) if n % 10 == 3 else job_text(n) for n in range(first, first + 20)]
        push_jobs(fleet.client, texts)
        push_jobs(fleet.client, [job_text(n) for n in range(first + 20, first + 30)], "low")
        fleet.client.zadd("schedule", {job_text(n): time.time() - 1 for n in range(first + 30, first + 40)})
        fleet.client.script_flush()
        flushes += 1
        time.sleep(0.005)

    fleet.wait_until_done()

    books = fleet.books(jobs)
    report(f"{books}; flushes={flushes}")
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == jobs)


def test_a_lost_registry_costs_no_job(fleet: Fleet, report: Callable[[object], None]) -> None:
    """Workers enter it again, under the names under which they hold their jobs."""
    jobs = 4000
    push_jobs(fleet.client, mixed(jobs, 0.01))
    fleet.start()
    fleet.start()
    owners = eventually(lambda: len(found := fleet.client.hkeys("sidekiq_py:owners")) == 2 and set(found))
    for quota in (500, 1500, 2500):
        eventually(lambda quota=quota: fleet.ledger.count(STARTED) > quota)
        fleet.client.delete("sidekiq_py:owners")

    fleet.wait_until_done(30)

    books = fleet.books(jobs)
    report(books)
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    # At the latest with the next renewal of its lease.
    eventually(lambda: set(fleet.client.hkeys("sidekiq_py:owners")) == owners)


def test_workers_empty_a_redis_that_is_full(durable_fleet: Fleet, report: Callable[[object], None]) -> None:
    """Nothing more can be pushed; what is there must still run, or it would stay full."""
    fleet, jobs = durable_fleet, 3000
    push_jobs(fleet.client, mixed(jobs, 0.0))
    fleet.client.config_set("maxmemory", 1)
    with pytest.raises(redis.OutOfMemoryError):
        push_jobs(fleet.client, [job_text(jobs)])

    workers = [fleet.start(wait=False, lease_seconds=3) for _ in range(2)]
    fleet.wait_until_done()
    # Past the leases: nobody may be taken for dead because it could not say that it lives.
    time.sleep(5)
    fleet.client.config_set("maxmemory", 0)

    books = fleet.books(jobs)
    told = [line for worker in workers for line in worker.log.splitlines() if "Redis" in line]
    report(f"{books}; lines of log about Redis={len(told)}")
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    assert fleet.client.zcard("dead") == jobs // 10
    assert not any("is dead" in worker.log for worker in workers)
    assert len(told) < 30
    push_jobs(fleet.client, [job_text(jobs)])
    fleet.wait_until_done(10)


def test_workers_follow_a_server_that_refuses_writes_for_a_while(
    durable_fleet: Fleet, report: Callable[[object], None]
) -> None:
    """Too few replicas, then enough again: nothing is lost, nothing is done twice, and it is told once."""
    fleet, jobs = durable_fleet, 6000
    push_jobs(fleet.client, mixed(jobs, 0.001))
    worker = fleet.start()
    for quota in (1000, 2500):
        eventually(lambda quota=quota: fleet.ledger.count(STARTED) > quota)
        fleet.client.config_set("min-replicas-to-write", 1)
        time.sleep(1.2)
        fleet.client.config_set("min-replicas-to-write", 0)

    fleet.wait_until_done()

    books = fleet.books(jobs)
    told = [line for line in worker.log.splitlines() if "Redis" in line]
    report(f"{books}; lines of log about Redis={len(told)}")
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == jobs)
    # Each outage once or twice by each part.
    assert len(told) < 60


def test_workers_wait_out_a_demotion(
    durable_fleet: Fleet,
    durable_server: RedisServer,
    new_redis_server: Callable[..., RedisServer],
    report: Callable[[object], None],
) -> None:
    """The server is made a replica and a primary again, and closes no connection."""
    fleet, jobs = durable_fleet, 4000
    other = new_redis_server()
    push_jobs(fleet.client, mixed(jobs, 0.001))
    fleet.start()
    eventually(lambda: fleet.ledger.count(STARTED) > 1000)

    # It never comes to a synchronisation, which would empty it.
    other.pause()
    fleet.client.replicaof("127.0.0.1", other.port)
    time.sleep(1.5)
    fleet.client.replicaof("NO", "ONE")
    other.resume()

    fleet.wait_until_done()
    books = fleet.books(jobs)
    report(books)
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    assert durable_server.is_running


@pytest.mark.parametrize("processes", [None, 2])
def test_workers_wait_until_their_password_is_accepted_again(
    durable_fleet: Fleet, durable_server: RedisServer, report: Callable[[object], None], processes: int | None
) -> None:
    """It is changed too early: one worker has the new one, and runs what the other may not fetch."""
    fleet, jobs, user = durable_fleet, 6000, ("ACL", "SETUSER", "worker")
    fleet.client.execute_command(*user, "on", ">old", ">new", "~*", "&*", "+@all")
    push_jobs(fleet.client, mixed(jobs, 0.01))
    both = [
        fleet.start(
            redis_url=f"redis://worker:{password}@127.0.0.1:{durable_server.port}/0",
            processes=processes,
            concurrency=THREADS,
        )
        for password in ("old", "new")
    ]
    eventually(lambda: fleet.ledger.count(STARTED) > 500)

    # At once: a part that connects in between would be refused, work on the connection that it has, and be refused.
    with fleet.client.pipeline(transaction=True) as change:
        change.execute_command(*user, "<old")
        change.execute_command("CLIENT", "KILL", "USER", "worker")
        change.execute()
    eventually(lambda: "NOAUTH" in both[0].log)
    ran = fleet.ledger.count(STARTED)
    eventually(lambda: fleet.ledger.count(STARTED) > ran + 100)
    held = {pid: fleet.numbers_in_flight_of(pid) for pid in children_of(both[0].pid) or [both[0].pid]}
    fleet.client.execute_command(*user, ">old")
    # Looked at afterwards: a thread that was free may have started another one of them just before.
    started = {(number, pid) for event, number, pid, *_ in fleet.ledger.lines() if event == STARTED and fails(number)}
    unwritten = {pid: sum((number, pid) in started for number in numbers) for pid, numbers in held.items()}
    fleet.wait_until_done()

    books = fleet.books(jobs)
    lines = re.findall(r"^\S+ \S+ (\d+) \S+ \w+ (.*NOAUTH.*)", both[0].log, re.MULTILINE)
    told = Counter((int(pid), text) for pid, text in lines)
    report(f"{books}; lines of log={told.total()}")
    assert (books.once, books.again, books.lost, books.doubled) == (jobs, 0, (), ())
    assert all(worker.is_running for worker in both)
    # Once by each process, or about each job that it could not write to `dead`.
    for (pid, text), times in told.items():
        most = unwritten[pid] if text.startswith(UNSETTLED) else THREADS if text.startswith(ANNOUNCED) else 1
        assert times <= most, (text, unwritten)
