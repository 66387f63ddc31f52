"""`queues`: list, show, clear, delete, pause, unpause, move, add."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.test_terminal import on_terminal
from tests.support.queued_jobs import queued_jobs
from tests.support.waiting import eventually


@pytest.fixture
def push(redis_client):
    """Pushes jobs; the first one runs first: `push("low", "a", "b", klass="Mail")`."""

    def push(queue, *jids, klass="Boom", **more):
        redis_client.sadd("queues", queue)
        for jid in jids:
            job = {"class": klass, "args": [jid], "jid": jid, "queue": queue, "enqueued_at": 1.5, **more}
            redis_client.lpush(f"queue:{queue}", json.dumps(job))

    return push


def jids(redis_client, queue):
    """The ids of a queue's jobs; the job that runs next comes first."""
    return [job["jid"] for job in queued_jobs(redis_client, queue)]


def process(redis_client, identity, *queues, labels=(), **fields):
    """Registers a process, as its heartbeat would."""
    host, pid, _ = identity.split(":")
    info = {"hostname": host, "pid": int(pid), "queues": queues, "labels": labels, **fields}
    redis_client.sadd("processes", identity)
    redis_client.hset(identity, mapping={"info": json.dumps(info), "busy": 0, "beat": 1.0, "quiet": "false"})


def test_the_bare_command_goes_on_to_list(run, push):
    """Both take --json."""
    push("low", "a", enqueued_at=4_000_000_000)

    assert run("queues").output.split()[:6] == run("queues", "list").output.split()[:6]
    assert json.loads(run("queues", "--json").output)[0]["name"] == "low"
    assert json.loads(run("queues", "list", "--json").output)[0]["size"] == 1


def test_a_latency_is_shown_as_in_top(run, push):
    """At night nobody converts 5403.81 seconds."""
    push("low", "a", enqueued_at=time.time() - 5403.81)

    assert " 1h 30m " in run("queues").output


def test_a_latency_below_zero_has_a_sign(run, push):
    """The clock here is behind that of whoever pushed: without the sign, the job would seem to have waited."""
    push("low", "a", enqueued_at=time.time() + 5400)

    assert " -1h 29m " in run("queues").output
    assert " -1h 29m " in run("top", "--once", "--sample", "0").output


@pytest.mark.parametrize("group", ["queues", "processes", "retries", "scheduled", "dead", "cron", "batches"])
def test_options_may_also_stand_before_the_command(run, redis_url, group):
    """As in `retries --json list`."""
    assert json.loads(run(group, "--json", "list").output) == []
    assert json.loads(run(group, "-u", redis_url, "--json", "list").output) == []


def test_a_queue_in_place_of_a_command_is_named_behind_options_too(run):
    """Not "Got unexpected extra argument (low)"."""
    result = run("queues", "--json", "low")

    assert result.exit_code == 2
    assert "To show a queue: sidekiq-py queues show low" in result.output


def test_show_lists_jobs_newest_first(run, push):
    """With class and arguments; --limit sets how many."""
    push("low", "a", "b", "c")

    head, *rows = run("queues", "show", "low").output.splitlines()
    two = run("queues", "show", "low", "-n", "2").output

    assert head.split() == ["JID", "ENQUEUED", "CLASS", "ARGS"]
    assert [row.split()[0] for row in rows] == ["c", "b", "a"]
    assert rows[0].endswith('Boom   ["c"]')
    assert two.splitlines()[-1] == "2 of 3 shown; --limit 0 shows all."


def test_show_with_a_filter_does_not_say_how_many_match(run, push):
    """The search ends at the limit, so that it does not know; the size of the queue would be wrong."""
    push("low", "a", "b", "c", klass="Mail")
    push("low", "d")

    def last_line(*options):
        return run("queues", "show", "low", "--class", "Mail", *options).output.splitlines()[-1]

    assert last_line("-n", "1") == "The first match is shown; --limit 0 shows all."
    assert last_line("-n", "2") == "The first 2 matches are shown; --limit 0 shows all."
    for limit in ("4", "0"):
        assert last_line("-n", limit).split()[0] == "a"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--class", "Mail"], ["m"]),
        (["--arg", '["b"]'], ["b"]),
        (["--match", '"jid": "a"'], ["a"]),
        (["--after", "2"], ["m"]),
        (["--before", "1970-01-01T00:00:02Z"], ["b", "a"]),
        (["--error", "timeout"], ["b"]),
    ],
)
def test_show_takes_filters(run, push, options, found):
    """Each works as in a program's `JobFilter`."""
    push("low", "a")
    push("low", "b", error_class="Net::ReadTimeout")
    push("low", "m", klass="Mail", enqueued_at=2.5)

    assert [job["jid"] for job in json.loads(run("queues", "show", "low", "--json", *options).output)] == found


