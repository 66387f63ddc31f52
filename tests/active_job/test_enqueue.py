"""Enqueuing for Rails: options, bulk, mails, what is passed on; no Redis but where it says so."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.active_job import (
    Keywords,
    active_job,
    adeliver_later,
    aperform_all_later,
    aperform_later,
    deliver_later,
    new_job,
    perform_all_later,
    perform_later,
)
from sidekiq_py.active_job.job_object import due_at_ns, utc_text
from sidekiq_py.errors import ArgumentTypeError, ConfigError, PayloadError
from sidekiq_py.testing import fake
from tests.active_job import pushes
from tests.active_job.masking import masked

RECORDED = json.loads(Path(__file__).with_name("recorded").joinpath("rails_7.2_pushes.json").read_text())


@pytest.mark.parametrize(("code", "push"), pushes.COMMON + pushes.SINCE_7_1)
def test_a_push_for_rails_7_2_has_the_bytes_that_rails_recorded(code, push):
    """Beside Sidekiq 7, what a Rails application of that age would have pushed by the same call."""
    sidekiq.configure(sidekiq_version="7.3.2")

    with fake() as enqueued:
        push()

    assert [[masked(job.raw), job.at is not None] for job in enqueued] == RECORDED[code]


@pytest.mark.parametrize(
    ("sidekiq_version", "wrapper"),
    [
        (None, "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"),
        ("7", "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"),
        ("8", "Sidekiq::ActiveJob::Wrapper"),
    ],
)
def test_the_wrapper_class_is_the_old_one_unless_sidekiq_8_is_known(sidekiq_version, wrapper):
    """Every release with an adapter loads the old name; only Sidekiq 8 writes the new one."""
    sidekiq.configure(sidekiq_version=sidekiq_version)

    with fake() as enqueued:
        perform_later("EchoJob")

    assert enqueued[0].payload["class"] == wrapper


def test_the_rails_version_may_be_told():
    """Sidekiq's release does not always tell Rails'."""
    with fake() as enqueued:
        perform_later("EchoJob", rails_version="7.2")
        perform_later("EchoJob", rails_version="6.1")

    assert ["scheduled_at" in job.payload["args"][0] for job in enqueued] == [True, False]
    for mistaken in ("latest", 7.1):
        with pytest.raises(ConfigError, match="rails_version"):
            perform_later("EchoJob", rails_version=mistaken)


def test_perform_later_returns_the_jid_and_keeps_a_given_job_id():
    """The jid is Sidekiq's, the job_id Active Job's own."""
    with fake() as enqueued:
        jid = perform_later("EchoJob", job_id="11111111-2222-4333-8444-555555555555")

    assert enqueued[0].jid == jid
    assert enqueued[0].payload["args"][0]["job_id"] == "11111111-2222-4333-8444-555555555555"


def test_a_stopped_push_is_none():
    """As with every push, client middleware may stop it."""
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: None)

    with fake() as enqueued:
        assert perform_later("EchoJob") is None
        assert perform_all_later([new_job("EchoJob")]) == [None]

    assert len(enqueued) == 0


def test_jobs_arrive_in_redis(redis_url, redis_client):
    """The bulk push, the single one and the scheduled one, over a real connection."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="6.4.1")

    jids = perform_all_later([new_job("A", n, queue=queue) for n, queue in enumerate(["low", "high", "low"])])
    soon = perform_later("A", 3, wait=60)

    low = [json.loads(raw) for raw in redis_client.lrange("queue:low", 0, -1)]
    [scheduled] = redis_client.zrange("schedule", 0, -1)
    assert [(job["jid"], job["args"][0]["arguments"]) for job in low] == [(jids[2], [2]), (jids[0], [0])]
    assert json.loads(scheduled)["jid"] == soon
    assert redis_client.smembers("queues") == {b"low", b"high"}


def test_a_job_that_is_due_goes_to_the_schedule_set_only_in_bulk(redis_url, redis_client):
    """As in Rails 7.1 and later: one push compares its time with the clock, `perform_all_later` does not."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8.0")

    perform_later("A", 1, wait=-60)
    perform_all_later([new_job("A", 2, wait=-60)])

    [at_once] = redis_client.lrange("queue:default", 0, -1)
    [scheduled] = redis_client.zrange("schedule", 0, -1)
    assert [json.loads(raw)["args"][0]["arguments"] for raw in (at_once, scheduled)] == [[1], [2]]


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (4102444800.25, "2100-01-01T00:00:00.250000000Z"),
        (4102444800.3, "2100-01-01T00:00:00.300000190Z"),
        (4102444800, "2100-01-01T00:00:00.000000000Z"),
    ],
)
def test_a_time_in_seconds_has_the_nanoseconds_that_ruby_sees_in_it(redis_url, redis_client, moment, text):
    """What `Time.at(…).iso8601(9)` prints: the exact value of the float, cut off."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8.0")

    perform_later("A", wait_until=moment)

    [(scheduled, score)] = redis_client.zrange("schedule", 0, -1, withscores=True)
    assert (json.loads(scheduled)["args"][0]["scheduled_at"], score) == (text, moment)


