"""
Attributes and the locale of a request pass through both languages, with Sidekiq's own middleware in Ruby and ours.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import PYTHON_JOBS, RunRuby, StartPython, StartRuby
from interop_tests.support.python_context import carry_along, current, subject
from interop_tests.support.ruby import RubyRelease
from sidekiq_py import program
from sidekiq_py.active_job import GlobalID, Symbol, perform_later
from sidekiq_py.contrib.current_attributes import locale
from tests.support.waiting import eventually

CONTEXT = "fixture:context"
SINCE = datetime(2024, 2, 29, 13, 5, 9, 500_000, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Request:
    """
    What is set when a job is enqueued, in both languages.

    Args:
        ruby: What stands around the push, as a method that takes a block.
        python: The same for a `with`.
        seen_by_ruby, seen_by_python: What jobs see of it: locale, user, tenant, record, kind, time.
        since: The first Sidekiq that carries it.
    """

    ruby: str
    python: Callable[[], AbstractContextManager[Any]]
    seen_by_ruby: tuple[str, ...]
    seen_by_python: tuple[str, ...]
    since: tuple[int, ...]


REQUESTS = {
    "locale": Request(
        "I18n.with_locale(:de)",
        lambda: locale.set(name="de"),
        ("de", "nil", "nil", "nil", "nil", "nil"),
        ("de", "None", "None", "None", "None", "None"),
        since=(6, 0),
    ),
    "one class": Request(
        'FixtureCurrent.set(user_id: 7, tenant: "Zoë")',
        lambda: current.set(user_id=7, tenant="Zoë"),
        ("en", "7", '"Zoë"', "nil", "nil", "nil"),
        ("en", "7", "Zoë", "None", "None", "None"),
        since=(6, 3),
    ),
    "the second class": Request(
        'FixtureSubject.set(record: 42, kind: "invoice")',
        lambda: subject.set(record=42, kind="invoice"),
        ("en", "nil", "nil", "42", '"invoice"', "nil"),
        ("en", "None", "None", "42", "invoice", "None"),
        since=(7, 1, 1),
    ),
    "more than JSON": Request(
        "FixtureSubject.set(record: FixtureRecord.new(42), kind: :invoice, since: Time.utc(2024, 2, 29, 13, 5, 9.5r))",
        lambda: subject.set(record=GlobalID("gid://fixtures/FixtureRecord/42"), kind=Symbol("invoice"), since=SINCE),
        ("en", "nil", "nil", "#<FixtureRecord 42>", ":invoice", "2024-02-29 13:05:09.5 UTC"),
        ("en", "None", "None", "gid://fixtures/FixtureRecord/42", "invoice", str(SINCE)),
        since=(8, 0),
    ),
}


@pytest.fixture(autouse=True)
def carrying_program(ruby_release: RubyRelease, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process and all that it starts carry both groups of attributes and the locale."""
    monkeypatch.setenv("FIXTURE_CONTEXT", "1")
    program.reset()
    sidekiq.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version)
    carry_along()
    yield
    program.reset()


def test_attributes_and_the_locale_go_along(
    redis_client: redis.Redis,
    redis_url: str,
    ruby_release: RubyRelease,
    ruby: RunRuby,
    start_ruby: StartRuby,
    start_python: StartPython,
) -> None:
    """From Ruby to Python to Ruby, and from Python to Ruby to Python; the format for an older Sidekiq can be read."""
    requests = {note: request for note, request in REQUESTS.items() if ruby_release.numbers >= request.since}
    start_ruby(active_job=True)
    start_python("-q", "python", require=[PYTHON_JOBS, "interop_tests.support.python_context"])

    pushes = [
        f"""
        {request.ruby} do
          arguments = ["{note}, from Ruby", "ContextJob", "default"]
          Sidekiq::Client.push("class" => "PythonContextJob", "queue" => "python", "args" => arguments)
        end
        """
        for note, request in requests.items()
    ]
    ruby("\n".join(pushes), active_job=True)
    for note, request in requests.items():
        with request.python():
            push_from_python(note)
    sidekiq.configure(redis_url=redis_url, sidekiq_version="6.4")
    with REQUESTS["one class"].python():
        push_from_python("as for 6.4")

    told = eventually(lambda: seen_by_both(redis_client, 4 * len(requests) + 2))
    for note, request in requests.items():
        for origin in ("Ruby", "Python"):
            assert told[f"{note}, from {origin}", "ruby"] == request.seen_by_ruby
            assert told[f"{note}, from {origin}", "python"] == request.seen_by_python
    if "one class" in requests:
        assert told["as for 6.4, from Python", "ruby"] == REQUESTS["one class"].seen_by_ruby
        assert told["as for 6.4, from Python", "python"] == REQUESTS["one class"].seen_by_python


def test_rails_runs_an_active_job_in_the_locale_of_the_python_that_enqueued_it(
    redis_client: redis.Redis, start_ruby: StartRuby
) -> None:
    """It takes that of the job object, whatever Sidekiq's middleware has set before."""
    start_ruby(active_job=True)
    with locale.set(name="de"):
        perform_later("FactsJob", "from Python")

    [facts] = eventually(lambda: redis_client.lrange("fixture:facts", 0, -1))
    assert json.loads(facts)["locale"] == "de"


def push_from_python(note: str) -> None:
    """A job for Ruby that enqueues one for Python."""
    sidekiq.Client().push({"class": "ContextJob", "args": [f"{note}, from Python", "PythonContextJob", "python"]})


def seen_by_both(client: redis.Redis, count: int) -> dict[tuple[str, str], tuple[str, ...]] | None:
    """What jobs saw, by their note and language; None while fewer than *count* have told."""
    told = [json.loads(line) for line in client.lrange(CONTEXT, 0, -1)]
    seen = {(line["note"], line["by"]): (line["locale"] or "en", *line["known"]) for line in told}
    return seen if len(told) >= count else None
