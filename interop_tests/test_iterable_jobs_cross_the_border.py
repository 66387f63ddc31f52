"""An iterable job that one language began continues in the other where it left off; either may cancel it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import GATE, LEDGER, lines, make_due, open_gate
from interop_tests.support.python_jobs import WalkJob
from interop_tests.support.ruby import RubyRelease
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

pytestmark = [pytest.mark.usefixtures("python_client"), pytest.mark.releases(since="7.3")]

LEAVE_AT = "fixture:leave_at"
HANG_AT = "fixture:hang_at"
FAIL_AT = "fixture:fail_at"
COUNT = 8
# What stands in Redis of a job that left off before number 5.
CURSORS = {"index": b"5", "text": '"n°5"'.encode(), "pair": b'[5,"of",{"page":2.5}]'}

Starts = dict[str, Callable[..., SidekiqProcess]]


@pytest.fixture
def start(start_ruby: StartRuby, start_python: StartPython) -> Starts:
    """
    Starts a worker of a language, with as many threads as there are jobs.

    A Ruby thread without a job, still in BRPOP, could take and lose what a stopping neighbour gives back.
    """
    return {
        "ruby": lambda threads, timeout=10: start_ruby(concurrency=threads, timeout_seconds=timeout),
        "python": lambda threads, timeout=10: start_python("-c", str(threads), "-t", str(timeout)),
    }


@pytest.mark.parametrize("turns", [("ruby", "python", "ruby", "python"), ("python", "ruby", "python")], ids="-".join)
def test_jobs_go_to_and_fro_and_see_each_item_once(
    redis_client: redis.Redis, start: Starts, turns: tuple[str, ...]
) -> None:
    """Stopped between two items again and again, with numbers, strings and arrays as cursors."""
    last = [2, 3, 4][-len(turns) + 1 :]
    jids = {kind: WalkJob.perform_async(kind, COUNT, LEDGER, GATE) for kind in CURSORS}

    for language, leave_at in zip(turns, last, strict=False):
        redis_client.set(LEAVE_AT, leave_at)
        worker = start[language](len(CURSORS))
        eventually(partial(have_all_seen, redis_client, leave_at))
        worker.stop()
    states = {kind: redis_client.hmget(f"it-{jid}", "c", "ex", "cancelled") for kind, jid in jids.items()}
    redis_client.delete(LEAVE_AT)
    start[turns[-1]](len(CURSORS))
    eventually(partial(have_all_seen, redis_client, "complete"))

    assert states == {kind: [cursor, b"%d" % len(last), None] for kind, cursor in CURSORS.items()}
    expected = legs(turns, [*last, COUNT - 1])
    for kind, jid in jids.items():
        assert seen(redis_client, kind) == expected
        assert {line["jid"] for line in lines(redis_client) if line["entry"][0] == kind} == {jid}
    eventually(lambda: not redis_client.exists(*(f"it-{jid}" for jid in jids.values()), "queue:default"))
    assert (redis_client.zcard("retry"), redis_client.zcard("dead")) == (0, 0)


def legs(turns: tuple[str, ...], last: list[int]) -> list[tuple[str, Any]]:
    """What a job notes that leaves off behind each of the *last* numbers."""
    notes: list[tuple[str, Any]] = []
    first = 0
    for language, end in zip(turns, last, strict=True):
        notes += [(language, note) for note in ("resume" if first else "start", *range(first, end + 1), "stop")]
        first = end + 1
    return [*notes, (turns[-1], "complete")]


@pytest.mark.parametrize("first", ["ruby", "python"])
def test_an_item_that_a_deadline_cut_off_is_begun_again_in_the_other_language(
    redis_client: redis.Redis, ruby_release: RubyRelease, start: Starts, first: str
) -> None:
    """No item is skipped; if nothing could be saved, as in Sidekiq 7.3, all items since the last save are repeated."""
    second = "python" if first == "ruby" else "ruby"
    redis_client.set(HANG_AT, 2)
    jid = WalkJob.perform_async("text", COUNT, LEDGER, GATE)

    worker = start[first](1, timeout=1)
    eventually(lambda: (first, 2) in seen(redis_client, "text"))
    worker.stop()
    open_gate(redis_client)
    # Both languages give a thread three seconds more to save, which a busy machine may not have.
    has_saved = redis_client.exists(f"it-{jid}") == 1
    start[second](1)
    eventually(partial(have_seen, redis_client, "complete", kinds=["text"]))

    assert seen(redis_client, "text") == gone_on_from_two(first, second, has_saved=has_saved)
    assert not (has_saved and first == "ruby" and ruby_release.numbers < (8,))


@pytest.mark.parametrize("first", ["ruby", "python"])
def test_an_item_that_failed_is_tried_again_in_the_other_language(
    redis_client: redis.Redis, ruby_release: RubyRelease, ruby: RunRuby, start: Starts, first: str
) -> None:
    """
    The retry continues with that item; Sidekiq 7.3 starts over. Ruby 8.1 shows the progress of jobs in both
    languages.
    """
    second = "python" if first == "ruby" else "ruby"
    redis_client.set(FAIL_AT, 2)
    jid = WalkJob.perform_async("text", COUNT, LEDGER, GATE)

    with start[first](1):
        eventually(lambda: redis_client.zcard("retry") == 1)
    if ruby_release.numbers >= (8, 1):
        shown = ruby(
            "it = Sidekiq::IterableJobQuery.new([jid])[jid]; [it.executions, it.cursor, it.cancelled]", jid=jid
        )
        assert shown == [1, "n°2", None]
    redis_client.delete(FAIL_AT)
    make_due(redis_client, "retry")
    start[second](1)
    eventually(partial(have_seen, redis_client, "complete", kinds=["text"]))

    has_saved = first == "python" or ruby_release.numbers >= (8,)
    assert seen(redis_client, "text") == gone_on_from_two(first, second, has_saved=has_saved)


def gone_on_from_two(first: str, second: str, *, has_saved: bool) -> list[tuple[str, Any]]:
    """What a job notes whose first run was broken off in number 2."""
    again = ["resume", *range(2, COUNT)] if has_saved else ["start", *range(COUNT)]
    return [
        *((first, note) for note in ("start", 0, 1, 2)),
        *((second, note) for note in (*again, "stop", "complete")),
    ]


@pytest.mark.releases(since="7.3.3")
def test_ruby_cancels_jobs_of_python(redis_client: redis.Redis, ruby: RunRuby, start: Starts) -> None:
    """A waiting job and a running one, by the `cancel!` of Ruby's client."""
    waiting = WalkJob.perform_async("index", COUNT, LEDGER, GATE)
    running = WalkJob.perform_async("text", COUNT, LEDGER, GATE)
    redis_client.set(LEAVE_AT, 1)
    ruby("Sidekiq::Client.new.cancel!(jid)", jid=waiting)
    worker = start["python"](2)
    eventually(lambda: ("python", 1) in seen(redis_client, "text"))

    ruby("Sidekiq::Client.new.cancel!(jid)", jid=running)
    eventually(lambda: ("python", "complete") in seen(redis_client, "index"))
    worker.stop()

    assert seen(redis_client, "index") == [("python", note) for note in ("start", "cancel", "stop", "complete")]
    assert seen(redis_client, "text") == [("python", note) for note in ("start", 0, 1, "cancel", "stop", "complete")]
    assert not redis_client.exists(f"it-{waiting}", f"it-{running}", "queue:default", "retry")