def test_the_awaited_twins_push_the_same():
    """`aperform_later`, `aperform_all_later` and `adeliver_later`."""

    async def push():
        first = await aperform_later("EchoJob", 1, Keywords(a=2))
        rest = await aperform_all_later([new_job("EchoJob", 2), new_job("EchoJob", 3, wait=5)])
        return [first, *rest, await adeliver_later("UserMailer", "welcome")]

    with fake() as enqueued:
        jids = asyncio.run(push())

    assert [job.jid for job in enqueued] == jids
    assert [job.args[0] for job in enqueued] == [1, 2, 3, "UserMailer"]


def test_an_unknown_option_says_how_to_pass_keywords():
    """The likeliest mistake is a keyword argument meant for Ruby's perform."""
    with pytest.raises(PayloadError, match=r"no option format; .* Keywords\(format=…\)"):
        perform_later("EchoJob", format="csv")
    with pytest.raises(PayloadError, match="Ruby class's name"):
        perform_later("")


def test_an_argument_that_active_job_lacks_is_refused_before_the_push():
    """Nothing is enqueued."""
    with fake() as enqueued, pytest.raises(ArgumentTypeError, match=r"arguments\[1\]"):
        perform_later("EchoJob", 1, object())

    assert len(enqueued) == 0


def test_a_declared_job_is_enqueued_with_what_it_declares():
    """Queue, priority and Sidekiq's options; a call's own options come over them, keyword arguments go as Ruby's."""

    @active_job("ReportJob", queue="reports", priority=3, sidekiq_options={"retry": 2})
    def report(number, *, format="csv"): ...

    with fake() as enqueued:
        report.perform_later(1, format="pdf")
        report.set(queue="low", wait=60).perform_later(2)
        perform_later("ReportJob", 3)

    assert [(job.queue, job.args, job.at is None) for job in enqueued] == [
        ("reports", [1, {"format": "pdf"}], True),
        ("low", [2], False),
        ("reports", [3], True),
    ]
    assert {job.payload["retry"] for job in enqueued} == {2}
    assert {job.payload["args"][0]["priority"] for job in enqueued} == {3}
    assert repr(report) == "<ActiveJob ReportJob>"


def test_locale_and_zone_of_the_running_job_are_passed_on():
    """As I18n.locale and Time.zone are inside of a Rails job."""

    @active_job("OuterJob")
    def outer():
        perform_later("InnerJob")

    with fake() as enqueued:
        perform_later("OuterJob", locale="de", timezone="Berlin")
        enqueued.perform_one()

    inner = enqueued[0].payload["args"][0]
    assert (inner["locale"], inner["timezone"]) == ("de", "Berlin")


def test_when_a_job_is_due():
    """Seconds, timedeltas, aware datetimes; exact to the microsecond."""
    now_ns = 1_700_000_000_000_000_001

    assert due_at_ns(None, None, now_ns) is None
    assert due_at_ns(1.5, None, now_ns) == now_ns + 1_500_000_000
    assert due_at_ns(timedelta(microseconds=1), None, now_ns) == now_ns + 1000
    assert due_at_ns(None, datetime(2023, 11, 14, 22, 13, 20, 5, UTC), now_ns) == 1_700_000_000_000_005_000
    assert due_at_ns(None, 12, now_ns) == 12_000_000_000
    assert utc_text(now_ns, has_fraction=True) == "2023-11-14T22:13:20.000000001Z"


@pytest.mark.parametrize(("wait", "wait_until"), [(1, 2), ("5", None), (None, datetime(2024, 1, 1))])
def test_an_unusable_moment_is_refused(wait, wait_until):
    """Both at once, a string, a naive datetime."""
    with pytest.raises(PayloadError, match="wait"):
        perform_later("EchoJob", wait=wait, wait_until=wait_until)


def test_many_jobs_are_those_of_new_job():
    """A name or another declared job says so, before anything is pushed."""
    with fake() as enqueued, pytest.raises(PayloadError, match="'EchoJob' is not a job; give what new_job"):
        perform_all_later([new_job("EchoJob"), "EchoJob"])

    assert not enqueued.jobs()


def test_one_job_is_no_list_of_jobs():
    """Without the list, Python's own error would not say what to give."""
    with fake(), pytest.raises(PayloadError, match=r"; give a list of what new_job"):
        perform_all_later(new_job("EchoJob"))


@pytest.mark.parametrize(("mailer", "action", "named"), [("UserMailer", 5, "action of UserMailer is 5"), (5, "a", "5")])
def test_a_mail_needs_the_names_of_its_mailer_and_action(mailer, action, named):
    """Rails could not send it."""
    with fake() as enqueued, pytest.raises(PayloadError, match=named):
        deliver_later(mailer, action)

    assert not enqueued.jobs()
