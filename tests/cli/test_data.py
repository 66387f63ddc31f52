"""`push`, `stats`, and what other commands show of an empty or unreachable Redis."""

import json
import time
from datetime import datetime

import pytest

from sidekiq_py import program
from sidekiq_py.active_job import forget_active_jobs


def job_of(redis_client, queue="default"):
    """The only job of a queue."""
    [raw] = redis_client.lrange(f"queue:{queue}", 0, -1)
    return json.loads(raw)


def test_push_enqueues_a_job_and_prints_its_id(run, redis_client):
    """Every option ends up in the payload."""
    result = run("push", "HardWorker", '["bob", 5]', "--queue", "low", "--retry", "3", "--jid", "abc")

    assert (result.exit_code, result.output) == (0, "abc\n")
    job = job_of(redis_client, "low")
    assert (job["class"], job["args"], job["retry"], job["jid"]) == ("HardWorker", ["bob", 5], 3, "abc")


def test_push_keeps_numbers_exact(run, redis_client):
    """Integers of any size stay exact, and floats are spelled as Ruby spells them."""
    run("push", "Sum", "[123456789012345678901234567890, 1e22]")

    [raw] = redis_client.lrange("queue:default", 0, -1)
    assert b'"args":[123456789012345678901234567890,1.0e+22]' in raw


def test_push_reads_arguments_from_standard_input(run, redis_client):
    """For arguments that should not need shell quoting."""
    run("push", "HardWorker", "-", input='["it\'s"]')

    assert job_of(redis_client)["args"] == ["it's"]


@pytest.mark.parametrize(
    ("span", "seconds"), [("90", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400)]
)
def test_push_in_schedules_the_job(run, redis_client, span, seconds):
    """With --json, the id and the time are printed as JSON."""
    result = run("push", "HardWorker", "--in", span, "--json")

    [(_, score)] = redis_client.zrange("schedule", 0, -1, withscores=True)
    assert score == pytest.approx(time.time() + seconds, abs=60)
    assert datetime.fromisoformat(json.loads(result.output)["at"]).timestamp() == pytest.approx(score, abs=0.001)


@pytest.mark.parametrize("at", ["4000000000", "2096-10-02T07:06:40Z", "2096-10-02T09:06:40+02:00"])
def test_push_at_takes_epoch_seconds_and_iso_times(run, redis_client, at):
    """A time needs a zone, because machines have different ones."""
    assert run("push", "HardWorker", "--at", at).exit_code == 0

    assert [score for _, score in redis_client.zrange("schedule", 0, -1, withscores=True)] == [4_000_000_000]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("HardWorker", "5"), "for a single argument write '[5]'"),
        (("HardWorker", "['bob']"), "strings in double:"),
        (("HardWorker", "[NaN]"), "strings in double:"),
        (("HardWorker", ""), "ARGS is not valid JSON"),
        (("HardWorker", "bob", "5"), "ARGS is one array, in single quotes: '[\"bob\", 5]', not bob 5"),
        (("HardWorker", "--in", "soon"), "write seconds, or 5m, 1h30m, 2d"),
        (("HardWorker", "--at", "2030-01-01"), "add Z for UTC"),
        (("HardWorker", "--at", "tomorrow"), "2030-01-31T08:00:00Z"),
        (("HardWorker", "--retry", "often"), "true, false or the number of retries"),
        (("HardWorker", "-q", "a b"), "--queue is 'a b', with the character ' '; queue names must not have whitespace"),
        (("HardWorker", "-q", ""), "queue is ''; give the queue's name"),
        (("HardWorker", "--in", "5", "--at", "6"), "give one of them"),
        (("HardWorker", "--at", "4000000000000"), "give epoch seconds, not milliseconds"),
        (("",), "class is ''; give the name under which workers know the job"),
        (("HardWorker", "--jid", ""), "jid is ''; give a string that no other job has, or leave it out"),
        (("HardWorker", "[1e400]"), "args[0] is inf"),
        (("HardWorker", "-r", "no_such_module"), "no module 'no_such_module'"),
        (("HardWorker", "-r", "../../no/such_module"), "there is no ../../no/such_module (-r) in"),
        (("HardWorker", "--sidekiq-version", "four"), "sidekiq_version is 'four'"),
        (("HardWorker", "-u", "http://x"), "rediss://, unix://, redis+sentinel:// or rediss+sentinel://"),
        (
            ("HardWorker", "-u", "redis://localhost:1/O"),
            "'redis://localhost:1/O'; what follows the host and port must be",
        ),
        (("HardWorker", "-u", "redis://:a/b@localhost:1/0"), "redis://:***@localhost:1/0'; a character before the"),
    ],
)
def test_what_is_wrong_with_a_push_is_said_with_advice(run, redis_client, arguments, advice):
    """Nothing is enqueued."""
    result = run("push", *arguments)

    assert result.exit_code == 2
    assert advice in " ".join(result.output.split())
    assert redis_client.keys("*") == []


