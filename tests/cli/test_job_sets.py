"""`retries`, `scheduled` and `dead`: list, retry, kill, delete."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_terminal import on_terminal
from tests.support.waiting import eventually

LATER = 4_000_000_000
PAYLOADS = Path(__file__).parents[2] / "ruby_fixtures" / "payloads"
RESCHEDULED = sorted(
    path.relative_to(PAYLOADS) for name in ("resched*", "unknown_keys_resched*") for path in PAYLOADS.glob(f"*/{name}")
)


@pytest.fixture
def put(redis_client):
    """Puts jobs into a set, each due later than the one before: `put("retry", "a", "b", klass="Mail")`."""

    def put(key, *jids, klass="Boom", queue="default", **more):
        for place, jid in enumerate(jids):
            job = {"retry": True, "queue": queue, "class": klass, "args": [jid], "jid": jid, "created_at": 1.5, **more}
            redis_client.zadd(key, {json.dumps(job, separators=(",", ":")): LATER + place})

    return put


def jids(redis_client, key):
    """The ids of the jobs in a set."""
    return [json.loads(raw)["jid"] for raw in redis_client.zrange(key, 0, -1)]


def test_lists_show_what_is_due_first_in_front(run, put):
    """The list has class, arguments and the last error."""
    put("retry", "a", "b", error_class="ValueError", error_message="no\nmore", retry_count=2)

    head, first, second = run("retries", "list").output.splitlines()

    assert head.split() == ["JID", "DUE", "QUEUE", "CLASS", "ARGS", "ERROR"]
    assert first.startswith("a  ")
    assert first.endswith('["a"]  ValueError: no more')
    assert second.startswith("b  ")


def test_the_dead_are_listed_latest_first(run, put):
    """The most recent death is the one that people look for."""
    put("dead", "a", "b")

    assert [entry["jid"] for entry in json.loads(run("dead", "list", "--json").output)] == ["b", "a"]


def test_a_long_list_says_how_much_it_shows(run, put):
    """The default is 25; 0 shows all."""
    put("schedule", *(str(n) for n in range(30)))

    assert "25 of 30 shown; --limit 0 shows all." in run("scheduled", "list").output
    assert len(run("scheduled", "list", "--limit", "0").output.splitlines()) == 31
    assert "The first 25 matches are shown; --limit 0 shows all." in run("scheduled", "list", "--class", "Boom").output
    assert "No jobs found." in run("retries", "list").output


@pytest.mark.parametrize(
    "arguments",
    [("retries", "list"), ("scheduled",), ("dead", "list"), ("queues", "show", "default"), ("batches", "list")],
    ids=" ".join,
)
def test_a_negative_limit_is_a_usage_error(run, put, arguments):
    """A slip such as -n -1 must not print a whole set, as 0 does."""
    put("retry", "a")

    result = run(*arguments, "--limit", "-1")

    assert result.exit_code == 2
    assert "-1 is not in the range x>=0" in result.output


def test_one_long_job_id_or_queue_does_not_widen_the_lines_of_all(run, put):
    """A table of ten thousand jobs would have gigabytes."""
    put("retry", "a", "j" * 100_000, queue="q" * 100_000)

    lines = run("retries", "list").output.splitlines()

    assert max(map(len, lines)) < 1000
    assert "j" * 100 in lines[2]
    assert lines[2].split()[0].endswith("…")


@pytest.mark.parametrize("command", [["retries", "list"], ["find", "a"]], ids=lambda command: command[0])
def test_an_error_is_whole_where_nobody_cuts_it_to_a_screen(run, put, command):
    """`grep` finds its end. It stays on one line, and a terminal that shows the file obeys nothing in it."""
    put("retry", "a", error_class="Boom", error_message="x" * 2_000 + "\n\x1b[31m at the end")
    put("retry", "b", error_class="Boom", error_message="short")

    _, line, *others = run(*command).output.splitlines()

    assert line.endswith(f"Boom: {'x' * 2_000} \ufffd[31m at the end")
    assert max(map(len, others), default=0) < 200


def test_json_holds_nothing_that_a_terminal_obeys(run, redis_client):
    """It is the same JSON; xterm takes U+009B for the start of a command, and U+202E turns the rest of the line."""
    text = "\x7f\x9b31m\u202e\u2066\u2028\ufeffé"
    job = {"class": "Boom", "jid": "a", "args": [text]}
    redis_client.zadd("dead", {json.dumps(job, ensure_ascii=False): 1})

    printed = run("dead", "list", "--json").output

    assert json.loads(printed)[0]["args"] == [text]
    assert printed.replace("\n", "").replace("é", "").isascii()
    assert "\x7f" not in printed


@pytest.mark.parametrize("score", ["inf", "-inf"])
def test_an_infinite_score_is_null_in_json(run, redis_client, score):
    """Redis takes it from anyone, JSON has no number for it, and the jobs beside it are to be read."""
    redis_client.zadd("dead", {'{"class":"Boom","jid":"a","args":[]}': score})

    printed = run("dead", "list", "--json").output

    [shown] = json.loads(printed, parse_constant=pytest.fail)
    assert (shown["jid"], shown["score"]) == ("a", None)


def test_integers_that_python_does_not_print_stop_no_list(run, put, redis_client):
    """They are shown exactly, and so are the other jobs."""
    long = "9" * 5000
    redis_client.zadd("dead", {f'{{"class":"Boom","jid":"long","args":[{long},1E400],"retry_count":{long}}}': 1})
    mail = f'[{{"job_class":"ActionMailer::MailDeliveryJob","arguments":[{long},{long}]}}]'
    wrapper = '"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"'
    redis_client.zadd(
        "dead", {f'{{"class":{wrapper},"wrapped":"ActionMailer::MailDeliveryJob","jid":"mail","args":{mail}}}': 2}
    )
    put("dead", "a")

    table, listed = run("dead", "list"), run("dead", "list", "--json")

    assert [line.split()[0] for line in table.output.splitlines()] == ["JID", "a", "mail", "long"]
    assert listed.exit_code == 0
    assert f'"args": [{long},Infinity]'.replace(" ", "") in listed.output.replace(" ", "")
    assert run("dead", "list", "--class", "Boom").exit_code == 0


def test_a_list_can_be_narrowed(run, put):
    """By class, queue, and text in the payload."""
    put("retry", "a", klass="Mail")
    put("retry", "b", klass="Mail", queue="low")
    put("retry", "c", note="50% [x]*")

    def listed(*options):
        return [entry["jid"] for entry in json.loads(run("retries", "list", "--json", *options).output)]

    assert listed("--class", "Mail") == ["a", "b"]
    assert listed("--class", "Mail", "--queue", "low") == ["b"]
    assert listed("--match", "50% [x]*") == ["c"]
    assert listed("--match", "[ab]") == []


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--error", "readtimeout"], ["b"]),
        (["--arg", '["c"]'], ["c"]),
        (["--after", "2096-10-02T07:06:41Z"], ["b", "c"]),
        (["--before", str(LATER + 1)], ["a"]),
        (["--before", "+1h"], []),
        (["--match", "note", "--error", "readtimeout"], ["b"]),
    ],
)
def test_filters_choose_alike_in_lists_dry_runs_and_actions(run, put, redis_client, options, found):
    """By error, argument and time, alone or combined."""
    put("retry", "a", note="x")
    redis_client.zadd(
        "retry", {b'{"class":"Boom","args":["b"],"jid":"b","note":"x","error_class":"Net::ReadTimeout"}': LATER + 1}
    )
    redis_client.zadd("retry", {b'{"class":"Boom","args":["c"],"jid":"c"}': LATER + 2})

    listed = [entry["jid"] for entry in json.loads(run("retries", "list", "--json", *options).output)]
    counted = json.loads(run("retries", "delete", "--dry-run", "--json", *options).output)["count"]
    deleted = json.loads(run("retries", "delete", "--yes", "--json", *options).output)["moved"]

    assert (listed, counted, deleted) == (found, len(found), len(found))
    assert set(jids(redis_client, "retry")) == {"a", "b", "c"} - set(found)


def test_a_queue_that_is_nearly_spelled_like_another_is_told(run, put, redis_client):
    """This is no error, because a job may be scheduled for a queue that does not exist yet."""
    redis_client.sadd("queues", "mailers")
    put("schedule", "a", queue="mailers")

    listed = run("scheduled", "list", "--queue", "mailer")
    deleted = run("scheduled", "delete", "--queue", "mailer", "--yes")

    for result in (listed, deleted, run("jobs", "--queue", "mailer")):
        assert (result.exit_code, result.stderr) == (0, "There is no queue mailer. Did you mean mailers?\n")
    assert run("scheduled", "list", "--queue", "mailers").stderr == ""
    assert jids(redis_client, "schedule") == ["a"]


def test_raw_text_is_listed_without_what_a_terminal_would_obey(run, redis_client):
    """Payloads come from anywhere."""
    redis_client.zadd("dead", {b"\x1b[2Jnot json\x07": 1})

    shown = run("dead", "list").output
    [entry] = json.loads(run("dead", "list", "--json").output)

    assert "not json" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert (entry["jid"], entry["args"], entry["payload"]) == (None, ["\x1b[2Jnot json\x07"], None)


def test_retry_by_id_enqueues_that_job(run, put, redis_client):
    """The other jobs stay, and this does not count as a retry."""
    put("retry", "a", "b", retry_count=2)

    result = run("retries", "retry", "a")

    assert (result.exit_code, result.output) == (0, "1 job enqueued.\n")
    assert json.loads(redis_client.lindex("queue:default", 0))["retry_count"] == 1
    assert jids(redis_client, "retry") == ["b"]


def test_a_scheduled_job_is_enqueued_as_it_is(run, put, redis_client):
    """It does not become a retry."""
    put("schedule", "a", retry_count=2)

    run("scheduled", "retry", "a")

    assert json.loads(redis_client.lindex("queue:default", 0))["retry_count"] == 2


@pytest.mark.parametrize("path", RESCHEDULED, ids=str)
def test_a_rescheduled_job_is_left_as_ruby_would_leave_it(run, redis_client, path):
    """At its new time and with its bytes, in each release."""
    recorded = json.loads((PAYLOADS / path).read_text())
    given, key = recorded["input"], recorded["key"]
    redis_client.zadd(key, {given["before"]: given["score"], "other": given["score"]})
    command = {"retry": "retries", "schedule": "scheduled"}[key]
    jid = json.loads(given["before"])["jid"]

    result = run(command, "reschedule", jid, "--at", str(given["at"]), "--sidekiq-version", path.parts[0])

    assert (result.exit_code, result.output.startswith("1 job rescheduled to 2023-11-15T00:43:20")) == (0, True)
    [member], [score] = recorded["members"], recorded["scores"]
    assert redis_client.zrange(key, 0, -1, withscores=True) == [
        (b"other", given["score"]),
        (member.encode(), float(score)),
    ]


def test_a_job_that_python_scheduled_waits_for_the_time_given(run, redis_client):
    """In each of the forms in which `push` takes a time; its bytes stay."""
    jid = run("push", "myapp.sync", '[1.5, "é"]', "--in", "1h").output.strip()
    [(member, _)] = redis_client.zrange("schedule", 0, -1, withscores=True)

    for words, score in ((["--at", "2096-10-02T07:06:40Z"], LATER), (["--at", "4000000000.25"], LATER + 0.25)):
        assert run("scheduled", "reschedule", jid, *words).exit_code == 0
        assert redis_client.zrange("schedule", 0, -1, withscores=True) == [(member, score)]
    before = time.time()
    assert run("scheduled", "reschedule", "--class", "myapp.sync", "--in", "1h30m", "--yes").exit_code == 0
    [(moved, score)] = redis_client.zrange("schedule", 0, -1, withscores=True)
    assert moved == member
    assert before + 5400 <= score <= time.time() + 5400


@pytest.mark.parametrize(
    "options", [["--all"], ["--class", "Boom"], ["--match", "Boom"], ["--after", "1"]], ids=" ".join
)
def test_a_job_that_is_met_again_at_its_new_time_is_moved_once(run, redis_client, put, options):
    """The walk goes up through jobs due before that time, those that it has moved there, and jobs due later."""
    put("schedule", *(str(number) for number in range(5000)))
    at = LATER + 2500

    planned = run("scheduled", "reschedule", *options, "--at", str(at), "--dry-run", "--json")
    done = run("scheduled", "reschedule", *options, "--at", str(at), "--yes", "--json")

    # One is due at that time already.
    assert json.loads(planned.stdout) == {"count": 4999}
    assert json.loads(done.stdout) == {"moved": 4999, "gone": 0, "refused": 0, "errors": [], "missing": []}
    assert redis_client.zcount("schedule", at, at) == 5000
    again = run("scheduled", "reschedule", *options, "--at", str(at), "--dry-run")
    assert again.output == "0 jobs would be rescheduled to 2096-10-02T07:48:20+00:00.\n"


def test_jobs_in_a_namespace_are_rescheduled(run, redis_client):
    """As of Sidekiq 6 with redis-namespace."""
    redis_client.zadd("shop:retry", {'{"class":"Boom","args":[],"jid":"a"}': 1})

    result = run("retries", "reschedule", "--class", "Boom", "--at", str(LATER), "--yes", "--namespace", "shop")

    assert result.exit_code == 0
    assert redis_client.zrange("shop:retry", 0, -1, withscores=True)[0][1] == LATER
    assert redis_client.keys("*") == [b"shop:retry"]


def test_rescheduling_by_a_filter_asks_and_says_to_when(redis_url, redis_client, put):
    """The times that the jobs have now are lost with it."""
    put("retry", "a", "b", klass="Mail")
    words = ["retries", "reschedule", "--class", "Mail", "--at", "2096-10-02T08:00:00Z"]

    code, _, shown = on_terminal(redis_url, words, typed="n\n")

    assert code == 1
    assert "Reschedule all 2 retries that match to 2096-10-02T08:00:00+00:00? [y/N]" in shown
    assert redis_client.zcount("retry", LATER, LATER + 1) == 2


def test_an_id_that_is_not_there_is_not_rescheduled(run, redis_client, put):
    """It may be in a queue by now; nothing is written for it."""
    put("retry", "a")

    result = run("retries", "reschedule", "a", "nobody", "--at", str(LATER + 9))

    assert result.exit_code == 1
    assert result.stdout == "1 job rescheduled to 2096-10-02T07:06:49+00:00.\n"
    assert result.stderr == "No job here has the id nobody.\n"
    assert redis_client.zcard("retry") == 1


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["a"], "when should the jobs run? Give --at TIME or --in SPAN"),
        (["a", "--at", "1", "--in", "1"], "give one of them"),
        (["a", "--at", "4000000000000"], "give epoch seconds, not milliseconds"),
        (["a", "--in", "9999999999d"], "--in is too far off: 9,999,999,999 days; the last year is 9999"),
        (["a", "--at", "9" * 400], "is too far off"),
        (["a", "--at", "tomorrow"], "'tomorrow' is not a time"),
        (["a", "--in", "soon"], "'soon' is not a duration"),
        (["--in", "1h"], "which jobs?"),
        (["--all", "--in", "1h"], "add --yes"),
    ],
)
def test_a_reschedule_that_is_not_clear_does_nothing(run, put, redis_client, words, advice):
    """As with the other commands that change a set."""
    put("retry", "a")

    result = run("retries", "reschedule", *words)

    assert (result.exit_code, advice in result.output) == (2, True)
    assert redis_client.zrange("retry", 0, -1, withscores=True)[0][1] == LATER
    assert "No such command 'reschedule'" in run("dead", "reschedule", "a", "--in", "1h").output


def test_an_id_that_is_given_twice_is_one_job(run, put):
    """The second one of it is not a job that somebody else has taken."""
    put("retry", "a")

    planned, done = (run("retries", "delete", "a", "a", "--json", *option) for option in (["--dry-run"], []))

    assert json.loads(planned.stdout)["count"] == 1
    assert (json.loads(done.stdout)["moved"], json.loads(done.stdout)["gone"]) == (1, 0)


def test_an_unknown_id_fails_and_says_which(run, put):
    """The ids that are known are processed."""
    put("retry", "a")

    result = run("retries", "delete", "a", "nobody", "--json")

    assert result.exit_code == 1
    outcome = json.loads(result.output)
    assert (outcome["moved"], outcome["missing"]) == (1, ["nobody"])
    assert "No job here has the id x." in run("retries", "kill", "x").output


def test_many_ids_are_looked_for_together(run, put, redis_client):
    """A search for each of a hundred ids would take Redis a hundred times as long as one for a single id."""
    put("retry", *(str(n) for n in range(250)))
    redis_client.config_resetstat()

    result = run("retries", "retry", "nobody", *(str(n) for n in range(100, 0, -1)), "--json")

    outcome = json.loads(result.output)
    assert (outcome["moved"], outcome["missing"]) == (100, ["nobody"])
    assert jids(redis_client, "retry") == ["0", *(str(n) for n in range(101, 250))]
    [first, *_] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(first)["jid"] == "1", "they were pushed in the order of the ids"
    assert redis_client.info("commandstats").get("cmdstat_zscan", {"calls": 0})["calls"] <= 1


@pytest.mark.parametrize(("command", "key"), [("kill", "dead"), ("retry", "queue:default"), ("delete", None)])
def test_all_of_a_set_at_once(run, put, redis_client, command, key):
    """All jobs are moved and counted."""
    put("retry", *(str(n) for n in range(250)))

    result = run("retries", command, "--all", "--yes")

    assert result.exit_code == 0
    assert result.output.startswith("250 jobs ")
    assert redis_client.zcard("retry") == 0
    if key:
        assert (redis_client.zcard(key) if key == "dead" else redis_client.llen(key)) == 250


def test_a_filter_chooses_what_is_moved(run, put, redis_client):
    """Here, every job of one class."""
    put("dead", "a", "b", klass="Mail")
    put("dead", "c")

    assert run("dead", "delete", "--class", "Mail", "-y").output == "2 jobs deleted.\n"
    assert jids(redis_client, "dead") == ["c"]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("retries", "retry"), "which jobs?"),
        (("retries", "kill", "a", "--all"), "use one"),
        (("retries", "delete", "--all"), "add --yes"),
        (("dead", "kill", "a"), "No such command 'kill'"),
    ],
)
def test_a_command_that_is_not_clear_does_nothing(run, put, redis_client, arguments, advice):
    """The error says what is missing."""
    put("retry", "a")

    result = run(*arguments)

    assert (result.exit_code, advice in result.output) == (2, True)
    assert jids(redis_client, "retry") == ["a"]


def test_what_cannot_be_pushed_stays_and_fails_the_command(run, put, redis_client):
    """The reason is shown for each."""
    put("dead", "a")
    redis_client.zadd("dead", {b"not json": 1})

    result = run("dead", "retry", "--all")

    assert result.exit_code == 1
    assert "1 job enqueued." in result.output
    assert "1 job was left in place:" in result.output
    assert redis_client.zrange("dead", 0, -1) == [b"not json"]


def test_times_are_told_from_now(run, redis_client):
    """As how long ago they were or how far ahead they are."""
    redis_client.zadd("dead", {b'{"class":"A","args":[],"jid":"a"}': time.time() - 3700})
    redis_client.zadd("schedule", {b'{"class":"A","args":[],"jid":"a"}': time.time() + 90_100})

    assert "1h 1m ago" in run("dead", "list").output
    assert "in 1d 1h" in run("scheduled", "list").output


def test_far_times_are_told_in_years(run, redis_client):
    """Most of them are mistakes, such as milliseconds in place of seconds."""
    redis_client.zadd(
        "schedule", {b'{"class":"A","args":[],"jid":"a"}': time.time() + 3 * 365 * 86_400 + 2 * 86_400 + 9}
    )

    assert "in 3y 2d" in run("scheduled", "list").output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--all"], "4 jobs would be deleted.\n"),
        (["--class", "Mail"], "1 job would be deleted.\n"),
        (["--match", "special", "--json"], '{"count": 2}\n'),
        (["a", "nobody"], "1 job would be deleted.\n"),
    ],
)
def test_a_dry_run_only_counts(run, put, redis_client, options, said):
    """It asks nothing and changes nothing."""
    put("retry", "a", "b", note="special")
    put("retry", "c", klass="Mail")
    put("retry", "d")

    result = run("retries", "delete", "--dry-run", *options)

    assert (result.exit_code, result.output) == (0, said)
    assert redis_client.zcard("retry") == 4


@pytest.mark.parametrize("rate", ["0/s", "fast", "-1", "10/d", "nan"])
def test_a_rate_that_is_none_is_refused(run, rate):
    """The error explains how to write a rate."""
    result = run("retries", "retry", "--all", "--rate", rate)

    assert result.exit_code == 2
    assert "100/s, 600/m or 10/h" in result.output


def test_ctrl_c_ends_a_paced_run_between_two_jobs(redis_url, redis_client, put):
    """Moved jobs are counted, and the others stay where they were."""
    put("retry", *(str(n) for n in range(300)))
    process = subprocess.Popen(
        [sys.executable, "-m", "sidekiq_py", "retries", "retry", "--all", "--rate", "20/s"],
        env={**os.environ, "REDIS_URL": redis_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: redis_client.llen("queue:default") >= 2)

    process.send_signal(signal.SIGINT)

    output, errors = process.communicate(timeout=30)
    moved = redis_client.llen("queue:default")
    assert (process.returncode, output) == (130, f"{moved} jobs enqueued.\n")
    assert "Stopped by Ctrl-C" in errors
    assert moved < 300
    assert redis_client.zcard("retry") == 300 - moved


@pytest.mark.parametrize("name", ["retries", "scheduled"])
def test_the_help_of_kill_says_how_many_dead_jobs_are_kept(run, name):
    """Whoever kills 700,000 retries deletes 690,000 of them for good."""
    assert "Move jobs to the dead set, which keeps the latest 9,999." in run(name, "kill", "--help").output


@pytest.mark.parametrize("name", ["retries", "scheduled", "dead", "cron", "batches"])
def test_a_bare_group_lists_and_takes_the_options_of_list(run, name):
    """As with `queues` and `processes`; a misspelled command is still reported."""
    assert run(name, "--json").output == run(name, "list", "--json").output == "[]\n"
    assert "Commands:" in run(name, "--help").output
    assert "No such command 'lst'; choose from " in run(name, "lst").output
