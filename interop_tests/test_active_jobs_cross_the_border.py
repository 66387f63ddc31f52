"""Active Job in both directions: Python runs what Rails enqueues and vice versa, with all arguments."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from time import time
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import PYTHON_JOBS, RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import make_due, only_job
from interop_tests.support.ruby import RubyRelease
from sidekiq_py.active_job import (
    Duration,
    GlobalID,
    IndifferentHash,
    Keywords,
    Range,
    RubyModule,
    Symbol,
    new_job,
    perform_all_later,
    perform_later,
    symbolize,
)
from sidekiq_py.wire.dialect import OLD_WRAPPER
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

pytestmark = pytest.mark.usefixtures("python_client")

REQUIRED = [PYTHON_JOBS, "interop_tests.support.python_active_jobs"]
FACTS = "fixture:facts"
BERLIN = ZoneInfo("Europe/Berlin")


class Case(NamedTuple):
    """
    Arguments of a job in both languages.

    Args:
        ruby: As Ruby code between the parentheses of a call.
        python: The same.
        since: The first Rails that carries it.
        is_exact: Whether Python's own value holds all of it; nanoseconds and classes of times it does not.
    """

    ruby: str
    python: list[Any]
    since: tuple[int, int] = (6, 0)
    is_exact: bool = True


CASES = [
    Case("", []),
    Case("1, -2.5, 'Zoë 🎈', nil, true, false", [1, -2.5, "Zoë 🎈", None, True, False]),
    Case("2**63, -10**30, 1e22, 1e-7, 1e15, 0.1", [2**63, -(10**30), 1e22, 1e-7, 1e15, 0.1]),
    Case(":low, :'with space'", [Symbol("low"), Symbol("with space")]),
    Case("[1, [:two, []]]", [[1, [Symbol("two"), []]]]),
    Case("[{'b' => 1, 'a' => {'c' => :d}}]", [[{"b": 1, "a": {"c": Symbol("d")}}]]),
    Case("[{b: 1, a: {c: :d}}]", [[symbolize({"b": 1, "a": symbolize({"c": Symbol("d")})})]]),
    Case("[{'text' => 1, symbol: 2}]", [[{"text": 1, Symbol("symbol"): 2}]]),
    Case("[{}]", [[{}]]),
    Case(
        "[ActiveSupport::HashWithIndifferentAccess.new(b: 1, 'a' => {c: 2})]",
        [[IndifferentHash(b=1, a=IndifferentHash(c=2))]],
    ),
    Case("1, name: 'value', list: [1, :two]", [1, Keywords(name="value", list=[1, Symbol("two")])]),
    Case("2.days + 3.hours", [Duration(days=2, hours=3)]),
    Case("1.month, 1.5.hours, 0.minutes", [Duration(months=1), Duration(hours=1.5), Duration(minutes=0)]),
    Case("90.seconds", [timedelta(seconds=90)]),
    Case("Date.new(2024, 2, 29)", [date(2024, 2, 29)]),
    Case("Time.utc(2024, 2, 29, 13, 5, 9.5r)", [datetime(2024, 2, 29, 13, 5, 9, 500_000, tzinfo=UTC)]),
    Case(
        "Time.new(2024, 2, 29, 13, 5, 9, '-03:30')",
        [datetime(2024, 2, 29, 13, 5, 9, tzinfo=timezone(-timedelta(hours=3, minutes=30)))],
    ),
    Case("Time.at(1700000000, 123456789, :nsec).utc", [], is_exact=False),
    Case("DateTime.new(2024, 2, 29, 13, 5, Rational(9_123456789, 1_000_000_000), '+02:00')", [], is_exact=False),
    Case(
        "ActiveSupport::TimeZone['Europe/Berlin'].local(2024, 2, 29, 13, 5, 9.5r)",
        [datetime(2024, 2, 29, 13, 5, 9, 500_000, tzinfo=BERLIN)],
    ),
    Case(
        "ActiveSupport::TimeZone['UTC'].local(2024, 2, 29, 13, 5, 9.5r)",
        [datetime(2024, 2, 29, 13, 5, 9, 500_000, tzinfo=ZoneInfo("UTC"))],
    ),
    Case("FixtureRecord.new(42)", [GlobalID("gid://fixtures/FixtureRecord/42")]),
    Case("FixtureRecord.new('a b/c?d')", [GlobalID.create("fixtures", "FixtureRecord", "a b/c?d")]),
    Case("BigDecimal('12.340'), BigDecimal('-1e30')", [Decimal("12.340"), Decimal("-1e30")]),
    Case("Billing::InvoiceJob, Billing", [RubyModule("Billing::InvoiceJob"), RubyModule("Billing")], since=(6, 1)),
    Case("1..3, (1...), (nil..'z')", [Range(1, 3), Range(1, None, exclude_end=True), Range(None, "z")], since=(7, 0)),
    Case("Date.new(2024, 1, 1)...Date.new(2024, 2, 1)", [Range(date(2024, 1, 1), date(2024, 2, 1), True)], (7, 0)),
]


def rails_of(release: RubyRelease) -> tuple[int, int]:
    """Major and minor version of the Rails beside a Sidekiq."""
    assert release.versions is not None
    major, minor, *_ = release.versions.rails.split(".")
    return int(major), int(minor)


def test_arguments_of_every_type_arrive_in_ruby_as_ruby_itself_would_send_them(
    redis_client: redis.Redis,
    ruby_release: RubyRelease,
    ruby: RunRuby,
    start_ruby: StartRuby,
    start_python: StartPython,
) -> None:
    """
    Each value takes three routes: from Ruby to Ruby, from Ruby through Python back to Ruby, and from Python to
    Ruby.
    """
    rails = rails_of(ruby_release)
    cases = {str(number): case for number, case in enumerate(CASES) if rails >= case.since}
    calls = [
        f'{job}.perform_later("{key}", "{number}"{", " + case.ruby if case.ruby else ""})'
        for number, case in cases.items()
        for job, key in (("ExactEchoJob", "straight"), ("PythonActiveJob", "round about"))
    ]
    exact = {number: case for number, case in cases.items() if case.is_exact}

    ruby("\n".join(calls), active_job=True)
    for number, case in exact.items():
        perform_later("ExactEchoJob", "from Python", number, *case.python, rails_version=f"{rails[0]}.{rails[1]}")
    start_ruby(active_job=True)
    start_python("-q", "python", require=REQUIRED)

    eventually(lambda: redis_client.hlen("round about") == redis_client.hlen("straight") == len(cases))
    eventually(lambda: redis_client.hlen("from Python") == len(exact))
    straight = arrived(redis_client, "straight", cases)
    assert arrived(redis_client, "round about", cases) == straight
    assert arrived(redis_client, "from Python", exact) == {case.ruby: straight[case.ruby] for case in exact.values()}
    assert (redis_client.zcard("retry"), redis_client.zcard("dead")) == (0, 0)


def arrived(client: redis.Redis, key: str, cases: dict[str, Case]) -> dict[str, Any]:
    """What Ruby saw on one of the ways, by the Ruby code of the arguments."""
    texts = cast(dict[bytes, bytes], client.hgetall(key))
    return {cases[str(number, "ascii")].ruby: json.loads(text) for number, text in texts.items()}


def test_ruby_performs_what_python_enqueued_for_active_job(
    redis_client: redis.Redis, redis_url: str, ruby_release: RubyRelease, start_ruby: StartRuby
) -> None:
    """Immediate, delayed, in bulk, and under the wrapper's old name: a run gets what it was enqueued with."""
    start_ruby(active_job=True)

    jid = perform_later("FactsJob", "now", locale="de", timezone="Europe/Berlin", priority=7)
    pending = [new_job("FactsJob", "bulk"), new_job("FactsJob", "bulk, later", wait=0.3)]
    perform_all_later(pending)
    perform_later("FactsJob", "later", wait=0.3)
    sidekiq.configure(redis_url=redis_url, sidekiq_version="6.0" if ruby_release.numbers < (6, 4) else "6.4")
    perform_later("FactsJob", "old release")
    assert sidekiq.Client(redis_url=redis_url).push(
        {"class": OLD_WRAPPER, "args": [{"job_class": "FactsJob", "job_id": "x", "arguments": ["fewest keys"]}]}
    )

    facts = eventually(lambda: facts_of(redis_client, 6))
    assert set(facts) == {"now", "bulk", "bulk, later", "later", "old release", "fewest keys"}
    now = facts["now"]
    assert (now["jid"], now["locale"], now["timezone"]) == (jid, "de", "Europe/Berlin")
    assert (now["priority"], now["queue"], now["executions"]) == (7, "default", 1)
    assert facts["later"]["locale"] == "en"
    assert [facts[note]["job_id"] for note in ("bulk", "bulk, later")] == [job.job_id for job in pending]