def test_push_goes_through_the_middleware_of_a_required_module(run, redis_client, tmp_path, monkeypatch):
    """If a middleware stops the push, the command fails."""
    (tmp_path / "stopping_middleware.py").write_text(
        "import sidekiq_py\nsidekiq_py.client_middleware.add(lambda job, payload, queue, call_next: None)\n"
    )
    monkeypatch.chdir(tmp_path)

    result = run("push", "HardWorker", "-r", "stopping_middleware")

    assert (result.exit_code, "stopped the push" in result.output) == (1, True)
    assert redis_client.keys("*") == []


def test_push_suggests_the_declared_job_whose_module_was_left_out(run, redis_client, tmp_path, monkeypatch):
    """No worker knows a job under its function's name alone. A Ruby class is pushed as it is, also one of this name."""
    (tmp_path / "module_of_quick.py").write_text("import sidekiq_py\n@sidekiq_py.job\ndef quick(): ...\n")
    (tmp_path / "module_of_ruby.py").write_text("import sidekiq_py\nsidekiq_py.ruby_job('quick')\n")
    monkeypatch.chdir(tmp_path)

    result = run("push", "quick", "-r", "module_of_quick")

    assert (result.exit_code, redis_client.keys("*")) == (2, [])
    assert "no job is called quick; did you mean module_of_quick.quick?" in result.output
    assert run("push", "Quick", "-r", "module_of_quick").exit_code == 0
    assert run("push", "quick", "-r", "module_of_quick", "-r", "module_of_ruby").exit_code == 0


def test_push_of_a_declared_job_checks_its_arguments(run, redis_client, tmp_path, monkeypatch):
    """As `perform_async` does. For a class that is not declared, only its likely mistakes are pointed out."""
    (tmp_path / "module_of_check.py").write_text(
        "import sidekiq_py\n@sidekiq_py.job(name='OrderCheck')\ndef check(order, amount=1): ...\n"
    )
    monkeypatch.chdir(tmp_path)

    result = run("push", "OrderCheck", "-r", "module_of_check")

    assert (result.exit_code, redis_client.keys("*")) == (2, [])
    assert "OrderCheck takes (order, amount=1): missing a required argument: 'order'" in result.output
    assert run("push", "OrderCheck", '["A-1"]', "-r", "module_of_check").stderr == ""
    near = run("push", "OrderChek", "-r", "module_of_check")
    assert near.exit_code == 0
    assert "No module given with -r declares OrderChek. Did you mean OrderCheck?" in near.stderr


def test_push_enqueues_no_active_job(run, redis_client, tmp_path, monkeypatch):
    """It was pushed without the job object that makes it one, with the question whether its own name was meant."""
    (tmp_path / "module_of_pay.py").write_text(
        "from sidekiq_py.active_job import active_job\n@active_job('PushedPayJob')\ndef pay(number): ...\n"
    )
    monkeypatch.chdir(tmp_path)

    result = run("push", "PushedPayJob", "[1]", "-r", "module_of_pay")
    forget_active_jobs()

    assert (result.exit_code, redis_client.keys("*")) == (2, [])
    assert "PushedPayJob is an Active Job; enqueue it in a program, with perform_later" in result.output


def test_push_by_the_bare_name_of_a_function_says_what_workers_expect(run):
    """Ruby's classes and full names need no advice."""
    assert "as in myapp.jobs.tidy, or by its name=. -r myapp.jobs lets" in run("push", "tidy").stderr
    assert run("push", "HardWorker").stderr == run("push", "myapp.jobs.tidy").stderr == ""


