"""What we push for Rails, against what the Rails at the other end pushes and runs."""

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.active_job import (
    Keywords,
    Options,
    Symbol,
    active_job,
    current_active_job,
    deliver_later,
    perform_later,
)
from sidekiq_py.active_job.declared import implementation_of
from sidekiq_py.testing import fake
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps
from sidekiq_py.wire.payload import parse_job
from tests.active_job import pushes
from tests.active_job.masking import masked, masked_pushes

pytestmark = pytest.mark.ruby


@pytest.fixture(autouse=True)
def _beside_that_ruby(ruby):
    sidekiq.configure(sidekiq_version="7" if ruby.rails_version >= "7.1" else "6.4.1")


def job_text(enqueued):
    """The job object that Active Job is handed."""
    return dumps(enqueued.payload["args"][0], FloatText.RUBY).decode()


@pytest.mark.parametrize(("code", "push"), pushes.COMMON)
def test_the_same_call_pushes_the_same_bytes(ruby, code, push):
    """All but ids and times, key by key in order."""
    with fake() as enqueued:
        push()

    assert [(masked(job.raw), job.at is not None) for job in enqueued] == masked_pushes(
        ruby.ask("push", code=code)["pushed"]
    )


def test_ruby_runs_what_we_enqueue(ruby):
    """`ActiveJob::Base.execute` finds its class, reads the arguments and hands keywords to perform."""
    with fake() as enqueued:
        perform_later("KeywordJob", 7, Keywords(format=Symbol("csv"), dry_run=True))
        deliver_later("UserMailer", "welcome", args=["hi"], params={"user": 7})

    calls = [ruby.ask("execute", json=job_text(job), jid=job.jid)["calls"] for job in enqueued]

    assert calls == [
        ["[7, :csv, {:dry_run=>true}]"],
        ['["UserMailer", "welcome", "deliver_now", ["hi"], nil, {:user=>7}]'],
    ]


def test_we_run_what_ruby_enqueues(ruby):
    """The Python function gets positional arguments, keywords and the job's context."""
    seen = []

    @active_job("EchoJob")
    def echo(*args, **keywords):
        current = current_active_job()
        seen.append((args, keywords, current.executions, current.locale, current.timezone, current.jid))

    [push] = ruby.ask("push", code="EchoJob.perform_later(1, [:a, 2.days], format: 'csv')")["pushed"]
    payload = parse_job(push["payload"].encode())

    implementation_of(payload).bind(payload, lambda: False)(*payload["args"])

    [(args, keywords, *context)] = seen
    assert (args[0], args[1][0], args[1][1].total_seconds(), keywords) == (1, "a", 172_800, {"format": "csv"})
    assert context == [1, "en", "Europe/Berlin", payload["jid"]]


@pytest.mark.parametrize(
    "extra",
    [
        '"executions":1,"exception_executions":{"[FlakyError]":1},"priority":3,"locale":"en","timezone":"UTC"',
        '"executions":2,"exception_executions":{"[OtherError]":2},"priority":null,"locale":"en","timezone":"UTC"',
    ],
)
def test_a_retry_of_active_job_enqueues_the_same_bytes(ruby, extra):
    """The same job_id and counts, the former jid as provider_job_id, a new jid and the delay."""

    class FlakyError(Exception):
        pass

    @active_job("FlakyJob", retry_on={FlakyError: {"wait": 3, "attempts": 5, "jitter": 0}})
    def flaky(*args):
        raise FlakyError("no luck")

    job = f'{{"job_class":"FlakyJob","job_id":"abc","queue_name":"low","arguments":[1],{extra}}}'
    wanted = ruby.ask("retry", json=job, jid="j1")["pushed"]
    payload = parse_job(f'{{"class":"Sidekiq::ActiveJob::Wrapper","args":[{job}],"jid":"j1","queue":"low"}}'.encode())

    with fake() as enqueued:
        rails_version = "7.1" if ruby.rails_version >= "7.1" else "6.1"
        definition = implementation_of(payload)
        definition.rails_version = Options(rails_version=rails_version).rails_version
        definition.bind(payload, lambda: False)(*payload["args"])

    assert [(masked(job.raw), job.at is not None) for job in enqueued] == masked_pushes(wanted)
