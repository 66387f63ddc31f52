"""What the redaction policy hides, and what it leaves."""

import json
import traceback
from pathlib import Path

import pytest

from sidekiq_py import program
from sidekiq_py.errors import ConfigError
from sidekiq_py.redaction import REDACTED, Redaction, current, names_of, use


def job(*args, klass="Mail", **more):
    """A payload."""
    return {"class": klass, "args": list(args), "jid": "j1", **more}


def test_what_looks_like_a_secret_is_hidden_without_any_setting():
    """At any depth, in upper and lower case."""
    hidden = Redaction().apply(job({"user": {"Password": "a", "api_token": ["b"], "name": "c"}}), "Mail")

    assert hidden["args"] == [{"user": {"Password": REDACTED, "api_token": REDACTED, "name": "c"}}]


@pytest.mark.parametrize("key", ["api_key", "apiKey", "X-API-Key", "private_key", "private-key"])
def test_a_key_is_a_secret_however_its_words_are_joined(key):
    """Jobs that call a service are often given its HTTP headers, whose names have hyphens."""
    assert Redaction().apply(job({key: "a"}), "Mail")["args"] == [{key: REDACTED}]


def test_a_policy_that_is_set_while_another_thread_reads_the_environment_stays(monkeypatch, tmp_path):
    """A worker's thread may log a job while the program is being configured."""
    path = tmp_path / "redaction.yml"
    path.write_text("keys: [name]")
    monkeypatch.setenv("SIDEKIQ_REDACTION", str(path))
    policy, read = Redaction(keys=["email"]), Path.read_text

    def set_meanwhile(*args):
        use(policy)
        return read(*args)

    monkeypatch.setattr(Path, "read_text", set_meanwhile)
    use(None)

    assert (current(), current()) == (policy, policy)


def test_keys_beside_the_arguments_are_hidden_too():
    """Such as the attributes of a request."""
    assert Redaction().apply(job(cattr={"secret": 1}), "Mail")["cattr"] == {"secret": REDACTED}


def test_arguments_are_hidden_by_their_place_in_jobs_of_a_class():
    """Other classes are left alone."""
    policy = Redaction(jobs={"Mail*": ["args[1]"]})

    assert policy.apply(job("a", "b"), "MailJob")["args"] == ["a", REDACTED]
    assert policy.apply(job("a", "b", klass="Other"), "Other")["args"] == ["a", "b"]


def test_all_arguments_of_a_class_are_hidden():
    """By one word."""
    assert Redaction(jobs={"Mail": ["args"]}).apply(job("a", "b"), "Mail")["args"] == REDACTED


def test_an_active_job_is_known_by_its_own_class_and_arguments():
    """They stand one level below."""
    wrapped = {"job_class": "Mail", "arguments": ["a", "b"], "job_id": "x"}

    hidden = Redaction(jobs={"Mail": ["args[0]"]}).apply(job(wrapped), "Sidekiq::ActiveJob::Wrapper", "Mail")

    assert hidden["args"] == [{"job_class": "Mail", "job_id": "x", "arguments": [REDACTED, "b"]}]


def test_a_task_s_arguments_are_hidden_in_the_texts_that_celery_makes_of_them():
    """Celery's clients send them once more as text, and those of pickled calls only in base64."""
    call = {"argsrepr": "(4111,)", "kwargsrepr": "{'password': 'hunter2'}", "origin": "gen@host"}
    task = job(4111, {"password": "hunter2"}, celery={"kw": True, **call})

    by_key = Redaction().apply(task)["celery"]
    by_position = Redaction(jobs={"Mail": ["args[0]"]}).apply(task)["celery"]

    assert by_key == {"kw": True, **call, "kwargsrepr": "{'password': '[redacted]'}"}
    assert by_position == {"kw": True, **call, "argsrepr": REDACTED, "kwargsrepr": REDACTED}
    for encoded in ("body", "message"):
        assert Redaction().apply(job(celery={encoded: "aHVudGVyMg=="}))["celery"] == {encoded: REDACTED}