def test_push_of_a_declared_job_uses_its_options(run, redis_client, tmp_path, monkeypatch):
    """As with `perform_async`; an option of the command overrides the job's own."""
    (tmp_path / "declaring_module.py").write_text(
        "import sidekiq_py\n@sidekiq_py.job(name='Declared', queue='low', retry=7)\ndef declared(): ...\n"
    )
    monkeypatch.chdir(tmp_path)

    run("push", "Declared", "-r", "declaring_module", "--retry", "false")

    job = job_of(redis_client, "low")
    assert (job["class"], job["retry"]) == ("Declared", False)


def test_stats_shows_counters_and_sizes(run, redis_client):
    """Both as a table and as JSON."""
    redis_client.mset({"stat:processed": 12345, "stat:failed": 7})
    run("push", "HardWorker")

    shown = run("stats").output
    numbers = json.loads(run("stats", "--json").output)

    assert "Processed" in shown
    assert "12,345" in shown
    assert (numbers["processed"], numbers["failed"], numbers["enqueued"]) == (12345, 7, 1)


def test_queues_shows_jobs_in_flight(run, redis_client):
    """A job that has left its queue still shows."""
    run("push", "HardWorker", "--queue", "low")
    redis_client.sadd("paused", "low")
    redis_client.hset("sidekiq_py:owners", "h:1:a:0", "{}")
    redis_client.hset("sidekiq_py:inflight:h:1:a:0", mapping={"1.0:low": "{}", "1.1:low": "{}"})

    [row] = run("queues").output.splitlines()[1:]
    [summary] = json.loads(run("queues", "--json").output)

    assert row.split()[0::3] == ["low", "2"]
    assert row.endswith("paused")
    assert (summary["name"], summary["size"], summary["in_flight"], summary["paused"]) == ("low", 1, 2, True)


def test_an_empty_redis_says_so(run):
    """A message is shown instead of an empty table."""
    assert "nothing has ever been pushed" in run("queues").output
    assert "Start one" in run("processes").output
    assert json.loads(run("queues", "--json").output) == json.loads(run("processes", "--json").output) == []


def test_processes_shows_each_and_what_is_left_of_dead_ones(run, redis_client):
    """Jobs in flight at a process without a heartbeat are shown as waiting for recovery."""
    info = {
        "hostname": "h",
        "pid": 1,
        "tag": "app",
        "started_at": 1.0,
        "concurrency": 5,
        "queues": ["low"],
        "labels": [],
    }
    redis_client.sadd("processes", "h:1:a")
    redis_client.hset(
        "h:1:a", mapping={"info": json.dumps(info), "busy": 2, "beat": time.time(), "quiet": "true", "rss": 20480}
    )
    redis_client.hset("sidekiq_py:owners", "h:2:dead:0", "{}")
    redis_client.hset("sidekiq_py:inflight:h:2:dead:0", "1.0:low", "{}")

    shown = run("processes").output
    [process] = json.loads(run("processes", "--json").output)

    assert "2/5" in shown
    assert "20 MB" in shown
    assert "quiet" in shown
    assert "1 job is in flight at processes without a heartbeat" in shown
    assert (process["identity"], process["busy"], process["is_python"]) == ("h:1:a", 2, False)


@pytest.mark.parametrize(
    ("labels", "shown"), [([], "7.3.2"), (["sidekiq_py"], "7.3.2 python")], ids=["Ruby's", "Python's"]
)
def test_processes_shows_the_release_that_each_is_or_writes_for(run, redis_client, labels, shown):
    """The same release as --json shows."""
    info = {"hostname": "h", "pid": 1, "concurrency": 5, "queues": ["low"], "labels": labels, "version": "7.3.2"}
    redis_client.sadd("processes", "h:1:a")
    redis_client.hset("h:1:a", mapping={"info": json.dumps(info), "busy": 2, "beat": time.time(), "quiet": "false"})

    assert run("processes").output.splitlines()[1].endswith(f"  {shown}")
    assert json.loads(run("processes", "--json").output)[0]["version"] == "7.3.2"


