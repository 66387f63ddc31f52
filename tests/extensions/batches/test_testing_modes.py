"""Batches in the testing modes: without a Redis, with callbacks."""

from collections.abc import Iterator
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.api import Batches
from sidekiq_py.extensions.batches.errors import BatchDoneError, BatchGoneError
from sidekiq_py.testing import fake, inline
from tests.support.declared_jobs import no_jobs_declared

calls: list[tuple[str, Any]] = []


@pytest.fixture(autouse=True)
def app() -> Iterator[None]:
    """A program whose Redis nobody could reach."""
    program.reset()
    program.configure(redis_url="redis://127.0.0.1:1", sidekiq_version="7")
    calls.clear()
    with no_jobs_declared():
        sidekiq.job(name="row")(row)
        sidekiq.job(name="done")(done)
        yield
    program.reset()


def row(deed: str) -> None:
    """Does what it is told."""
    if deed == "fail":
        raise ValueError(deed)
    if deed == "add":
        with sidekiq.current_job().batch.jobs():
            sidekiq.Client().push({"class": "row", "args": ["ok"]})


def done(bid: str, event: str, options: Any) -> None:
    """Writes down its call."""
    calls.append((event, options))


def push(deed: str, **more: Any) -> None:
    """Enqueue a row."""
    sidekiq.Client().push({"class": "row", "args": [deed], **more})


def batch_of(*deeds: str, options: Any = None) -> Any:
    """A batch with these rows and all callbacks."""
    batch = sidekiq.Batch(description="Import")
    for event in ("complete", "success", "death"):
        batch.on(event, "done", options)
    with batch.jobs():
        for deed in deeds:
            push(deed)
    return batch


def test_fake_mode_runs_jobs_and_callbacks() -> None:
    """Callbacks wait like other jobs once the last member has run."""
    with fake() as enqueued:
        batch = batch_of("ok", "add")
        assert (batch.status().total, batch.status().pending, batch.status().state) == (2, 2, "running")
        assert len(enqueued) == 2

        enqueued.drain()

        status = batch.status()
        assert (status.total, status.pending, status.state) == (3, 0, "success")
        assert calls == [("complete", None), ("success", None)]
        with pytest.raises(BatchDoneError):
            batch.jobs().__enter__()


@pytest.mark.parametrize("callback", ["Billing::ImportDone#on_success", "Billing::ImportDone"])
def test_a_callback_of_ruby_s_stays_in_place(callback: str) -> None:
    """As every job of the Ruby side does, so that the test can assert on it."""
    with fake() as enqueued:
        batch = sidekiq.Batch().on("success", callback)
        with batch.jobs():
            push("ok")

        assert enqueued.drain() == 1

        assert batch.status().success
        [waiting] = enqueued
        assert waiting.args[:2] == [batch.bid, "success"]


def test_inline_mode_runs_them_at_once() -> None:
    """The callbacks come as the block is left."""
    with inline():
        batch = batch_of("ok", "ok", options={"id": 42})
        assert batch.status().success

    assert calls == [("complete", {"id": 42}), ("success", {"id": 42})]


def test_a_batch_that_has_succeeded_takes_no_child() -> None:
    """As in Redis, so that the test fails instead of the program."""
    with fake() as enqueued:
        parent, child = batch_of("ok"), sidekiq.Batch()
        open_parent = parent.jobs()
        with open_parent:
            enqueued.drain()
            parent.close()
            with pytest.raises(BatchDoneError):
                child.jobs().__enter__()


def test_a_new_child_of_an_invalidated_batch_is_invalid() -> None:
    """Its jobs would not run either."""
    with fake():
        parent, child = sidekiq.Batch(), sidekiq.Batch()
        with parent.jobs():
            parent.invalidate()
            with child.jobs():
                push("ok")

        assert not child.is_valid


def test_callbacks_of_a_child_whose_parent_was_deleted_are_in_no_batch() -> None:
    """They are enqueued like those of any other batch."""
    with fake() as enqueued:
        parent = sidekiq.Batch()
        with parent.jobs():
            batch_of("ok")
        parent.delete()

        enqueued.perform_one()

        assert ["sidekiq_py_batch" in job.payload for job in enqueued] == [False, False]


def test_failures_and_deaths_are_told_apart() -> None:
    """As a worker would have gone on with them."""
    with fake() as enqueued:
        batch = batch_of("ok")
        with batch.jobs():
            push("fail")
            push("fail", retry=0)
        for _ in range(2):
            with pytest.raises(ValueError, match="fail"):
                enqueued.drain()
        enqueued.drain()

        status = batch.status()
        assert (status.failures, status.dead, status.pending, status.complete) == (1, 1, 2, True)
        assert sorted(event for event, _ in calls) == ["complete", "death"]
        assert {one["error"]["error_message"] for one in status.as_dict()["members"]} == {"fail"}


def test_children_hold_back_their_parent() -> None:
    """With their callbacks."""
    with fake() as enqueued:
        parent = sidekiq.Batch().on("success", "done", "parent")
        child = sidekiq.Batch().on("success", "done", "child")
        with parent.jobs(), child.jobs():
            push("ok")
        enqueued.drain()

        assert calls == [("success", "child"), ("success", "parent")]
        assert parent.status().total == 1


def test_a_removed_job_is_not_waited_for() -> None:
    """It is found among the jobs that the mode keeps, because no Redis has it."""
    with fake() as enqueued:
        batch = batch_of("ok", "later")
        [_, later] = enqueued.jobs()

        assert batch.remove([later.jid]) == 1
        enqueued.perform_one("row")

        assert batch.status().success
        assert batch.remove(["no such id"]) == 0


@pytest.mark.parametrize("mode", [fake, inline])
def test_the_list_of_all_batches_asks_no_redis(mode: Any) -> None:
    """The newest one is first, as anywhere; `list` also asks for the length."""
    with mode():
        first, second = batch_of(), batch_of()

        assert [status.bid for status in list(Batches())] == [second.bid, first.bid]
        assert first.retry_failed() == 0


def test_each_mode_begins_with_no_batch() -> None:
    """One test sees nothing of another's."""
    with fake():
        batch = batch_of("ok")
        assert batch.invalidate() == 1
        assert not batch.is_valid

    with fake(), pytest.raises(BatchGoneError):
        batch.status()
