"""Real Ruby Sidekiq enqueues, Python performs."""

import json
import time
from collections import Counter

import redis

from interop_tests.conftest import RunRuby, StartPython
from interop_tests.support.ledger import LEDGER, entries, lines, make_due, members
from interop_tests.support.ruby import RubyRelease
from tests.support.waiting import eventually


def test_python_performs_what_ruby_pushed(redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython) -> None:
    """
    Immediately, in the queue that `set` names, for a class with a namespace, and with keys that plug-ins add.

    Each runs under the jid that Ruby returned.
    """
    start_python("-q", "python,3", "-q", "critical")

    jids = ruby(
        """
        {
          "now" => PythonJob.perform_async("ledger", key, "now"),
          "set" => PythonJob.set(queue: "critical").perform_async("ledger", key, "set"),
          "namespace" => Billing::PythonInvoiceJob.perform_async("ledger", key, "namespace"),
          "more keys" => Sidekiq::Client.push("class" => "PythonJob", "queue" => "python",
            "args" => ["ledger", key, "more keys"], "traceparent" => "00-ab-01", "cattr" => {"user" => 7},
            "unique_for" => 10**25, "profile" => "mike", "profiler_options" => {"mode" => "cpu"})
        }
        """,
        key=LEDGER,
    )

    eventually(lambda: redis_client.llen(LEDGER) == len(jids))
    assert {line["entry"]: line["jid"] for line in lines(redis_client)} == jids
    assert {line["by"] for line in lines(redis_client)} == {"python"}


def test_python_performs_a_delayed_job_when_it_is_due(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Python's poller does not take the job before its score."""
    start_python("-q", "python")

    due_at = ruby('at = Time.now.to_f + 0.7; PythonJob.perform_at(at, "ledger", key, "later"); at', key=LEDGER)

    eventually(lambda: entries(redis_client) == ["later"])
    assert time.time() >= due_at


def test_python_performs_each_job_of_a_bulk_push_once(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """`perform_bulk` (since 6.3) and `push_bulk`, with more jobs than one slice holds."""
    start_python("-q", "python")

    ruby(
        """
        items = (0...2000).map { |number| ["ledger", key, number] }
        if PythonJob.respond_to?(:perform_bulk)
          PythonJob.perform_bulk(items.shift(1500))
        else
          Sidekiq::Client.push_bulk("class" => PythonJob, "args" => items.shift(1500))
        end
        Sidekiq::Client.push_bulk("class" => "PythonJob", "queue" => "python", "args" => items)
        """,
        key=LEDGER,
    )

    eventually(lambda: redis_client.llen(LEDGER) >= 2_000, within_seconds=60)
    assert Counter(entries(redis_client)) == Counter(range(2_000))


def test_python_performs_a_delayed_bulk_push_when_it_is_due(
    redis_client: redis.Redis, ruby_release: RubyRelease, ruby: RunRuby, start_python: StartPython
) -> None:
    """One time for all jobs, or one for each; since 8.0.8 also spread over an interval."""
    start_python("-q", "python")

    now = ruby(
        """
        now = Time.now.to_f
        items = (0...300).map { |number| ["ledger", key, number] }
        Sidekiq::Client.push_bulk("class" => PythonJob, "args" => items.shift(100), "at" => now + 0.5)
        each, at = items.shift(100), (0...100).map { |number| now + number / 100.0 }
        Sidekiq::Client.push_bulk("class" => PythonJob, "args" => each, "at" => at)
        spread = spreads ? {"spread_interval" => 600} : {}
        Sidekiq::Client.push_bulk({"class" => PythonJob, "args" => items}.merge(spread))
        now
        """,
        key=LEDGER,
        spreads=ruby_release.numbers >= (8, 0, 8),
    )

    eventually(lambda: set(range(200)) <= set(entries(redis_client)))
    assert time.time() - now >= 0.99
    make_due(redis_client, "schedule")
    eventually(lambda: redis_client.llen(LEDGER) >= 300)
    assert sorted(entries(redis_client)) == list(range(300))


def test_python_receives_every_json_type_as_it_was(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Arguments that Ruby's JSON wrote survive the trip into Python and back."""
    start_python("-q", "python")

    expected = ruby(
        r"""
        values = [nil, true, 0, -2**63, 10**30, 1.5, 1e22, 5e-324, 1e15, -0.0]
        values += ["\u00e9\u2028\u0000\u007f", [], {"b" => [1], "10" => 2}]
        PythonJob.perform_async("echo", "echo", *values)
        values
        """
    )

    [echoed] = eventually(lambda: redis_client.lrange("echo", 0, -1))
    assert json.loads(echoed) == expected


def test_a_class_that_python_does_not_know_waits_in_the_retry_set(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """As in Ruby, the job is not lost: a deploy may add the class."""
    start_python("-q", "python")

    jid = ruby('Sidekiq::Client.push("class" => "NobodyKnowsThis", "queue" => "python", "args" => [])')

    [member] = eventually(lambda: members(redis_client, "retry"))
    payload = json.loads(member)
    assert (payload["jid"], payload["class"], payload["retry_count"]) == (jid, "NobodyKnowsThis", 0)
