"""What an idle worker asks of Redis: bounded, however many queues it has."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kill.conftest import Fleet
from tests.support.ledger import STARTED, job_text, push_jobs
from tests.support.waiting import eventually

SECONDS = 4.0


def cpu_seconds(pid: int) -> float:
    """What a process has used of a CPU so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


@pytest.mark.parametrize(
    ("queues", "connections", "commands_per_second"), [(1, 12, 75), (50, 20, 1500)], ids=["1", "50"]
)
def test_an_idle_worker_asks_little(
    durable_fleet: Fleet,
    report: Callable[[object], None],
    queues: int,
    connections: int,
    commands_per_second: int,
) -> None:
    """
    Commands within scripts count as well: where there are more than eight queues each look asks for every length.

    Besides the connections that wait for jobs there is one for each of the background threads that ask at the same
    moment. On an idle machine these take turns; on a busy one more of them meet.
    """
    fleet = durable_fleet
    worker = fleet.start(queues=[[f"queue{number}", 0] for number in range(queues)])
    time.sleep(2.5)
    began = time.monotonic()
    before = fleet.client.info("stats")["total_commands_processed"]
    calls_before = fleet.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    cpu_before = cpu_seconds(worker.pid)

    time.sleep(SECONDS)

    commands = fleet.client.info("stats")["total_commands_processed"] - before
    seconds = time.monotonic() - began
    scripts = (fleet.client.info("commandstats")["cmdstat_evalsha"]["calls"] - calls_before) / seconds
    cpu = (cpu_seconds(worker.pid) - cpu_before) / seconds
    rate = commands / seconds
    mine = [client for client in fleet.client.client_list() if client["id"] != str(fleet.client.client_id())]
    report(
        f"{queues} queues: {len(mine)} connections, {rate:.0f} commands a second "
        f"(with those inside of {scripts:.0f} scripts), {cpu:.1%} of a CPU"
    )
    assert len(mine) <= connections
    assert rate <= commands_per_second


def test_a_job_in_the_fiftieth_queue_is_found_soon(fleet: Fleet, report: Callable[[object], None]) -> None:
    """No connection waits on it. One waits on the first, whose jobs show what the machine adds."""
    fleet.start(queues=[[f"queue{number}", 0] for number in range(50)])
    waits: dict[str, list[float]] = {"queue0": [], "queue49": []}
    for number in range(40):
        queue = ["queue0", "queue49"][number % 2]
        pushed_at = time.monotonic()
        push_jobs(fleet.client, [job_text(number, queue=queue)], queue)
        eventually(lambda number=number: fleet.ledger.count(STARTED) > number)
        waits[queue].append(fleet.ledger.runs()[-1].start - pushed_at)

    first, last = (sorted(found)[10] for found in waits.values())
    report(
        f"waits: median {last * 1000:.0f} ms, longest {max(waits['queue49']) * 1000:.0f} ms; "
        f"in the first queue: median {first * 1000:.0f} ms"
    )
    assert last < first + 0.1