@pytest.mark.parametrize("key", ["lock_args", "unique_args"])
@pytest.mark.parametrize("rule", ["args[0]", "args"])
def test_arguments_are_hidden_where_sidekiq_unique_jobs_writes_them_once_more(key, rule):
    """The gem chooses by a method of the program what it locks by, so a position says nothing about this copy."""
    unique = job("a", 4111, **{key: [4111], "lock_digest": "uniquejobs:d0ed"})
    policy = Redaction(jobs={"Mail": [rule]})

    assert policy.apply(unique)[key] == policy.part(unique, key) == REDACTED
    assert policy.apply(unique)["lock_digest"] == "uniquejobs:d0ed"
    assert Redaction().apply(unique)[key] == [4111]


def test_a_secret_in_an_argument_that_is_json_itself_is_hidden():
    """Such as the body of a request: if the whole payload were unreadable, it would be hidden, too."""
    request = json.dumps({"user": "anna", "password": "hunter2"})

    hidden = Redaction().apply(job([request], event={"body": request}))

    assert hidden["args"] == [['{"user": "anna", "password": "[redacted]"}']]
    assert "hunter2" not in str(hidden)


def test_a_step_that_waits_in_another_task_s_payload_is_hidden_by_its_own_rules():
    """Whatever comes before it may add arguments in front, so a position hides them all."""
    step = {"task": "Pay", "args": [4111], "kwargs": {"iban": 1, "to": 2}, "options": {}, "subtask_type": None}
    within = job(celery={"callbacks": [step], "chain": [step | {"task": "Other"}]})

    by_position = Redaction(jobs={"Pay": ["args[1]"]}).apply(within)["celery"]
    by_key = Redaction(jobs={"Pay": ["iban"]}).apply(within)["celery"]

    assert by_position["callbacks"] == [{**step, "args": REDACTED, "kwargs": REDACTED}]
    assert by_key["callbacks"] == [{**step, "kwargs": {"iban": REDACTED, "to": 2}}]
    assert by_position["chain"] == by_key["chain"] == within["celery"]["chain"]


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
        repr({"a": 1, "password": "hunter2"}),
        repr({"password": "it's hunter2"}),
        repr({"password": ("a", "hunter2")}),
        repr({"password": b"a hunter2"}),
        repr({"password": frozenset(("a", "hunter2"))}),
        "{'password': <Password hunter2>}",
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


def test_a_mail_is_known_by_its_mailer():
    """As pages show it, and by the mailer's name alone; whatever stands there instead is no name."""
    inner = {
        "job_class": "ActionMailer::MailDeliveryJob",
        "arguments": ["UserMailer", "welcome", "now", {"to": "anna"}],
    }

    assert {"UserMailer", "UserMailer#welcome"} < set(names_of(job(inner, klass="Wrapper")))
    assert names_of({"class": 7, "args": [{"job_class": inner["job_class"], "arguments": [7]}]}) == (
        inner["job_class"],
    )


@pytest.mark.parametrize(
    ("job_class", "own", "shown"),
    [
        (
            "ActionMailer::MailDeliveryJob",
            [{"params": {"to": "anna", "n": 1}, "args": ["anna", "b"], "_aj_ruby2_keywords": ["params", "args"]}],
            [{"params": {"to": REDACTED, "n": 1}, "args": [REDACTED, "b"], "_aj_ruby2_keywords": ["params", "args"]}],
        ),
        ("ActionMailer::DeliveryJob", ["anna", {"args": "b", "to": "anna"}], [REDACTED, {"args": "b", "to": REDACTED}]),
        ("ActionMailer::DeliveryJob", [{"args": ["anna"]}], [REDACTED]),
        ("ActionMailer::MailDeliveryJob", [{"args": "anna"}], [{"args": REDACTED}]),
        ("ActionMailer::MailDeliveryJob", [{"params": {}}], [{"params": {}}]),
        ("ActionMailer::MailDeliveryJob", ["anna"], [REDACTED]),
        ("ActionMailer::MailDeliveryJob", [], []),
    ],
)
def test_the_first_argument_of_a_mail_is_that_of_its_method(job_class, own, shown):
    """What precedes it in the payload names the mailer, and hides nothing."""
    inner = {"job_class": job_class, "arguments": ["UserMailer", "welcome", "deliver_now", *own]}

    hidden = Redaction(jobs={"UserMailer*": ["to", "args[0]"]}).apply(job(inner, klass="Wrapper"))

    assert hidden["args"] == [{**inner, "arguments": ["UserMailer", "welcome", "deliver_now", *shown]}]


