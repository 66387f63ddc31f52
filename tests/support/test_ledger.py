"""The books must be able to fail: lost, doubled and overlapping jobs are seen."""

from pathlib import Path

import pytest
import redis

from tests.support.ledger import ENDED, STARTED, Ledger, LedgerWriter, balance, job_text, push_jobs


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """An empty one."""
    return Ledger(tmp_path / "ledger")


def write(ledger: Ledger, *lines: str) -> None:
    """Lines as processes 1, 2, … wrote them: event, number, process, time in seconds."""
    for line in lines:
        event, number, pid, at = line.split()
        with ledger.path.open("a") as file:
            file.write(f"{event} {number} {pid} 7 {int(float(at) * 1e9)}\n")


def test_every_fate_is_counted(ledger: Ledger, redis_client: redis.Redis) -> None:
    """Job 0 ran, 1 ran twice, 2 was cut off and waits, 3 waits twice, 4 is lost."""
    write(ledger, "S 0 1 1", "E 0 1 2", "S 1 1 1", "E 1 1 2", "S 1 2 3", "E 1 2 4", "S 2 1 5")
    push_jobs(redis_client, [job_text(2), job_text(3)])
    redis_client.zadd("retry", {job_text(3): 1})

    books = balance(redis_client, ledger, 5)

    assert (books.once, books.again, books.waiting, books.lost, books.doubled) == (1, 1, 2, (4,), (3,))
    assert books.places == {"queue:default": 2, "retry": 1}


def test_a_job_in_flight_or_in_an_inbox_is_not_lost(ledger: Ledger, redis_client: redis.Redis) -> None:
    """It stands in a key of ours."""
    redis_client.hset("sidekiq_py:inflight:o:1", "1.0:default", job_text(0))
    redis_client.lpush("sidekiq_py:inbox:o:1:default", job_text(1))

    books = balance(redis_client, ledger, 2)

    assert (books.waiting, books.lost, books.places) == (2, (), {"inflight": 1, "inbox": 1})


def test_runs_of_one_job_at_the_same_time_are_seen(ledger: Ledger) -> None:
    """The second began before the first had ended; or before its process was sent its death."""
    write(
        ledger,
        "S 0 1 1",
        "S 0 2 2",
        "E 0 1 3",
        "E 0 2 4",
        "S 1 1 1",
        "S 1 2 2",
        "E 1 2 3",
        "S 2 1 1",
        "G 2 1 5",
        "S 2 2 4",
    )

    assert [first.number for first, _ in ledger.overlaps()] == [0, 2]
    assert [first.number for first, _ in ledger.overlaps({1: 2.5})] == [0, 1, 2]


def test_a_line_that_a_kill_cut_short_does_not_spoil_the_next(ledger: Ledger) -> None:
    """The run that it should have ended counts as cut off."""
    write(ledger, "S 0 1 1", "S 1 2 2")
    with ledger.path.open("a") as file:
        file.write("E 0 1")
    write(ledger, "E 1 2 3")

    [first, second] = ledger.runs()

    assert (first.number, first.end) == (0, None)
    assert (second.number, second.end) == (1, 3.0)


def test_what_is_written_is_read(ledger: Ledger) -> None:
    """By another file descriptor of another process, usually."""
    writer = LedgerWriter(ledger.path)
    writer.note(STARTED, 5)
    writer.note(ENDED, 5)

    [run] = ledger.runs()

    assert run.number == 5
    assert run.end is not None
    assert run.start <= run.end
    assert ledger.count(STARTED) == 1
