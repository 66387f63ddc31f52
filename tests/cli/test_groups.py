"""`--by`: how many jobs there are of each kind, in place of a list."""

import json
import time

import pytest

from sidekiq_py import program
from sidekiq_py.cli import groups
from sidekiq_py.redaction import Redaction


@pytest.fixture
def put(redis_client):
    """Puts jobs into a set, or a queue: `put("retry", 3, klass="Mail")` for three of them."""

    def put(key, number, *, klass="Boom", args=(), **more):
        for _ in range(number):
            put.jid += 1
            job = json.dumps({"class": klass, "args": list(args), "jid": str(put.jid), "queue": "default", **more})
            if key.startswith("queue:"):
                redis_client.sadd("queues", key.removeprefix("queue:"))
                redis_client.lpush(key, job)
            else:
                redis_client.zadd(key, {job: time.time() + put.jid})

    put.jid = 0
    return put


def counts(run, *words):
    """What `--json` lists, as (jobs, value, value, …)."""
    printed = json.loads(run(*words, "--json").stdout)
    assert printed["jobs"] == sum(one["jobs"] for one in printed["counts"])
    assert printed["groups"] == len(printed["counts"])
    return [tuple(one.values()) for one in printed["counts"]]


def test_the_retry_set_in_three_lines(run, put):
    """The largest first, with the number of all."""
    put("retry", 2, klass="Mail", error_class="Net::ReadTimeout")
    put("retry", 1200, klass="Sync", error_class="ValueError")
    put("retry", 2, klass="Mail", error_class="KeyError")

    assert run("retries", "list", "--by", "class,error").output.splitlines() == [
        " JOBS  CLASS  ERROR",
        "1,200  Sync   ValueError",
        "    2  Mail   KeyError",
        "    2  Mail   Net::ReadTimeout",
        "1,204 jobs in 3 groups.",
    ]
    assert run("retries", "--by", "class").output.splitlines()[1:] == [
        "1,200  Sync",
        "    4  Mail",
        "1,204 jobs in 2 groups.",
    ]


def test_the_shape_of_json(run, put):
    """A key for each word, in the order given; those that a job does not have are null."""
    put("dead", 2)

    printed = json.loads(run("dead", "list", "--by", "error,queue,class,arg", "--json").stdout)

    count = {"jobs": 2, "error": None, "queue": "default", "class": "Boom", "arg": "[]"}
    assert printed == {"jobs": 2, "groups": 1, "not_grouped": 0, "counts": [count]}
    assert list(printed["counts"][0]) == ["jobs", "error", "queue", "class", "arg"]
    assert "   2  -" in run("dead", "list", "--by", "error").output


def test_jobs_of_both_languages_are_counted_by_what_lists_show(run, as_ruby_wrote_it):
    """An Active Job by its own class and arguments, not the wrapper's."""
    for failed in ("first_failure", "error_class_namespaced", "active_job_first_failure"):
        as_ruby_wrote_it(failed)
    for scheduled in ("perform_in", "active_job_set_wait"):
        as_ruby_wrote_it(scheduled)
    for words in (["FixtureJob", '["ok", 1]'], ["myapp.sync", "[1]"], ["myapp.sync", "[1]"]):
        assert run("push", *words, "--in", "1h").exit_code == 0

    assert counts(run, "retries", "list", "--by", "class") == [(2, "FixtureJob"), (1, "EchoRaiseJob")]
    assert counts(run, "retries", "list", "--by", "error") == [(2, "FixtureError"), (1, "Fixtures::NestedError")]
    assert counts(run, "scheduled", "list", "--by", "class,arg") == [
        (2, "FixtureJob", '["ok", 1]'),
        (2, "myapp.sync", "[1]"),
        (1, "EchoJob", "[1]"),
    ]
    assert run("scheduled", "kill", "--all", "--yes").exit_code == 0
    assert counts(run, "dead", "list", "--by", "queue,class")[0] == (2, "default", "FixtureJob")


def test_jobs_of_a_queue_are_counted(run, put):
    """One customer that floods it is in the first line."""
    put("queue:low", 3, args=[4711])
    put("queue:low", 1, args=[1])
    put("queue:low", 1, klass="Mail", error_class="KeyError")

    assert counts(run, "queues", "show", "low", "--by", "arg") == [(3, "[4711]"), (1, "[1]"), (1, "[]")]
    assert counts(run, "queues", "show", "low", "--by", "class,error", "--class", "Mail") == [(1, "Mail", "KeyError")]
    # The payload of a job that was moved here names the old queue.
    assert counts(run, "queues", "show", "low", "--by", "queue") == [(5, "low")]


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        (["--class", "Mail"], 2),
        (["--queue", "low"], 3),
        (["--arg", '"x"'], 3),
        (["--match", "KeyError"], 2),
        (["--error", "keyerror"], 2),
        (["--before", "1"], 0),
        (["--after", "1"], 5),
    ],
)
def test_only_jobs_within_the_filters_are_counted(run, put, options, jobs):
    """All of the filters that the list takes."""
    put("retry", 2, klass="Mail", error_class="KeyError")
    put("retry", 3, queue="low", args=["x"])

    assert sum(one[0] for one in counts(run, "retries", "list", "--by", "class", *options)) == jobs