def test_redis_out_of_reach_is_one_sentence_and_advice(run):
    """No traceback is shown."""
    result = run("stats", "-u", "redis://127.0.0.1:1/0")

    assert result.exit_code == 1
    assert result.output.startswith("Error: Redis is out of reach")
    assert "REDIS_URL" in result.output


def test_a_redis_in_place_of_a_sentinel_is_named(run, redis_url):
    """The URL of the sentinels with the port of Redis is an easy mistake."""
    address = redis_url.partition("://")[2].partition("/")[0]

    result = run("stats", "-u", f"redis+sentinel://{address}/mymaster/0")

    assert result.exit_code == 1
    assert "This is a Redis, not a sentinel; sentinels usually listen on port 26379" in result.output
    assert "Start Redis" not in result.output


def test_a_full_redis_comes_with_advice(run, new_redis_server):
    """Once: the error of a push has the advice already."""
    full = new_redis_server(config={"maxmemory": "1"})

    paused = run("queues", "pause", "low", "--create", "-u", full.url)
    pushed = run("push", "HardWorker", "-u", full.url)

    assert "make room: sidekiq-py dead delete --before 30d" in paused.output
    assert "This Redis is full, and the job is not enqueued" in pushed.output
    assert "make room" not in pushed.output


def test_a_key_of_the_wrong_type_comes_with_advice(run, redis_client):
    """The reply of Redis does not name the key; the doctor does."""
    redis_client.set("queue:low", "x")

    result = run("push", "HardWorker", "-q", "low")

    assert result.exit_code == 1
    assert "To find out which one it is: sidekiq-py doctor" in result.output


def test_a_replica_comes_with_advice(run, new_redis_server):
    """Once: the error of a push has the advice already."""
    replica = new_redis_server(config={"replicaof": "127.0.0.1 1"})

    paused = run("queues", "pause", "low", "--create", "-u", replica.url)
    pushed = run("push", "HardWorker", "-u", replica.url)

    assert (paused.exit_code, pushed.exit_code) == (1, 1)
    assert "This server is a replica. Give the URL of its primary" in paused.output
    assert "Give the URL of the primary" in pushed.output
    assert "This server is a replica" not in pushed.output


def test_a_refusal_of_redis_comes_with_advice(run, redis_client, redis_url):
    """On the password, the rights of the user, or both."""
    redis_client.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "-@all", "+ping")
    address = redis_url.partition("://")[2]
    try:
        without_rights = run("stats", "-u", f"redis://limited:secret@{address}")
        without_password = run("stats", "-u", f"redis://limited:wrong@{address}")
    finally:
        redis_client.execute_command("ACL", "DELUSER", "limited")

    assert without_rights.output.endswith("docs/redis.md lists the rights that each program needs.\n")
    assert without_password.output.splitlines()[1:] == [
        "A password is given like this, with @, / and : in it percent-encoded: REDIS_URL=redis://user:password@host:6379/0"
    ]


def test_queue_names_are_completed(run, redis_client, monkeypatch):
    """The names come from the current Redis."""
    redis_client.sadd("queues", "critical", "low")

    result = run(
        env={"_SIDEKIQ_PY_COMPLETE": "bash_complete", "COMP_WORDS": "sidekiq-py push X -q cr", "COMP_CWORD": "4"}
    )

    assert result.output == "plain,critical\n"


def test_completion_is_silent_without_redis(run, monkeypatch):
    """A shell must not show errors while the user types."""
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    program.reset()

    result = run(
        env={"_SIDEKIQ_PY_COMPLETE": "bash_complete", "COMP_WORDS": "sidekiq-py push X -q ", "COMP_CWORD": "4"}
    )

    assert (result.exit_code, result.output.strip()) == (0, "")


def test_the_release_of_the_command_line_goes_over_that_of_a_required_module(run, redis_client, tmp_path, monkeypatch):
    """As `--redis-url` does: a flag is for one command. Sidekiq 8 writes milliseconds, earlier releases seconds."""
    (tmp_path / "module_for_eight.py").write_text("import sidekiq_py\nsidekiq_py.configure(sidekiq_version='8')\n")
    monkeypatch.chdir(tmp_path)

    result = run("push", "HardWorker", "-r", "module_for_eight", "--sidekiq-version", "7")

    assert (result.exit_code, type(job_of(redis_client)["created_at"])) == (0, float)
