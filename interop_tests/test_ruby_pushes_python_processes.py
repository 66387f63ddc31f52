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
    """The job runs in Python under the jid that Ruby returned."""
    start_python("-q", "python")

    jid = ruby('PythonJob.perform_async("ledger", key, "now")', key=LEDGER)

    [line] = eventually(lambda: lines(redis_client))
    assert (line["by"], line["jid"], line["entry"]) == ("python", jid, "now")


def test_python_performs_a_delayed_job_when_it_is_due(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Python's poller takes the job no sooner than its score, and soon after it."""
    start_python("-q", "python")

    due_at = ruby('at = Time.now.to_f + 1; PythonJob.perform_at(at, "ledger", key, "later"); at', key=LEDGER)

    eventually(lambda: entries(redis_client) == ["later"], every_seconds=0.002)
    assert 0 <= time.time() - due_at < 1


def test_python_performs_each_job_of_a_bulk_push_once(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """`perform_bulk` (since 6.3) and `push_bulk`, more jobs than one slice holds."""
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

    eventually(lambda: redis_client.llen(LEDGER) >= 2_000, within_seconds=15)
    assert Counter(entries(redis_client)) == Counter(range(2_000))


def test_python_performs_a_delayed_bulk_push_when_it_is_due(
    redis_client: redis.Redis, ruby_release: RubyRelease, ruby: RunRuby, start_python: StartPython
) -> None:
    """One moment for all, or one for each; since 8.0.8 spread over an interval."""
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


def test_python_fetches_from_the_queue_that_set_named(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """A queue by weight on Python's command line."""
    start_python("-q", "critical,3", "-q", "low")

    ruby('PythonJob.set(queue: "critical").perform_async("ledger", key, "there")', key=LEDGER)

    assert eventually(lambda: entries(redis_client)) == ["there"]


def test_python_receives_every_json_type_as_it_was(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Arguments that Ruby's JSON wrote survive the way into Python and out again."""
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


def test_python_performs_a_class_with_a_namespace(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """`Billing::PythonInvoiceJob` is a name like any other."""
    start_python("-q", "python")

    ruby('Billing::PythonInvoiceJob.perform_async("ledger", key, 42)', key=LEDGER)

    assert eventually(lambda: entries(redis_client)) == [42]


def test_python_runs_a_job_whose_payload_has_keys_it_does_not_know(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """Plug-ins of the Ruby side add keys; the job runs all the same."""
    start_python("-q", "python")

    ruby(
        """
        Sidekiq::Client.push("class" => "PythonJob", "queue" => "python", "args" => ["ledger", key, 1],
          "traceparent" => "00-ab-01", "cattr" => {"user" => 7}, "unique_for" => 10**25,
          "profile" => "mike", "profiler_options" => {"mode" => "cpu"})
        """,
        key=LEDGER,
    )

    assert eventually(lambda: entries(redis_client)) == [1]


def test_a_class_that_python_does_not_know_waits_in_the_retry_set(
    redis_client: redis.Redis, ruby: RunRuby, start_python: StartPython
) -> None:
    """As in Ruby, the job is not lost: a deploy may bring the class."""
    start_python("-q", "python")

    jid = ruby('Sidekiq::Client.push("class" => "NobodyKnowsThis", "queue" => "python", "args" => [])')

    [member] = eventually(lambda: members(redis_client, "retry"))
    payload = json.loads(member)
    assert (payload["jid"], payload["class"], payload["retry_count"]) == (jid, "NobodyKnowsThis", 0)
