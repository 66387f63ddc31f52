"""`processes` and `jobs`: list processes and running jobs, and send signals to processes of both languages."""

import json
import time

import pytest

from sidekiq_py.api import OverviewReader
from sidekiq_py.api.processes import is_silent
from tests.cli.test_queues import process
from tests.cli.test_terminal import on_terminal


@pytest.fixture
def fleet(redis_client):
    """A Ruby process on one host and two Python ones on another, one of them embedded; two of them run a job."""
    process(redis_client, "rails:1:aa", "default")
    process(redis_client, "app:2:bb", "low", labels=["sidekiq_py"])
    process(redis_client, "app:3:cc", "low", labels=["sidekiq_py"], embedded=True)
    for identity, thread, klass, age in (("rails:1:aa", "t1", "Mail", 3700), ("app:2:bb", "t2", "Boom", 5)):
        job = {"class": klass, "args": [klass.lower()], "jid": thread}
        queue = "default" if klass == "Mail" else "low"
        work = {"queue": queue, "payload": json.dumps(job), "run_at": time.time() - age}
        redis_client.hset(f"{identity}:work", thread, json.dumps(work))
    return redis_client


def signals(redis_client):
    """The signals that each process will get at its next heartbeat."""
    return {
        key.decode().removesuffix("-signals"): redis_client.lrange(key, 0, -1) for key in redis_client.keys("*-signals")
    }


@pytest.mark.parametrize(
    ("command", "sent", "said"),
    [
        ("quiet", b"TSTP", "rails:1:aa will fetch no more jobs, within ten seconds."),
        ("stop", b"TERM", "rails:1:aa will begin to stop within ten seconds; its jobs then have until"),
        ("dump", b"TTIN", "rails:1:aa will log the backtraces of its threads within ten seconds. Look on rails, where"),
    ],
)
def test_a_process_is_told(run, fleet, command, sent, said):
    """Through the list from which both languages read their signals."""
    result = run("processes", command, "rails:1:aa", "--yes")

    assert (result.exit_code, result.output.startswith(said)) == (0, True)
    assert signals(fleet) == {"rails:1:aa": [sent]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["processes", "stop", "--all", "--yes"], r"\x1b[31mapp:4:dd will begin to stop"),
        (["processes", "dump", "--all"], r"\x1b[31mapp:4:dd will log the backtraces"),
        (["processes", "quiet", "[31mapp:4:d"], r"Did you mean \x1b[31mapp:4:dd?"),
        (["processes", "quiet", "\x1b[2J"], r"there is no process \x1b[2J."),
        (["queues", "pause", "mail"], r"keeps fetching from it: \x1b[31mapp:4:dd"),
        (["recover"], r"1 owner is alive and keeps its jobs: \x1b[31mapp:4:dd:1"),
        (["retries", "retry", "--all"], "  \ufffd[2J: "),
    ],
)
def test_a_terminal_does_not_obey_what_a_name_says(run, redis_client, arguments, said):
    """Names come from anything that may write to Redis. Tables show them without control characters, too."""
    process(redis_client, "\x1b[31mapp:4:dd", "mail")
    redis_client.hset("sidekiq_py:owners", "\x1b[31mapp:4:dd:1", '["mail"]')
    redis_client.set("sidekiq_py:lease:\x1b[31mapp:4:dd:1", 1, ex=600)
    redis_client.zadd("retry", {json.dumps({"class": "Boom", "args": 5, "jid": "\x1b[2J"}): 1})

    output = run(*arguments, color=True).output

    assert said in output
    assert "\x1b" not in output


def test_a_silent_process_is_shown_as_such_and_may_not_react(run, fleet):
    """As in top. It reads its signals with its heartbeat, so the promise of ten seconds does not hold."""
    fleet.hset("app:2:bb", mapping={"beat": time.time(), "quiet": "true"})
    fleet.hset("rails:1:aa", mapping={"beat": time.time() - 9030, "quiet": "true"})

    states = {line.split()[0]: line.split()[-1] for line in run("processes").output.splitlines()}
    told = run("processes", "dump", "app:2:bb", "rails:1:aa").output.splitlines()

    assert (states["app:2:bb"], states["rails:1:aa"]) == ("quiet", "silent")
    assert [line.partition(":")[0] for line in told] == ["app", "rails", "rails"]
    assert told[2].startswith("rails:1:aa has sent no heartbeat for 2h 30m. If it hangs or is gone, it will not react")


@pytest.mark.parametrize(("left_seconds", "state"), [(60, "python"), (30, "silent")])
def test_silence_is_told_by_the_clock_of_redis(run, redis_client, left_seconds, state):
    """The clock of a process that beats may be ten minutes behind, and that of one that has died ahead."""
    process(redis_client, "app:2:bb", "low", labels=["sidekiq_py"])
    redis_client.hset("app:2:bb", "beat", time.time() + (600 if state == "silent" else -600))
    redis_client.expire("app:2:bb", left_seconds)

    shown = run("processes").output
    told = run("processes", "dump", "app:2:bb").output

    assert shown.splitlines()[1].split()[-1] == state
    assert ("app:2:bb has sent no heartbeat for 3" in told) == (state == "silent")


def test_silence_is_told_by_heartbeats_for_a_user_without_pttl(run, redis_client, redis_url):
    """Who may read the heartbeats saw the processes before, too."""
    process(redis_client, "app:2:bb", "low", labels=["sidekiq_py"])
    redis_client.hset("app:2:bb", "beat", time.time() - 40)
    redis_client.expire("app:2:bb", 60)
    redis_client.acl_setuser("limited", enabled=True, passwords=["+secret"], keys="~*", commands=["+@all", "-pttl"])
    limited = redis_url.replace("redis://", "redis://limited:secret@")

    listed = run("processes", "-u", limited).output.splitlines()[1]
    seen = OverviewReader(pool=limited).read()
    redis_client.acl_deluser("limited")

    assert listed.split()[-1] == "silent"
    assert [is_silent(one, seen.at) for one in seen.processes] == [True]


