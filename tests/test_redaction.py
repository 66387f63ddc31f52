"""What the redaction policy hides, and what it leaves."""

import json

import pytest

from sidekiq_py.redaction import REDACTED, Redaction


def job(*args, klass="Mail", **more):
    """A payload."""
    return {"class": klass, "args": list(args), "jid": "j1", **more}


def test_what_looks_like_a_secret_is_hidden_without_any_setting():
    """At any depth, in upper and lower case."""
    hidden = Redaction().apply(job({"user": {"Password": "a", "api_token": ["b"], "name": "c"}}), "Mail")

    assert hidden["args"] == [{"user": {"Password": REDACTED, "api_token": REDACTED, "name": "c"}}]


def test_keys_beside_the_arguments_are_hidden_too():
    """Such as the attributes of a request."""
    assert Redaction().apply(job(cattr={"secret": 1}), "Mail")["cattr"] == {"secret": REDACTED}


def test_arguments_are_hidden_by_their_place_in_jobs_of_a_class():
    """Other classes are left alone."""
    policy = Redaction(jobs={"Mail*": ["args[1]"]})

    assert policy.apply(job("a", "b"), "MailJob")["args"] == ["a", REDACTED]
    assert policy.apply(job("a", "b"), "Other")["args"] == ["a", "b"]


def test_all_arguments_of_a_class_are_hidden():
    """By one word."""
    assert Redaction(jobs={"Mail": ["args"]}).apply(job("a", "b"), "Mail")["args"] == REDACTED


def test_an_active_job_is_known_by_its_own_class_and_arguments():
    """They stand one level below."""
    wrapped = {"job_class": "Mail", "arguments": ["a", "b"], "job_id": "x"}

    hidden = Redaction(jobs={"Mail": ["args[0]"]}).apply(job(wrapped), "Sidekiq::ActiveJob::Wrapper", "Mail")

    assert hidden["args"] == [{"job_class": "Mail", "job_id": "x", "arguments": [REDACTED, "b"]}]


def test_error_texts_are_hidden_by_their_keys():
    """As they may repeat an argument."""
    policy = Redaction(jobs={"Mail": ["error_message"]})

    assert policy.apply(job(error_message="no anna", error_class="E"), "Mail")["error_message"] == REDACTED


def test_the_payload_itself_stays():
    """The policy is about what is shown."""
    payload = job({"password": "a"})

    Redaction().apply(payload, "Mail")

    assert payload["args"] == [{"password": "a"}]


def test_nothing_is_hidden_by_a_policy_without_rules():
    """Whoever wants to see everything says so."""
    assert Redaction.none().is_empty
    assert Redaction.none().apply(job({"password": "a"}), "Mail") == job({"password": "a"})


@pytest.mark.parametrize(
    "text",
    [
        '{"password": "hunter2',
        '{"password":"hunter2"} x',
        '\x00{\'a\':1,"password" : "hunter2"',
        '"password":hunter2,',
        '[{"password": ["a", "hunter2"]}]',
        '[{"password": {"a": 1, "b": "hunter2"}}',
        json.dumps(json.dumps({"args": [{"password": 'a"hunter2'}]})),
        json.dumps(json.dumps({"password": "hunter2", "a": [1]})),
    ],
)
def test_text_that_is_no_json_is_masked_as_well_as_it_can_be(text):
    """What stands behind a hidden key."""
    masked = Redaction().mask_text(text)

    assert "hunter2" not in masked
    assert REDACTED in masked


def test_text_that_is_no_json_is_not_shown_where_rules_for_single_jobs_may_be_about_it():
    """Nobody knows which job it is."""
    assert Redaction(jobs={"Mail": ["args"]}).mask_text("junk") is None