def test_the_limit_is_one_of_groups(run, put):
    """The last line says how many there are."""
    for number in range(30):
        put("retry", 1 + (number == 7), args=[number])

    lines = run("retries", "list", "--by", "arg").output.splitlines()
    printed = json.loads(run("retries", "list", "--by", "arg", "--limit", "2", "--json").stdout)

    assert (len(lines), lines[1], lines[-1]) == (
        27,
        "   2  [7]",
        "31 jobs in 30 groups; 25 shown, --limit 0 shows all.",
    )
    assert len(run("retries", "list", "--by", "arg", "--limit", "0").output.splitlines()) == 32
    assert (printed["jobs"], printed["groups"], len(printed["counts"])) == (31, 30, 2)


def test_memory_is_bounded_by_the_number_of_groups_and_the_rest_is_counted(run, put, monkeypatch):
    """A million jobs with arguments of their own are not kept. What is in no group is said, in JSON too."""
    monkeypatch.setattr(groups, "_MOST_GROUPS", 3)
    for number in range(5):
        put("retry", 2, args=[number])

    result = run("retries", "list", "--by", "arg")
    printed = json.loads(run("retries", "list", "--by", "arg", "--json").stdout)

    assert result.stdout.splitlines()[1:] == ["   2  [0]", "   2  [1]", "   2  [2]", "10 jobs in 3 groups."]
    assert result.stderr.startswith("4 jobs are in none of them: there are more than 3 groups")
    assert (printed["jobs"], printed["groups"], printed["not_grouped"]) == (10, 3, 4)


def test_long_arguments_are_cut_and_still_told_apart(run, put):
    """The text of a group is short, however long the arguments are."""
    put("retry", 2, args=["x" * 100_000 + "a"])
    put("retry", 1, args=["x" * 100_000 + "b"])

    found = counts(run, "retries", "list", "--by", "arg")

    assert [(jobs, len(text), text[-1]) for jobs, text in found] == [(2, 400, "…"), (1, 400, "…")]


def test_values_that_are_hidden_are_not_told_apart(run, put):
    """Otherwise the groups would tell whose secrets are the same."""
    program.configure(redaction=Redaction(jobs={"Charge": ["args[0]"], "Sync": ["error_class"]}))
    put("retry", 1, klass="Charge", args=["card-1", 5])
    put("retry", 1, klass="Charge", args=["card-2", 5])
    put("retry", 1, klass="Sync", error_class="Card1Error")

    by_arg = run("retries", "list", "--by", "arg").output + run("retries", "list", "--by", "arg", "--json").output

    assert counts(run, "retries", "list", "--by", "class,arg", "--class", "Charge") == [
        (2, "Charge", '["[redacted]", 5]')
    ]
    assert "card-" not in by_arg
    assert "Card1Error" not in run("retries", "list", "--by", "error").output


@pytest.mark.parametrize("rule", [{"EchoRaiseJob": ["error_*"]}, {"Sidekiq::ActiveJob::*": ["error_class"]}], ids=str)
def test_an_error_is_hidden_by_each_name_of_its_job(run, as_ruby_wrote_it, rule):
    """That of the Active Job, and that of the wrapper."""
    as_ruby_wrote_it("active_job_first_failure")
    program.configure(redaction=Redaction(jobs=rule))

    assert counts(run, "retries", "list", "--by", "class,error") == [(1, "EchoRaiseJob", "[redacted]")]


def test_secrets_are_hidden_without_a_policy(run, put):
    """As in lists."""
    put("queue:low", 1, args=[{"password": "hunter2"}])
    put("queue:low", 1, args=[{"password": "swordfish"}])

    assert counts(run, "queues", "show", "low", "--by", "arg") == [(2, '[{"password": "[redacted]"}]')]


def test_what_is_no_job_is_a_group_of_its_own(run, redis_client):
    """Payloads come from anywhere, and a terminal would obey some of them."""
    redis_client.zadd("dead", {b"\x1b[2Jnot json": 1, b"[]": 2})

    shown = run("dead", "list", "--by", "class,arg").output

    assert counts(run, "dead", "list", "--by", "class,queue") == [(2, None, None)]
    assert "not json" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("words", [["retries", "list"], ["queues", "show", "low"]], ids=" ".join)
def test_a_word_that_is_none_is_refused(run, put, words):
    """The error lists the words."""
    put("queue:low", 1)

    for given in ("host", "class,", ""):
        result = run(*words, "--by", given)
        assert result.exit_code == 2
        assert "is not one of class, queue, error, arg; several as in class,error" in result.output
    assert run(*words, "--by", "class, class").exit_code == 0


def test_nothing_to_count(run, put, redis_client):
    """As the list says it."""
    put("queue:low", 1)

    assert run("retries", "list", "--by", "class").output == "No jobs found.\n"
    assert run("queues", "show", "low", "--by", "class", "--class", "Nope").output == "No jobs found.\n"
    assert json.loads(run("scheduled", "list", "--by", "class", "--json").stdout) == {
        "jobs": 0,
        "groups": 0,
        "not_grouped": 0,
        "counts": [],
    }


def test_a_large_set_is_read_page_by_page(run, redis_client):
    """In few round trips."""
    redis_client.zadd("retry", {json.dumps({"class": f"C{n % 3}", "args": [], "jid": str(n)}): n for n in range(5000)})
    redis_client.config_resetstat()

    assert counts(run, "retries", "list", "--by", "class") == [(1667, "C0"), (1667, "C1"), (1666, "C2")]
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] <= 10