def test_a_key_of_a_mail_may_hide_all_of_its_arguments():
    """Beside a rule for one of them."""
    inner = {"job_class": "ActionMailer::MailDeliveryJob", "arguments": ["M", "a", "deliver_now", {"args": [1, 2]}]}

    hidden = Redaction(jobs={"M": ["arg?", "args[0]"]}).apply(job(inner, klass="Wrapper"))

    assert hidden["args"][0]["arguments"][3] == {"args": REDACTED}


def test_the_file_of_the_environment_is_the_policy_until_a_program_sets_one(tmp_path, monkeypatch):
    """Of workers, commands and dashboards alike."""
    (tmp_path / "redaction.yml").write_text("keys: [iban]\njobs: {Mail: ['args[0]']}\n")
    monkeypatch.setenv("SIDEKIQ_REDACTION", str(tmp_path / "redaction.yml"))
    program.reset()

    assert current().apply(job("a", {"iban": 1, "password": 2}))["args"] == [
        REDACTED,
        {"iban": REDACTED, "password": 2},
    ]

    program.configure(redaction=Redaction.none())
    assert current().is_empty
    program.reset()


@pytest.mark.parametrize(
    "text",
    [
        "[a]",
        "keys: password",
        "jobs: {Mail: email}",
        "jobs: {Mail: ['args[x]']}",
        "secret: [a]",
        "a: b: c",
        "a: !!int b",
        None,
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_that_names_it(tmp_path, monkeypatch, text):
    """Rather than a policy that hides nothing."""
    if text is not None:
        (tmp_path / "redaction.yml").write_text(text)
    monkeypatch.setenv("SIDEKIQ_REDACTION", str(tmp_path / "redaction.yml"))
    use(None)

    with pytest.raises(ConfigError, match=r"redaction\.yml"):
        current()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"keys": "password"}, r"keys is 'password'; give a list: \['password'\]"),
        ({"jobs": {"Mail": "args[0]"}}, r"jobs\['Mail'\] is 'args\[0\]'; give a list"),
        ({"jobs": {"Mail": ["args[-1]"]}}, r"has 'args\[-1\]'; write args\[0\] for the first"),
        ({"keys": ["args[0]"]}, r"give jobs=\{'\*': \['args\[0\]'\]\}"),
        ({"jobs": ["Mail"]}, "map each class to what is hidden"),
    ],
)
def test_a_rule_that_would_hide_nothing_is_refused(rules, said):
    """The letters of a text match no key, so what the text names would be shown."""
    with pytest.raises(ConfigError, match=said):
        Redaction(**rules)


def test_an_error_keeps_its_name_and_place_where_its_text_is_hidden():
    """In jobs of that class alone."""
    policy = Redaction(jobs={"Mail": ["error_message"]})
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - whatever it says
        json.loads("anna")

    told = policy.error(raised.value, job())

    assert policy.error(raised.value, job(klass="Other")) is raised.value
    assert told.__traceback__ is raised.value.__traceback__
    assert "".join(traceback.format_exception_only(told)) == "json.decoder.JSONDecodeError: [redacted]\n"
