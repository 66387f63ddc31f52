"""The context that travels with jobs, as in `ruby_fixtures/active_jobs.rb`; loaded by Python workers with `-r`."""

import json
import os

import redis

import sidekiq_py as sidekiq
from sidekiq_py.contrib.current_attributes import Attributes, locale, persist, persist_locale

current = Attributes(user_id=None, tenant=None)
subject = Attributes(record=None, kind=None, since=None)


def carry_along() -> None:
    """Pass both groups of attributes and the locale along with jobs from now on."""
    persist(current, subject)
    persist_locale()


@sidekiq.job(name="PythonContextJob", queue="python")
def python_context_job(note: str, next_class: str | None = None, next_queue: str | None = None) -> None:
    """Write the request's attributes to the list `fixture:context`, and enqueue another job that does the same."""
    known = [current.user_id, current.tenant, subject.record, subject.kind, subject.since]
    line = {"by": "python", "note": note, "locale": locale.name, "known": [str(value) for value in known]}
    redis.Redis.from_url(os.environ["REDIS_URL"]).rpush("fixture:context", json.dumps(line))
    if next_class:
        sidekiq.Client().push({"class": next_class, "queue": next_queue, "args": [note]})


if "FIXTURE_CONTEXT" in os.environ:
    carry_along()
