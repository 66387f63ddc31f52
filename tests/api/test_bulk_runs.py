"""What is done to many jobs is told to everybody who looks."""

import pytest

from sidekiq_py.api import BulkRuns, BulkStatus, RetrySet
from sidekiq_py.api import bulk_runs as bulk_runs_module


@pytest.fixture(autouse=True)
def _exchange_at_once(monkeypatch):
    """Instead of twice a second."""
    monkeypatch.setattr(bulk_runs_module, "_EXCHANGE_SECONDS", 0.0)


def fill(redis_client, payload, count):
    """Put *count* jobs into the retry set."""
    redis_client.zadd("retry", {payload(str(number)): number for number in range(count)})


def test_a_run_tells_how_far_it_is_and_how_it_ended(pool, redis_client, payload):
    """From the start to the end."""
    fill(redis_client, payload, 250)
    runs = BulkRuns(pool=pool)
    run = runs.start("ada", "retry", "Retries", wanted="all", total=250)
    seen = []

    def progress(done):
        run.report(done)
        seen.append((runs.find(run.id).done, runs.find(run.id).status))

    run.finish(RetrySet(pool=pool).retry_all(progress, stop=run.should_stop))

    assert seen == [(100, BulkStatus.RUNNING), (200, BulkStatus.RUNNING), (250, BulkStatus.RUNNING)]
    state = runs.find(run.id)
    assert (state.status, state.moved, state.done, state.total) == (BulkStatus.FINISHED, 250, 250, 250)
    assert (state.user, state.action, state.place, state.wanted) == ("ada", "retry", "Retries", "all")


def test_somebody_else_stops_it(pool, redis_client, payload):
    """Before the next slice; what was done stays done."""
    fill(redis_client, payload, 250)
    runs = BulkRuns(pool=pool)
    run = runs.start("ada", "delete", "Retries")

    def progress(done):
        run.report(done)
        assert runs.stop(run.id)

    run.finish(RetrySet(pool=pool).delete_many(RetrySet(pool=pool), progress, stop=run.should_stop))

    assert runs.find(run.id).status is BulkStatus.STOPPED
    assert redis_client.zcard("retry") == 150


def test_an_error_ends_it(pool):
    """And is told."""
    run = BulkRuns(pool=pool).start("ada", "retry", "Retries")

    run.finish(error=ValueError("no\ud800"))

    state = BulkRuns(pool=pool).find(run.id)
    assert (state.status, state.error) == (BulkStatus.FAILED, "ValueError: no\\ud800")


def test_a_run_whose_process_has_gone_is_lost(pool, monkeypatch):
    """It has said nothing for half a minute."""
    run = BulkRuns(pool=pool).start("ada", "retry", "Retries")
    now = bulk_runs_module.now_seconds()

    monkeypatch.setattr(bulk_runs_module, "now_seconds", lambda: now + 31)

    assert BulkRuns(pool=pool).find(run.id).status is BulkStatus.LOST


def test_the_latest_runs_are_kept(pool, redis_client):
    """A hundred, for a day."""
    runs = BulkRuns(pool=pool)
    for number in range(105):
        runs.start("ada", "retry", str(number))

    assert [state.place for state in runs.latest(2)] == ["104", "103"]
    assert redis_client.zcard("sidekiq_py:bulk_runs") == 100
    assert all(0 < redis_client.ttl(key) <= 86_400 for key in redis_client.keys("sidekiq_py:bulk*"))


def test_a_run_that_never_was_is_none(pool):
    """And cannot be stopped."""
    assert BulkRuns(pool=pool).find("x") is None
    assert not BulkRuns(pool=pool).stop("x")


@pytest.mark.parametrize("value", ["1e999", "1e300", "nan", "9" * 5000, "x", "1e17"])
def test_a_run_that_another_program_has_overwritten_hides_no_other(pool, redis_client, value):
    """What is no number counts as 0; a key of another type as no run."""
    runs = BulkRuns(pool=pool)
    good, bad, odd = (runs.start("ada", "retry", "Retries", total=3) for _ in range(3))
    numbers = ("total", "done", "moved", "gone", "refused", "started_at", "updated_at")
    redis_client.hset(f"sidekiq_py:bulk_run:{bad.id}", mapping=dict.fromkeys(numbers, value))
    redis_client.set(f"sidekiq_py:bulk_run:{odd.id}", "a string")

    assert {state.id for state in runs.latest()} == {good.id, bad.id}
    assert runs.find(good.id).total == 3