def test_show_says_that_a_queue_is_paused_or_empty(run, redis_client):
    """The message says how to resume it."""
    redis_client.sadd("queues", "low")
    redis_client.sadd("paused", "low")

    assert run("queues", "show", "low").output.splitlines() == [
        "low is empty.",
        "low is paused. To resume it: sidekiq-py queues unpause low",
    ]


@pytest.mark.parametrize("name", ["-x", "a b"])
def test_show_says_how_to_resume_a_queue_with_an_odd_name(run, redis_client, name):
    """The printed command can be copied as it stands."""
    redis_client.sadd("queues", name)
    redis_client.sadd("paused", name)

    command = run("queues", "show", "--", name).stdout.rpartition(": ")[2]

    assert run(*shlex.split(command)[1:]).exit_code == 0
    assert not redis_client.exists("paused")


def test_a_misspelled_queue_gets_the_closest_match(run, push, redis_client):
    """Nothing is done."""
    push("mailers", "a")

    for arguments in (
        ["show", "mailer"],
        ["clear", "mailer", "--yes"],
        ["delete", "mailer", "--yes"],
        ["pause", "mailer"],
        ["move", "mailer", "mailers", "--yes"],
        ["move", "mailers", "mailer", "--yes"],
    ):
        result = run("queues", *arguments)
        assert result.exit_code == 2
        assert "there is no queue mailer. Did you mean mailers?" in result.output
    assert jids(redis_client, "mailers") == ["a"]


@pytest.mark.parametrize(("command", "text"), [("pause", "low is paused.\n"), ("unpause", "low was not paused.\n")])
def test_a_queue_that_is_named_twice_is_reported_once(run, push, command, text):
    """A list that a shell puts together may have it twice."""
    push("low", "a")

    assert run("queues", command, "low", "low").output == text


def test_a_queue_in_place_of_a_command_is_told_the_command(run, push):
    """As `git` and Sidekiq's own tools do."""
    push("low", "a")

    result = run("queues", "low")

    assert result.exit_code == 2
    assert "To show a queue: sidekiq-py queues show low" in " ".join(result.output.split())


def test_clear_deletes_the_jobs_and_keeps_the_queue(run, push, redis_client):
    """The queue stays paused."""
    push("low", "a", "b")
    redis_client.sadd("paused", "low")

    assert run("queues", "clear", "low", "--yes").output == "2 jobs deleted.\n"
    assert redis_client.smembers("queues") == redis_client.smembers("paused") == {b"low"}
    assert redis_client.llen("queue:low") == 0


def test_clear_deletes_what_filters_choose(run, push, redis_client):
    """A dry run counts them first."""
    push("low", "a", "b")
    push("low", "m", klass="Mail")

    assert run("queues", "clear", "low", "--class", "Boom", "--dry-run").output == "2 jobs would be deleted.\n"
    result = run("queues", "clear", "low", "--class", "Boom", "--yes", "--json")

    assert json.loads(result.output) == {"moved": 2, "gone": 0, "refused": 0, "errors": [], "missing": []}
    assert jids(redis_client, "low") == ["m"]


