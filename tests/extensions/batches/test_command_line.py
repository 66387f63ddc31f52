"""`sidekiq-py batches` and the list of batches."""

import json
import shlex
from collections.abc import Callable
from contextlib import suppress

import pytest
from click.testing import CliRunner, Result

import sidekiq_py as sidekiq
from sidekiq_py.api import Batches
from sidekiq_py.cli import main
from sidekiq_py.extensions.batches import steps
from tests.extensions.batches.conftest import Program
from tests.support.waiting import eventually

Run = Callable[..., Result]


@pytest.fixture
def run(app: Program, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line of `sidekiq-py batches`."""
    monkeypatch.setenv("REDIS_URL", redis_url)

    def invoke(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(main, ["batches", *arguments], prog_name="sidekiq-py", **options)  # type: ignore[arg-type]

    return invoke


def test_batches_are_listed_the_newest_first(app: Program, run: Run) -> None:
    """With their state and counts; also by state, and as JSON."""
    old, new = sidekiq.Batch(description="old one"), sidekiq.Batch(description="new one")
    with old.jobs():
        app.deed.perform_async("ok")
    app.client.zincrby("sidekiq_py:batches", -5, old.bid)
    with new.jobs():
        listed = run("list").output
        opened = json.loads(run("--state", "open", "--json").output)

    first, second = listed.splitlines()[1:]
    assert first.split()[:3] == [new.bid, "open", "0"]
    assert second.split()[:4] == [old.bid, "running", "1", "1"]
    assert "old one" in second
    assert [one["bid"] for one in opened] == [new.bid]
    assert [one.bid for one in Batches()] == [new.bid, old.bid]
    assert [one.bid for one in Batches().in_state("running")] == [old.bid]
    assert len(Batches()) == 2


def test_a_list_without_batches_says_so(run: Run) -> None:
    """In a sentence, as the other lists do; in JSON it is an empty list."""
    assert run("list").output == "There are no batches. Open one: sidekiq.Batch()\n"
    assert run("list", "--state", "running").output == "No batch is running.\n"
    assert json.loads(run("list", "--json").output) == []


def test_a_batch_is_shown_with_what_it_waits_for(app: Program, run: Run) -> None:
    """Who may still add, and the jobs that failed."""
    batch = sidekiq.Batch(description="Import")
    with batch.jobs():
        jid = app.deed.perform_async("fail")
        with sidekiq.embed(concurrency=1):
            app.wait_until_idle()
        shown = run("show", batch.bid).output
        data = json.loads(run("show", batch.bid, "--json").output)

    assert "1, of which 1 pending (0% done)" in shown
    assert "may still add" in shown
    assert f"{jid}" in shown
    assert "ValueError: no e-mail" in shown
    assert (data["state"], data["failures"], data["members"][0]["jid"]) == ("open", 1, jid)


def test_the_commands_that_a_batch_shows_find_its_unfinished_jobs(app: Program, run: Run) -> None:
    """The batch itself lists those that failed."""
    batch = sidekiq.Batch()
    with batch.jobs():
        queued = app.deed.perform_async("ok")
        scheduled = app.deed.perform_in(3600, "ok")
    other = app.deed.perform_async("ok")

    lines = run("show", batch.bid).output.splitlines()

    start = lines.index("2 unfinished jobs run, wait in a queue or are scheduled. To find them:") + 1
    found = ""
    for line in lines[start : start + 3]:
        words = shlex.split(line.replace("QUEUE", "default"), comments=True)
        found += CliRunner().invoke(main, words[1:], catch_exceptions=False).output
    assert queued in found
    assert scheduled in found
    assert other not in found


def test_a_share_is_never_rounded_up_and_damage_is_named(app: Program, run: Run) -> None:
    """Of 250 jobs 249 have succeeded; then another program spoils a counter."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_bulk([["ok"]] * 249 + [["fail"]])
    with sidekiq.embed(concurrency=1):
        eventually(lambda: batch.status().pending == 1 and batch.status().failures == 1)

    before = run("show", batch.bid).output
    app.client.hset(steps.key(batch.bid), "total", "many")
    after = run("show", batch.bid).output

    assert "250, of which 1 pending (99% done)" in before
    assert "damaged" not in before
    assert "damaged         total, by another program; callbacks may never be enqueued" in after


def test_a_batch_whose_rows_cannot_be_counted_is_shown(app: Program, run: Run) -> None:
    """Its key has a wrong type; all the rest is still known, and the damage has a name."""
    batch = sidekiq.Batch(description="Import", track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    key = f"{steps.key(batch.bid)}:states"
    app.client.delete(key)
    app.client.set(key, "foreign")

    shown = run("show", batch.bid)

    assert shown.exit_code == 0
    assert "description     Import\n" in shown.output
    assert "rows            none\n" in shown.output
    assert "damaged         states, by another program; callbacks may never be enqueued\n" in shown.output


def test_batches_are_acted_on(app: Program, run: Run) -> None:
    """Closed, retried, invalidated, deleted."""
    batch = sidekiq.Batch()
    with suppress(ZeroDivisionError), batch.jobs():
        app.deed.perform_async("fail")
        raise ZeroDivisionError
    with sidekiq.embed(concurrency=1):
        app.wait_until_idle()

    assert run("close", batch.bid).output == f"{batch.bid} is closed; until now 1 block could add jobs.\n"
    assert run("close", batch.bid).output == f"{batch.bid} was already closed.\n"
    assert json.loads(run("retry", batch.bid, "--json").output) == {"bid": batch.bid, "retried": 1}
    assert len(app.waiting()) == 1
    refused = run("invalidate", batch.bid)
    assert (refused.exit_code, "invalidate asks for confirmation" in refused.output) == (2, True)
    assert run("invalidate", batch.bid, "--yes").output == "1 batch invalidated.\n"
    refused = run("delete", batch.bid)
    assert (refused.exit_code, "delete asks for confirmation" in refused.output) == (2, True)
    assert run("delete", batch.bid, "--yes").output == f"{batch.bid} deleted.\n"
    assert list(Batches()) == []


def test_a_batch_that_is_not_there_is_an_error(run: Run) -> None:
    """Not a traceback."""
    result = run("show", "nosuch")

    assert result.exit_code == 1
    assert "there is no batch nosuch" in result.output


def test_a_tracked_batch_is_shown_with_its_rows(app: Program, run: Run) -> None:
    """How many are in each state."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
        app.deed.perform_async("ok")

    assert "rows            2 enqueued" in run("show", batch.bid).output
    assert json.loads(run("show", batch.bid, "--json").output)["jobs"]["enqueued"] == 2


def test_a_bid_that_is_not_utf_8_is_listed_beside_the_others(app: Program, run: Run) -> None:
    """As a table and as JSON."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.zadd("sidekiq_py:batches", {b"caf\xe9": 1})
    app.client.hset(b"sidekiq_py:batch:caf\xe9", mapping={"total": "1", "created_at": "1"})

    table, listed = run("list"), run("list", "--json")

    assert (table.exit_code, listed.exit_code) == (0, 0), (table.output, listed.output)
    assert batch.bid in table.output
    assert "caf\ufffd" in table.output
    assert [one["bid"] for one in json.loads(listed.output)] == [batch.bid, "caf\udce9"]
