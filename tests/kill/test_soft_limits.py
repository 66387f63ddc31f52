"""Soft limits under load: the exception strikes the job it is meant for, or nothing."""

import json
from collections.abc import Callable

from tests.kill.conftest import Fleet
from tests.support.ledger import ENDED, STARTED, job_text, push_jobs
from tests.support.waiting import eventually

LIMIT_SECONDS = 0.004


def test_jobs_that_run_about_as_long_as_their_limit_are_settled_rightly(
    fleet: Fleet, report: Callable[[object], None]
) -> None:
    """Thousands, with others between them that have no limit: each succeeds or times out, by its own limit only."""
    limited, free = 1500, 1500
    texts = [job_text(n, "limited", [LIMIT_SECONDS * 2 * n / limited], retry=3) for n in range(limited)]
    texts += [job_text(limited + n, args=[0.0]) for n in range(free)]
    # Turn by turn.
    texts = [text for pair in zip(texts[:limited], texts[limited:], strict=True) for text in pair]
    push_jobs(fleet.client, texts)
    fleet.keep_retries()
    fleet.start(concurrency=4, timeout_seconds=LIMIT_SECONDS)

    fleet.wait_until_done(90)

    jobs = limited + free
    retried = [json.loads(raw) for raw in fleet.client.zrange("retry", 0, -1)]
    timed_out = {job["args"][0] for job in retried}
    ended = fleet.ledger.numbers(ENDED)
    eventually(lambda: int(fleet.client.get("stat:processed") or 0) == jobs)
    failed = int(fleet.client.get("stat:failed") or 0)
    books = fleet.books(jobs)
    report(f"{books}; timed out={len(timed_out)}, of these after their last line={len(timed_out & set(ended))}")
    assert (books.lost, books.doubled, books.again) == ((), (), 0)
    assert {job["error_class"] for job in retried} == {"sidekiq_py.errors.SoftTimeLimitError"}
    assert {job["class"] for job in retried} == {"limited"}
    assert failed == len(retried)
    # Who is not in the retry set has come to its end, and who did not even begin was interrupted before it could.
    assert set(range(jobs)) - timed_out <= set(ended)
    assert set(range(jobs)) - timed_out <= set(fleet.ledger.numbers(STARTED))
    assert max(fleet.ledger.numbers(STARTED).values()) == 1
    assert 100 < len(timed_out) < limited