def test_a_host_stands_for_its_processes(run, fleet):
    """So does host:pid for one process. An embedded process cannot be stopped from outside, and the command says so."""
    result = run("processes", "stop", "app", "--yes", "--json")

    refused = "app:3:cc is embedded in another program; it cannot be stopped from outside"
    assert (result.exit_code, json.loads(result.output)) == (
        1,
        {"sent": ["app:2:bb"], "refused": [{"identity": "app:3:cc", "error": refused}]},
    )
    assert run("processes", "dump", "app:2").output.startswith("app:2:bb will log")


def test_all_processes_of_both_languages_are_told(run, fleet):
    """With --all."""
    assert run("processes", "dump", "--all").exit_code == 0
    assert run("processes", "dump", "--all", "-y").exit_code == 0
    assert "--yes" not in run("processes", "dump", "--help").output
    assert sorted(signals(fleet)) == ["app:2:bb", "app:3:cc", "rails:1:aa"]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["quiet"], "which processes? Give identities, or --all"),
        (["quiet", "rails:1:aa", "--all"], "which processes?"),
        (["quiet", "rails:1:ab"], "there is no process rails:1:ab. Did you mean rails:1:aa?"),
        (["stop", "--all"], "stop asks for confirmation, and there is no terminal to ask on; add --yes"),
        (["quiet", "--all"], "add --yes"),
    ],
)
def test_a_command_that_is_not_clear_tells_nobody(run, fleet, arguments, advice):
    """The error says what is missing."""
    result = run("processes", *arguments)

    assert (result.exit_code, advice in " ".join(result.output.split())) == (2, True)
    assert signals(fleet) == {}


def test_the_help_of_stop_says_that_a_child_is_not_replaced(run):
    """Who stops a child because its job hangs would otherwise take down the worker, one child after another."""
    said = " ".join(run("processes", "stop", "--help").output.split())

    assert "a child of a worker with --processes is not replaced until its parent gets HUP" in said


def test_a_stop_asks_with_what_runs(redis_url, fleet):
    """Answering no changes nothing."""
    fleet.hset("rails:1:aa", "busy", 4)

    code, _, shown = on_terminal(redis_url, ["processes", "stop", "--all"], typed="n\n")

    assert (code, "Stop 3 processes (4 jobs running)?" in shown) == (1, True)
    assert signals(fleet) == {}


def test_the_bare_command_goes_on_to_list(run, fleet):
    """Both take --json."""
    assert run("processes").output == run("processes", "list").output
    listed = json.loads(run("processes", "list", "--json").output)
    assert [(one["identity"], one["is_python"]) for one in listed] == [
        ("app:2:bb", True),
        ("app:3:cc", True),
        ("rails:1:aa", False),
    ]


def test_jobs_shows_what_runs_the_longest_first(run, fleet):
    """With how long, where, and in which language."""
    head, first, second = run("jobs").output.splitlines()

    assert head.split() == ["RUNNING", "QUEUE", "CLASS", "ARGS", "JID", "PROCESS"]
    assert first.split() == ["1h", "1m", "default", "Mail", '["mail"]', "t1", "rails:1:aa", "ruby"]
    assert second.split()[1:] == ["low", "Boom", '["boom"]', "t2", "app:2:bb", "python"]


@pytest.mark.parametrize(
    "options",
    [
        ["--class", "Mail"],
        ["--queue", "default"],
        ["--process", "rails"],
        ["--process", "rails:1:aa"],
        ["--before", "1h"],
        ["--arg", "mail"],
    ],
)
def test_jobs_takes_filters(run, fleet, options):
    """Each filter leaves only the job that Ruby runs."""
    [job] = json.loads(run("jobs", "--json", *options).output)

    assert (job["jid"], job["process"], job["language"], job["class"]) == ("t1", "rails:1:aa", "ruby", "Mail")
    assert job["elapsed"] > 3600


def test_no_running_job_is_said(run, fleet):
    """The message says how current it is."""
    fleet.delete("rails:1:aa:work", "app:2:bb:work")

    assert run("jobs").output == "No job is running, as of the last heartbeats (3 processes).\n"
    assert run("jobs", "--class", "X").output.startswith("No matching job is running")
    assert run("jobs", "--json").output == "[]\n"
    fleet.srem("processes", "rails:1:aa", "app:2:bb")
    assert "(1 process)" in run("jobs").output


def test_identities_are_completed(run, fleet):
    """The identities come from the current Redis."""
    words = "sidekiq-py processes stop rai"

    result = run(env={"_SIDEKIQ_PY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"})

    assert result.output == "plain,rails:1:aa\n"


def test_a_process_whose_name_is_not_utf_8_keeps_no_other_from_being_told(run, fleet):
    """It is told as well, whatever the messages can spell."""
    fleet.sadd("processes", b"caf\xe9:1:aa")
    fleet.hset(b"caf\xe9:1:aa", mapping=fleet.hgetall("rails:1:aa"))

    result = run("processes", "quiet", "caf\udce9:1:aa", "rails:1:aa")

    assert result.exit_code == 0, result.output
    assert sorted(fleet.keys("*-signals")) == [b"caf\xe9:1:aa-signals", b"rails:1:aa-signals"]
    assert "caf\ufffd:1:aa" in run("processes").output
