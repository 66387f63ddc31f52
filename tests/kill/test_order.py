"""Which job runs when: weights, strict order, paused queues, and no wait behind long jobs, with batches on."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sidekiq_py.engine.fetch.waiters import BLOCK_SECONDS
from tests.kill.conftest import Fleet
from tests.support.ledger import ENDED, STARTED, Ledger, job_text, push_jobs
from tests.support.waiting import eventually


def starts(ledger: Ledger) -> list[int]:
    """The jobs in the order in which they started."""
    found = sorted((at, number) for event, number, _, _, at in ledger.lines() if event == STARTED)
    return [number for _, number in found]


def test_weights_hold_within_one_percent(fleet: Fleet, report: Callable[[object], None]) -> None:
    """Three to one, over a hundred thousand jobs that are fetched in batches."""
    often, seldom = 80_000, 30_000
    push_jobs(fleet.client, [job_text(number, queue="often") for number in range(often)], "often")
    push_jobs(fleet.client, [job_text(often + number, queue="seldom") for number in range(seldom)], "seldom")
    fleet.start(concurrency=10, queues=[("often", 3), ("seldom", 1)])

    fleet.wait_until_done(90)

    order = starts(fleet.ledger)
    # As long as both queues certainly had jobs left.
    left = {"often": often - 1000, "seldom": seldom - 1000}
    seen: Counter[str] = Counter()
    for number in order:
        name = "often" if number < often else "seldom"
        if seen[name] == left[name]:
            break
        seen[name] += 1
    share = seen["often"] / seen.total()
    books = fleet.books(often + seldom)
    report(f"{books}; {seen.total()} starts while both had jobs: {share:.2%} from the queue of weight 3")
    assert seen.total() > 90_000
    assert share == pytest.approx(0.75, abs=0.01)
    assert (books.once, books.lost, books.doubled) == (often + seldom, (), ())


def test_strict_order_is_strict(fleet: Fleet, report: Callable[[object], None]) -> None:
    """What starts too late is at most what the other threads had in their hands."""
    high = 10_000
    push_jobs(fleet.client, [job_text(high + number, queue="low") for number in range(3000)], "low")
    push_jobs(fleet.client, [job_text(number, queue="high") for number in range(high)], "high")
    fleet.start(concurrency=5, queues=[("high", 0), ("low", 0)])

    fleet.wait_until_done()

    order = starts(fleet.ledger)
    first_low = next(place for place, number in enumerate(order) if number >= high)
    overtaken = sum(number < high for number in order[first_low:])
    books = fleet.books(high + 3000)
    report(f"{books}; high after the first low={overtaken}")
    assert overtaken < 5
    assert (books.once, books.lost, books.doubled) == (high + 3000, (), ())


def test_a_more_urgent_job_overtakes_a_full_queue(fleet: Fleet, report: Callable[[object], None]) -> None:
    """Before it goes only what was fetched already, and that is little."""
    push_jobs(fleet.client, [job_text(number, args=[0.002], queue="low") for number in range(6000)], "low")
    fleet.start(concurrency=2, queues=[("high", 0), ("low", 0)])
    pushed_at = {}
    for number in range(6000, 6050):
        eventually(lambda number=number: fleet.ledger.count(STARTED) > (number - 6000) * 20)
        push_jobs(fleet.client, [job_text(number, queue="high")], "high")
        pushed_at[number] = time.monotonic()
        eventually(lambda number=number: number in fleet.ledger.numbers(STARTED))

    began = {number: runs[0].start for number, runs in fleet.ledger.runs_by_number().items()}
    waits = [sum(at < start < began[number] for start in began.values()) for number, at in pushed_at.items()]
    report(f"jobs that started before it: {sorted(waits)[len(waits) // 2]} in the median, {max(waits)} at most")
    assert sorted(waits)[len(waits) // 2] < 30


def test_a_paused_queue_waits_also_when_a_worker_waits_on_it(fleet: Fleet, report: Callable[[object], None]) -> None:
    """The blocking move was open before the pause; the other queue goes on."""
    worker = fleet.start(queues=[("default", 0), ("low", 0)])
    push_jobs(fleet.client, [job_text(0, queue="low")], "low")
    fleet.wait_until_done(10)
    fleet.client.sadd("paused", "low")

    push_jobs(fleet.client, [job_text(number, queue="low") for number in range(1, 11)], "low")
    push_jobs(fleet.client, [job_text(number) for number in range(11, 211)])
    eventually(lambda: fleet.ledger.count(STARTED) == 201)
    # Longer than any blocking move.
    time.sleep(BLOCK_SECONDS + 0.5)
    assert fleet.client.llen("queue:low") == 10
    assert not {*range(1, 11)} & set(fleet.ledger.numbers(STARTED))
    assert not fleet.in_flight
    order = [int(raw.split(b'"args":[')[1].split(b"]")[0]) for raw in fleet.client.lrange("queue:low", 0, -1)]

    fleet.client.srem("paused", "low")
    asked_at = time.monotonic()
    eventually(lambda: fleet.ledger.count(STARTED) == 211)
    took = time.monotonic() - asked_at
    fleet.wait_until_done(10)
    books = fleet.books(211)
    report(f"{books}; ran {took * 1000:.0f} ms after the pause")
    assert order == [*range(10, 0, -1)]
    assert worker.is_running
    assert (books.once, books.lost, books.doubled) == (211, (), ())


def test_no_short_job_waits_behind_long_ones(fleet: Fleet, report: Callable[[object], None]) -> None:
    """Jobs of 1 ms and of 5 s, mixed, with a second process idle. The 99th percentile counts: machines are shared."""
    for _ in range(2):
        fleet.start(concurrency=5)
    pushed_at: dict[int, float] = {}
    stop = threading.Event()
    longest_stall = 0.0
    for number in range(400):
        if number % 40 == 5 and number < 360:
            push_jobs(fleet.client, [job_text(1000 + number, args=[5])])
        pushed_at[number] = time.monotonic()
        push_jobs(fleet.client, [job_text(number, args=[0.001])])
        pushed = time.monotonic()
        stop.wait(0.01)
        longest_stall = max(longest_stall, time.monotonic() - pushed - 0.01)

    eventually(lambda: len([n for n in fleet.ledger.numbers(STARTED) if n < 1000]) == 400)
    first_start = {run.number: run.start for run in reversed(fleet.ledger.runs())}
    waits = sorted(first_start[number] - at for number, at in pushed_at.items())
    long_ones = sum(number >= 1000 for number in fleet.ledger.numbers(STARTED))
    report(
        f"waits of 400 short jobs beside {long_ones} long ones on 10 threads: median {waits[200] * 1000:.1f} ms, "
        f"99th percentile {waits[395] * 1000:.1f} ms, longest {waits[-1] * 1000:.1f} ms; the machine stood still "
        f"for up to {longest_stall * 1000:.1f} ms"
    )
    assert long_ones == 9
    # Far below the length of a long job, and far above what a busy machine adds.
    assert waits[395] < 1.5 + longest_stall


def test_a_burst_of_short_jobs_does_not_wait_in_the_buffer_of_a_busy_worker(
    fleet: Fleet, report: Callable[[object], None], tmp_path: Path
) -> None:
    """Fetched ahead at the rate of short jobs, then all threads get long ones: the rest runs in the idle process."""
    fleet.start(concurrency=3)
    push_jobs(fleet.client, [job_text(number) for number in range(20_000)])
    eventually(lambda: fleet.ledger.count(STARTED) > 10_000)
    fleet.start(concurrency=3)
    may_end = tmp_path / "may end"
    jobs = [job_text(number, args=[str(may_end)]) for number in range(20_000, 20_003)]
    push_jobs(fleet.client, [*jobs, *[job_text(number) for number in range(20_003, 20_300)]])

    eventually(lambda: fleet.ledger.count(STARTED) == 20_300)
    assert fleet.ledger.numbers(ENDED).keys().isdisjoint(range(20_000, 20_003))
    may_end.touch()

    starts_at = {run.number: run.start for run in fleet.ledger.runs()}
    gap = max(starts_at[number] for number in range(20_003, 20_300)) - starts_at[20_002]
    report(f"297 short jobs behind 3 long ones had all started {gap * 1000:.0f} ms after the last long one")
