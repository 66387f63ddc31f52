"""Reading a job as it stands in Redis, whoever wrote it."""

import json
from datetime import UTC, datetime

import pytest

from sidekiq_py.api import JobRecord
from sidekiq_py.api.job_record import seconds_of
from sidekiq_py.redaction import Redaction
from sidekiq_py.wire.dialect import NEW_WRAPPER, OLD_WRAPPER, Dialect
from sidekiq_py.wire.failure import compress_backtrace


def record(**job):
    """A record of these keys."""
    return JobRecord(json.dumps(job).encode())


def test_the_fields_of_a_failed_job_are_read():
    """The names are Ruby's."""
    job = record(
        **{"class": "Boom"},
        args=[1],
        jid="j1",
        queue="low",
        tags=["a"],
        retry_count=2,
        error_class="ValueError",
        error_message="no",
        failed_at=1_700_000_000.5,
        retried_at=1_700_000_100_500,
        bid="b1",
        custom={"x": 1},
    )

    assert (job.klass, job.args, job.jid, job.queue, job.tags, job.bid) == ("Boom", [1], "j1", "low", ["a"], "b1")
    assert (job.retry_count, job.error_class, job.error_message) == (2, "ValueError", "no")
    assert job.failed_at == datetime.fromtimestamp(1_700_000_000.5, UTC)
    assert job.retried_at == datetime.fromtimestamp(1_700_000_100.5, UTC)
    assert (job["custom"], job.get("custom"), job.get("nothing")) == ({"x": 1}, {"x": 1}, None)


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        (1_700_000_000.25, 1_700_000_000.25),
        (1_700_000_000_250, 1_700_000_000.25),
        (1_700_000_000, 1_700_000_000.0),
        ("1700000000.25", 1_700_000_000.25),
        (None, None),
        ("yesterday", None),
        (True, None),
        (float("inf"), None),
        (10**400, None),
        ([], None),
    ],
)
def test_times_of_every_release_are_read(stamp, seconds):
    """Float seconds, whole milliseconds, the whole seconds of foreign writers, and text."""
    assert seconds_of(stamp) == seconds


@pytest.mark.parametrize("raw", [b"not json", b"[1,2]", b"2", b"null", b"", b'"x"', b"\xff\xfe", b'{"args":'])
def test_what_is_no_job_is_shown_as_its_text(raw):
    """Nothing raises; a list of jobs shows the text as the only argument."""
    job = JobRecord(raw)

    assert (job.is_readable, job.item, job.klass, job.jid, job.latency) == (False, {}, None, None, 0.0)
    assert job.args == job.display_args == [raw.decode(errors="replace")]
    assert repr(job) == "<JobRecord None jid=None queue=None>"


def test_fields_of_wrong_types_read_as_absent():
    """A foreign writer's payload must not break a page."""
    job = record(**{"class": 5}, args="x", jid=7, tags="t", retry_count="3", created_at={}, error_backtrace=3)

    assert (job.klass, job.args, job.jid, job.tags, job.retry_count) == (None, [], None, [], None)
    assert (job.created_at, job.error_backtrace) == (None, None)


@pytest.mark.parametrize("version", ["6.0.0", "6.4.1", "8"])
def test_backtraces_of_every_release_are_read(version):
    """Compressed with and without line breaks."""
    lines = [f"file.rb:{n}:in `perform'" for n in range(40)]

    assert record(error_backtrace=compress_backtrace(lines, dialect=Dialect.pinned(version))).error_backtrace == lines
    assert record(error_backtrace=lines).error_backtrace == lines


@pytest.mark.parametrize("wrapper", [OLD_WRAPPER, NEW_WRAPPER])
def test_an_active_job_is_shown_by_its_own_class_and_arguments(wrapper):
    """The wrapper's names of all releases; Rails' marks left out."""
    arguments = [
        1,
        {"_aj_globalid": "gid://app/User/1"},
        {"_aj_serialized": "ActiveJob::Serializers::SymbolSerializer", "value": "sym"},
        {"a": 1, "_aj_symbol_keys": ["a"]},
    ]
    job = record(**{"class": wrapper}, wrapped="SendMail", args=[{"job_class": "SendMail", "arguments": arguments}])

    assert job.display_class == "SendMail"
    assert job.display_args == [1, "gid://app/User/1", "sym", {"a": 1}]


@pytest.mark.parametrize("wrapper", [OLD_WRAPPER, NEW_WRAPPER])
def test_an_active_job_that_names_its_class_in_its_arguments_alone_is_shown_by_it(wrapper):
    """Programs other than Rails may leave `wrapped` out; Ruby runs the job as any other."""
    job = record(**{"class": wrapper}, args=[{"job_class": "Charge", "arguments": [1]}])

    assert (job.display_class, job.display_args) == ("Charge", [1])


def test_a_mail_is_shown_by_mailer_and_action():
    """What is interesting of a mail are its parameters."""
    arguments = ["UserMailer", "welcome", "deliver_now", {"params": {"id": 5}, "args": [7], "_aj_symbol_keys": []}]
    job = record(**{"class": NEW_WRAPPER}, wrapped="ActionMailer::MailDeliveryJob", args=[{"arguments": arguments}])

    assert job.display_class == "UserMailer#welcome"
    assert job.display_args == [{"id": 5}, [7]]


@pytest.mark.parametrize("args", [[], [None], ["Old"], [{}], [{"arguments": None}], [{"job_class": 5}]])
def test_a_broken_active_job_is_shown_as_far_as_it_goes(args):
    """No shape of the arguments raises."""
    job = record(**{"class": OLD_WRAPPER}, args=args)

    assert job.display_args == []
    assert job.display_class in (None, "Old")


def test_an_encrypted_argument_is_hidden():
    """Sidekiq Enterprise encrypts the last argument."""
    job = record(**{"class": "Secret"}, encrypt=True, args=[1, "QmFzZTY0"])

    assert job.display_args == [1, "[encrypted data]"]
    assert job.args == [1, "QmFzZTY0"]


@pytest.mark.parametrize("wrapping", [{}, {"class": NEW_WRAPPER, "wrapped": "Charge"}], ids=["plain", "Active Job"])
def test_a_job_whose_arguments_are_all_hidden_does_not_look_as_if_it_had_none(wrapping):
    """In the dashboard, and in the tables and the JSON of the command line."""
    inside = {"job_class": "Charge", "arguments": [1, "4111"]}
    job = record(**{"class": "Charge", **wrapping}, args=[inside] if wrapping else [1, "4111"])

    assert job.redacted(Redaction(jobs={"Charge": ["args"]})).display_args == ["[redacted]"]


def test_display_class_in_the_payload_comes_first():
    """A job may name itself for people."""
    assert record(**{"class": "A"}, display_class="Nightly report").display_class == "Nightly report"


@pytest.mark.parametrize("args", [{"order": 7}, "order 7", 7, False])
def test_arguments_that_are_no_list_are_shown(args):
    """No worker runs such a job; an operator has to see why."""
    job = record(**{"class": "Charge"}, args=args)

    assert job.display_args == [args]
    assert job.redacted(Redaction(jobs={"Charge": ["args[0]"]})).display_args == ["[redacted]"]
    assert job.args == []