def test_delete_leaves_nothing_of_a_queue(run, push, redis_client):
    """Neither jobs nor name nor pause are left."""
    push("low", "a")
    redis_client.sadd("paused", "low")

    assert json.loads(run("queues", "delete", "low", "--dry-run", "--json").output) == {"count": 1}
    assert run("queues", "delete", "low", "-y").output == "low deleted, with 1 job.\n"
    assert [key for key in redis_client.keys("*") if key != b"process_cleanup"] == []


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (["clear", "low"], "Delete 2 jobs of low?"),
        (["clear", "low", "--arg", "a"], "Delete 1 job of low that matches?"),
        (["delete", "low"], "Delete the queue low, which has 2 jobs?"),
        (["move", "low", "high"], "Move 2 jobs of low to high?"),
    ],
)
def test_what_cannot_be_taken_back_asks_with_the_count(redis_url, redis_client, push, arguments, question):
    """Answering no changes nothing; without a terminal the command refuses."""
    push("low", "a", "b")
    push("high", "c")

    code, _, shown = on_terminal(redis_url, ["queues", *arguments], typed="n\n")
    without = subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "queues", *arguments],
        env={**os.environ, "REDIS_URL": redis_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (code, question in shown) == (1, True)
    assert (without.returncode, "no terminal to ask on; add --yes" in without.stderr) == (2, True)
    assert (jids(redis_client, "low"), jids(redis_client, "high")) == (["a", "b"], ["c"])


def test_pause_names_the_ruby_processes_that_will_not_obey(run, push, redis_client):
    """Python processes follow the pause; a Ruby process that serves other queues is not named."""
    push("low", "a")
    process(redis_client, "rails:1:aa", "low")
    process(redis_client, "rails:2:bb", "high")
    process(redis_client, "app:3:cc", "low", labels=["sidekiq_py"])

    shown = run("queues", "pause", "low").output
    [again] = json.loads(run("queues", "pause", "low", "--json").output)

    assert shown.splitlines()[:2] == [
        "low is paused.",
        "Without Sidekiq Pro, this Ruby process keeps fetching from it: rails:1:aa",
    ]
    assert "app:3:cc" not in shown
    assert again == {"queue": "low", "paused": True, "changed": False, "ruby_processes": ["rails:1:aa"]}
    assert redis_client.smembers("paused") == {b"low"}


def test_unpause_takes_the_pause_back(run, redis_client):
    """This works even for a queue of which only the pause exists."""
    redis_client.sadd("paused", "low")

    assert run("queues", "unpause", "low").output == "low is no longer paused.\n"
    assert redis_client.exists("paused") == 0


def test_move_takes_all_jobs_in_their_order(run, push, redis_client):
    """Byte for byte, behind the jobs that already wait there."""
    push("low", *(str(n) for n in range(250)))
    push("high", "first")
    before = redis_client.lrange("queue:low", 0, -1)

    result = run("queues", "move", "low", "high", "--yes")

    assert (result.exit_code, result.output) == (0, "250 jobs moved to high.\n")
    assert redis_client.lrange("queue:high", 0, 249) == before
    assert jids(redis_client, "high")[0] == "first"


def test_move_needs_the_name_of_a_queue(run, push, redis_client):
    """Even if some program has made a queue without one."""
    push("default", "one")
    redis_client.sadd("queues", "")

    result = run("queues", "move", "default", "", "--yes")

    assert (result.exit_code, "TO is empty; give the other queue's name" in result.output) == (2, True)


def test_move_takes_what_filters_choose(run, push, redis_client):
    """The target may be a new queue with --create."""
    push("low", "a", "b", "c")

    refused = run("queues", "move", "low", "new", "--arg", "b", "--yes")
    result = run("queues", "move", "low", "new", "--arg", "b", "--yes", "--create")

    assert (refused.exit_code, "To move jobs to a new queue, add --create." in refused.output) == (2, True)
    assert result.output == "1 job moved to new.\n"
    assert (jids(redis_client, "low"), jids(redis_client, "new")) == (["a", "c"], ["b"])


def test_pause_takes_a_new_queue_with_create(run, redis_client):
    """Before a deploy whose jobs must wait. Without --create, a misspelled name would seem to be paused."""
    result = run("queues", "pause", "new", "--create")

    assert (result.exit_code, result.output) == (0, "new is paused.\n")
    assert redis_client.smembers("paused") == {b"new"}
    assert run("queues", "unpause", "new").output == "new is no longer paused.\n"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["move", "low", "low", "--yes"], "FROM and TO are the same queue"),
        (["move", "low", "a b", "--yes", "--create"], "queue is 'a b', with the character ' '; queue names must not"),
        (["move", "low", "", "--yes", "--create"], "TO is empty"),
        (["move", "low", os.fsdecode(b"\xff"), "--yes", "--create"], "is not UTF-8; workers cannot serve it"),
        (["pause", "new"], "To pause a queue that does not exist yet, add --create."),
        (["pause", "", "--create"], "names no queue"),
        (["move", "low", "high", "--rate", "often"], "100/s, 600/m or 10/h"),
        (["show", "low", "--after", "soon"], "2030-01-31T08:00:00Z"),
        (["show", "low", "--after", "soon"], "2h (ago) or +2h (from now)"),
        (["show", "low", "--before", "2x"], "2h (ago) or +2h (from now)"),
        (["add", "typo"], "there is no job in the queue typo"),
    ],
)
def test_what_is_wrong_is_said_with_advice(run, push, redis_client, arguments, advice):
    """Nothing is moved."""
    push("low", "a")

    result = run("queues", *arguments)

    assert (result.exit_code, advice in " ".join(result.output.split())) == (2, True)
    assert jids(redis_client, "low") == ["a"]