def test_python_performs_what_ruby_enqueued_for_active_job(
    redis_client: redis.Redis, ruby_release: RubyRelease, ruby: RunRuby, start_python: StartPython
) -> None:
    """
    Immediate, delayed, and in bulk if Rails supports it: a run gets what it was enqueued with. Unknown classes
    wait.
    """
    start_python("-q", "python", require=REQUIRED)

    job_id, provider_job_id = ruby(
        """
        I18n.locale = :de
        Time.zone = "Europe/Berlin"
        job = PythonFactsJob.set(priority: 7).perform_later("now")
        PythonFactsJob.set(wait: 0.3).perform_later("later")
        ActiveJob.perform_all_later([PythonFactsJob.new("bulk"), PythonFactsJob.new("bulk, later").set(wait: 0.3)]) if
          ActiveJob.respond_to?(:perform_all_later)
        EchoJob.set(queue: "python").perform_later(1)
        [job.job_id, job.provider_job_id]
        """,
        active_job=True,
    )

    notes = {"now", "later"} | ({"bulk", "bulk, later"} if rails_of(ruby_release) >= (7, 1) else set())
    facts = eventually(lambda: facts_of(redis_client, len(notes)))
    assert set(facts) == notes
    now = facts["now"]
    assert (now["job_id"], now["jid"]) == (job_id, provider_job_id)
    assert (now["priority"], now["queue"], now["executions"]) == (7, "python", 1)
    assert {(each["locale"], each["timezone"]) for each in facts.values()} == {("de", "Europe/Berlin")}
    unknown = eventually(lambda: only_job(redis_client, "retry"))
    assert (unknown["wrapped"], unknown["retry_count"]) == ("EchoJob", 0)


