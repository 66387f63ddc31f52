"""Active Jobs that Ruby enqueues and Python runs; loaded by Python workers beside `python_jobs`."""

import json
import os
from typing import Any, NoReturn

import redis

from interop_tests.support.python_jobs import FixtureError
from sidekiq_py.active_job import Keywords, active_job, current_active_job, perform_later


@active_job("PythonActiveJob", queue="python")
def send_back_to_ruby(*arguments: Any, **named: Any) -> None:
    """Enqueue Ruby's `ExactEchoJob` with the received arguments, so that Ruby can compare them with what it sent."""
    perform_later("ExactEchoJob", *arguments, *([Keywords(named)] if named else []))


@active_job("PythonFactsJob", queue="python")
def python_facts_job(note: str) -> None:
    """Write the details that Active Job provides about the run to the list `fixture:facts`."""
    job = current_active_job()
    assert job is not None
    facts = {
        "by": "python",
        "note": note,
        "jid": job.jid,
        "job_id": job.job_id,
        "queue": job.job["queue_name"],
        "priority": job.priority,
        "executions": job.executions,
        "locale": job.locale,
        "timezone": job.timezone,
        "job_timezone": job.timezone,
    }
    redis.Redis.from_url(os.environ["REDIS_URL"]).rpush("fixture:facts", json.dumps(facts))


@active_job("ActiveRetryJob", retry_on={FixtureError: {"wait": 30, "attempts": 3, "jitter": 0}})
def active_retry_job(message: str) -> NoReturn:
    """Fail; by Active Job's own rules the job is tried three times in all, whichever language runs it."""
    raise FixtureError(message)


@active_job("ActiveRetryInJob")
def active_retry_in_job(message: str) -> NoReturn:
    """Fail; the job itself says how long Sidekiq waits before it is tried again."""
    raise FixtureError(message)


@active_retry_in_job.retry_in
def by_a_hundred_thousand(count: int, error: BaseException, payload: dict[str, Any]) -> int:
    """As in Ruby."""
    return (count + 1) * 100_000