def move_slowly(redis_url, *options):
    """Start a rate-limited move of a queue."""
    return subprocess.Popen(
        [sys.executable, "-m", "sidekiq_py", "queues", "move", "low", "high", "--yes", "--rate", "20/s", *options],
        env={**os.environ, "REDIS_URL": redis_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("options", [[], ["--class", "Boom"]], ids=["all", "chosen"])
def test_ctrl_c_ends_a_move_between_two_steps(redis_url, redis_client, push, options):
    """Moved jobs are counted, and each job is in one of the two queues."""
    push("low", *(str(n) for n in range(300)))
    push("high", "first")
    moving = move_slowly(redis_url, *options)
    eventually(lambda: redis_client.llen("queue:high") >= 3)

    moving.send_signal(signal.SIGINT)

    output, errors = moving.communicate(timeout=30)
    moved = redis_client.llen("queue:high") - 1
    assert (moving.returncode, output) == (130, f"{moved} jobs moved to high.\n")
    assert "Stopped by Ctrl-C" in errors
    assert jids(redis_client, "high")[1:] + jids(redis_client, "low") == [str(n) for n in range(300)]


def test_a_move_that_is_killed_loses_nothing(redis_url, redis_client, push):
    """Each job is in one of the two queues, exactly once."""
    push("low", *(str(n) for n in range(300)))
    push("high", "first")
    moving = move_slowly(redis_url)
    eventually(lambda: redis_client.llen("queue:high") >= 3)

    moving.kill()
    moving.communicate(timeout=30)

    assert jids(redis_client, "high")[1:] + jids(redis_client, "low") == [str(n) for n in range(300)]


def test_add_enters_a_queue_that_no_web_ui_shows(run, redis_client):
    """As every Sidekiq does when it pushes."""
    redis_client.lpush("queue:low", "{}")

    assert run("queues", "add", "low").output == "Added: low.\n"
    assert json.loads(run("queues", "add", "low", "--json").output) == {"added": []}
    assert redis_client.smembers("queues") == {b"low"}


def test_a_queue_whose_name_is_not_utf_8_is_shown_and_emptied(run, push, redis_client):
    """By its bytes, which a shell passes as `$'caf\\xe9'`; a queue that looks the same keeps its jobs."""
    push("good", "a")
    push("caf\ufffd", "b")
    redis_client.sadd("queues", b"caf\xe9")
    redis_client.lpush(b"queue:caf\xe9", "{}", '{"class":"Boom","args":[],"jid":"c"}')

    listed = [(queue["name"], queue["size"]) for queue in json.loads(run("queues", "list", "--json").stdout)]

    assert sorted(listed) == [("caf\udce9", 2), ("caf\ufffd", 1), ("good", 1)]
    assert json.loads(run("stats", "--json").stdout)["enqueued"] == 4
    assert run("queues", "pause", "caf\udce9", "good").output == "caf\\udce9 is paused.\ngood is paused.\n"
    assert redis_client.smembers("paused") == {b"caf\xe9", b"good"}
    assert run("queues", "move", "caf\udce9", "good", "--yes").output == "2 jobs moved to good.\n"
    assert run("queues", "delete", "caf\udce9", "--yes").output == "caf\\udce9 deleted, with 0 jobs.\n"
    assert redis_client.smembers("queues") == {b"good", "caf\ufffd".encode()}
    assert [redis_client.llen(f"queue:{name}") for name in ("good", "caf\ufffd")] == [3, 1]


def test_only_names_that_are_text_are_completed(run, push, redis_client):
    """One that is not must not keep a shell from the others."""
    push("cart", "a")
    redis_client.sadd("queues", b"caf\xe9")

    variables = {"_SIDEKIQ_PY_COMPLETE": "bash_complete", "COMP_WORDS": "sidekiq-py queues show ca", "COMP_CWORD": "3"}

    assert run(env=variables).output.splitlines() == ["plain,cart"]