@pytest.mark.releases(since="7.3.3")
def test_python_cancels_jobs_of_ruby(redis_client: redis.Redis, start: Starts) -> None:
    """A waiting job, which Ruby's own `cancel!` would cause to fail, and a running one."""
    waiting = str(WalkJob.perform_async("index", COUNT, LEDGER, GATE))
    running = str(WalkJob.perform_async("text", COUNT, LEDGER, GATE))
    redis_client.set(LEAVE_AT, 1)
    sidekiq.cancel(waiting)
    worker = start["ruby"](2)
    eventually(lambda: ("ruby", 1) in seen(redis_client, "text"))

    sidekiq.cancel(running)
    eventually(lambda: ("ruby", "complete") in seen(redis_client, "index"))
    worker.stop()

    assert seen(redis_client, "index") == [("ruby", note) for note in ("start", "cancel", "stop", "complete")]
    assert seen(redis_client, "text") == [("ruby", note) for note in ("start", 0, 1, "cancel", "stop", "complete")]
    assert not redis_client.exists(f"it-{waiting}", f"it-{running}", "queue:default", "retry")


@pytest.mark.releases(since="7.3", before="7.3.3")
def test_a_ruby_that_cannot_cancel_is_not_harmed_by_it(redis_client: redis.Redis, start: Starts) -> None:
    """
    Sidekiq 7.3.2 runs a cancelled job to its end, whichever side cancelled it; a job that it requeues is cancelled
    by Python.
    """
    waiting = str(WalkJob.perform_async("index", 2, LEDGER, GATE))
    running = str(WalkJob.perform_async("text", COUNT, LEDGER, GATE))
    redis_client.set(LEAVE_AT, 3)
    sidekiq.cancel(waiting)
    worker = start["ruby"](2)
    eventually(lambda: ("ruby", 3) in seen(redis_client, "text"))

    sidekiq.cancel(running)
    eventually(lambda: ("ruby", "complete") in seen(redis_client, "index"))
    worker.stop()
    start["python"](2)
    eventually(partial(have_seen, redis_client, "complete", kinds=["index", "text"]))

    assert seen(redis_client, "index") == [("ruby", note) for note in ("start", 0, 1, "stop", "complete")]
    assert seen(redis_client, "text")[-5:] == [
        ("ruby", "stop"),
        *(("python", note) for note in ("resume", "cancel", "stop", "complete")),
    ]
    eventually(lambda: not redis_client.exists(f"it-{waiting}", f"it-{running}", "queue:default", "retry"))


def seen(client: redis.Redis, kind: str) -> list[tuple[str, Any]]:
    """The numbers and callbacks of the job with cursors of a kind, each with the language that wrote it."""
    return [(line["by"], line["entry"][1]) for line in lines(client) if line["entry"][0] == kind]


def have_seen(client: redis.Redis, note: int | str, *, kinds: list[str]) -> bool:
    """Whether all these jobs have come to a number or a callback."""
    return all(note in [what for _, what in seen(client, kind)] for kind in kinds)


def have_all_seen(client: redis.Redis, note: int | str) -> bool:
    """The same for all kinds."""
    return have_seen(client, note, kinds=list(CURSORS))