def facts_of(client: redis.Redis, count: int) -> dict[str, dict[str, Any]] | None:
    """What the runs wrote about themselves, by their note; None while fewer than *count* have."""
    facts = [json.loads(line) for line in client.lrange(FACTS, 0, -1)]
    return {each["note"]: each for each in facts} if len(facts) >= count else None


@pytest.mark.parametrize("first", ["ruby", "python"])
def test_languages_take_turns_at_the_retries_of_active_job(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython, first: str
) -> None:
    """`retry_on` keeps counting in the other language and raises after the last attempt; Sidekiq's retries follow."""
    start: dict[str, Callable[[], SidekiqProcess]] = {
        "ruby": lambda: start_ruby(active_job=True),
        "python": lambda: start_python(require=REQUIRED),
    }
    turns = [first, "python" if first == "ruby" else "ruby"] * 2
    job_id = "11111111-2222-4333-8444-555555555555"
    jid = perform_later("ActiveRetryJob", "boom", job_id=job_id, queue="default")

    for executions, language in enumerate(turns[:2], start=1):
        make_due(redis_client, "schedule")
        with start[language]():
            waiting = eventually(partial(tried, redis_client, executions))
        [job] = waiting["args"]
        assert (job["job_id"], job["provider_job_id"]) == (job_id, jid)
        assert job["exception_executions"] == {"[FixtureError]": executions}
        assert waiting["jid"] != jid
        jid = waiting["jid"]
    for retries, language in enumerate(turns[2:]):
        make_due(redis_client, "schedule" if retries == 0 else "retry")
        with start[language]():
            failed = eventually(partial(retried, redis_client, retries))
        assert (failed["jid"], failed["error_message"], failed["wrapped"]) == (jid, "boom", "ActiveRetryJob")
        assert failed["args"][0]["executions"] == 2
    assert (redis_client.zcard("schedule"), redis_client.zcard("dead")) == (0, 0)


@pytest.mark.releases(since="7.3")
@pytest.mark.parametrize("first", ["ruby", "python"])
def test_an_active_job_decides_about_sidekiqs_retries_in_both_languages(
    redis_client: redis.Redis, start_ruby: StartRuby, start_python: StartPython, first: str
) -> None:
    """`sidekiq_retry_in` of an Active Job, and our `retry_in`: each language waits as long as its own block says."""
    start: dict[str, Callable[[], SidekiqProcess]] = {
        "ruby": lambda: start_ruby(active_job=True),
        "python": lambda: start_python(require=REQUIRED),
    }
    perform_later("ActiveRetryInJob", "boom", queue="default")

    for count, language in enumerate([first, "python" if first == "ruby" else "ruby"]):
        make_due(redis_client, "retry")
        began = time()
        with start[language]():
            eventually(partial(retried, redis_client, count))
        [(_, due)] = cast(list[tuple[bytes, float]], redis_client.zrange("retry", 0, -1, withscores=True))
        assert (count + 1) * 100_000 <= due - began < (count + 1) * 100_000 + 200


def tried(client: redis.Redis, executions: int) -> dict[str, Any] | None:
    """The scheduled payload once its Active Job has been tried that often."""
    payload = only_job(client, "schedule")
    return payload if payload and payload["args"][0]["executions"] == executions else None


def retried(client: redis.Redis, count: int) -> dict[str, Any] | None:
    """The payload in the retry set once Sidekiq has counted that many retries."""
    payload = only_job(client, "retry")
    return payload if payload and payload["retry_count"] == count else None
