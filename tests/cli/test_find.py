"""`sidekiq-py find`: where one job is, or those of one customer."""

import json
import shlex
import time

import pytest

from tests.cli.test_queues import process


def job(jid: str, **more: object) -> str:
    """A payload."""
    return json.dumps({"class": "Mail", "args": ["bob"], "jid": jid, "queue": "default", "retry": True, **more})


@pytest.mark.parametrize(
    ("key", "seconds", "line"),
    [("retry", 330, "retries  due in 5m"), ("schedule", 330, "scheduled  due in 5m"), ("dead", -330, "dead   died 5m")],
)
def test_a_job_in_a_set_is_found(run, redis_client, key, seconds, line):
    """Under the name of the command that acts on it."""
    redis_client.zadd(key, {job("a"): time.time() + seconds, job("ab"): 1})

    assert line in run("find", "a").output
    [found] = json.loads(run("find", "a", "--json").output)
    assert (found["jid"], found["place"], found["process"]) == ("a", line.split()[0], None)


def test_a_job_in_a_queue_is_found(run, redis_client):
    """In any of them; a key of the wrong type is named, and the others are read."""
    redis_client.set("retry", "x")
    redis_client.sadd("queues", "broken", "default", "low")
    redis_client.set("queue:broken", "x")
    redis_client.lpush("queue:low", job("b", enqueued_at=time.time() - 61), job("c"))

    result = run("find", "b")

    assert result.exit_code == 0
    assert "queue low  enqueued 1m" in result.stdout
    assert "The set retry could not be read: WRONGTYPE" in result.stderr
    assert "The queue broken could not be read: WRONGTYPE" in result.stderr


def test_a_job_is_not_said_to_have_ended_if_a_queue_could_not_be_read(run, redis_client):
    """It may wait there."""
    redis_client.sadd("queues", "broken")
    redis_client.set("queue:broken", "x")

    result = run("find", "b")

    assert (result.exit_code, "It may be in what could not be read." in result.stderr) == (1, True)
    assert "It has ended" not in result.stderr


def test_a_running_job_is_found_at_its_process(run, redis_client):
    """A job that runs for the second time may still be in another place as well."""
    process(redis_client, "web:1:abc", "default")
    work = {"queue": "default", "run_at": int(time.time()) - 60, "payload": job("a")}
    redis_client.hset("web:1:abc:work", "t1", json.dumps(work))
    redis_client.zadd("dead", {job("a", error_class="E", error_message="it broke"): time.time()})

    shown = run("find", "a").output

    assert "running at web:1:abc  started 1m ago" in shown
    assert "E: it broke" in shown
    assert [found["place"] for found in json.loads(run("find", "a", "--json").output)] == ["running", "dead"]


def test_what_is_hidden_stays_hidden(run, redis_client):
    """As in every command."""
    redis_client.zadd("dead", {job("a", args=[{"password": "hunter2"}]): 1})

    assert "hunter2" not in run("find", "a").output + run("find", "a", "--json").output


def test_an_empty_id_is_refused(run, redis_client):
    """As from a variable that is not set. It would be found in nothing, after all queues are read."""
    result = run("find", "")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "the JID is empty; give a job's id" in result.stderr


def test_a_job_that_is_nowhere_is_an_error(run, redis_client):
    """With what may have become of it. What a dead worker had in flight is searched for by nobody but recovery."""
    redis_client.lpush("queue:default", job("abc"), "junk")
    redis_client.hset("sidekiq_py:inflight:gone:1", "1.0:default", job("ab"))
    redis_client.sadd("queues", "default")

    result = run("find", "ab")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "No job with the id ab is running" in result.stderr
    assert "or its worker has died" in result.stderr
    assert run("find", "ab", "--json").stdout == "[]\n"


def test_the_jobs_of_a_customer_are_found_wherever_they_are(run, redis_client, as_ruby_wrote_it):
    """Ruby's and Python's, each with the id by which other commands take it."""
    as_ruby_wrote_it("first_failure")
    as_ruby_wrote_it("scheduled_by_hand")
    as_ruby_wrote_it("killed_by_api")
    as_ruby_wrote_it("active_job_argument_global_id")
    for words in (["-q", "mails"], ["-q", "mails", "--in", "5m"]):
        assert run("push", "myapp.mail", '["gid://fixtures/FixtureRecord/42", "boom"]', *words).exit_code == 0
    process(redis_client, "web:1:abc", "default")
    work = {"queue": "default", "run_at": int(time.time()) - 60, "payload": job("r", args=[{"customer": "boom"}])}
    redis_client.hset("web:1:abc:work", "t1", json.dumps(work))

    def found(text):
        return [(one["place"], one["class"]) for one in json.loads(run("find", "--arg", text, "--json").stdout)]

    assert found("FixtureRecord/42") == [
        ("scheduled", "myapp.mail"),
        ("queue", "EchoJob"),
        ("queue", "myapp.mail"),
    ]
    assert found("boom")[:2] == [("running", "Mail"), ("retries", "FixtureJob")]
    shown = run("find", "--arg", "FixtureRecord/42").stdout.splitlines()
    assert shown[0].split() == ["JID", "PLACE", "TIME", "CLASS", "ARGS", "ERROR"]
    for line in shown[1:]:
        assert run("find", line.split()[0]).exit_code == 0


@pytest.mark.parametrize("text", ['["bob"', '"bob"]', "bob", "käse", "e"])
def test_a_text_in_the_arguments_means_what_it_means_as_a_filter(run, redis_client, text):
    """In the arguments as they are shown, written as JSON, and nowhere else in the payload."""
    redis_client.zadd(
        "retry",
        {
            job("a"): 1,
            job("b", args=["k\u00e4se"]): 2,
            job("bob", args=[]): 3,
            job("d", args=[], error_message="bob"): 4,
        },
    )

    of_find = [one["jid"] for one in json.loads(run("find", "--arg", text, "--json").stdout)]

    assert of_find == [one["jid"] for one in json.loads(run("retries", "list", "--arg", text, "--json").stdout)]
    assert of_find


def test_a_place_that_is_full_of_a_customers_jobs_does_not_hide_the_others(run, redis_client):
    """Of each place, 25 are shown; what was left out is said, with a command that shows it."""
    redis_client.zadd("retry", {job(f"r{number}", args=[4711]): number for number in range(26)})
    redis_client.zadd("dead", {job(f"d{number}", args=[4711]): number for number in range(25)})
    redis_client.sadd("queues", "-odd one")
    redis_client.lpush("queue:-odd one", *(job(f"q{number}", args=[4711]) for number in range(30)))

    table, listed = run("find", "--arg", "4711"), run("find", "--arg", "4711", "--json")

    places = [one["place"] for one in json.loads(listed.stdout)]
    assert {place: places.count(place) for place in places} == {"retries": 25, "dead": 25, "queue": 25}
    assert len(table.stdout.splitlines()) == 76
    assert table.stderr == listed.stderr
    assert table.stderr.splitlines() == [
        "The set retry: only the first 25 are shown. For all: sidekiq-py retries list --arg=4711 --limit 0",
        "The queue -odd one: only the first 25 are shown. "
        "For all: sidekiq-py queues show --arg=4711 --limit 0 -- '-odd one'",
    ]
    for line in table.stderr.splitlines():
        everything = run(*shlex.split(line.partition("For all: sidekiq-py ")[2]))
        assert len(everything.stdout.splitlines()) - 1 in (26, 30)


def test_a_place_that_cannot_be_read_is_named_and_the_others_are_searched(run, redis_client):
    """As in the search for one job."""
    redis_client.set("retry", "x")
    redis_client.sadd("queues", "broken", "low")
    redis_client.set("queue:broken", "x")
    redis_client.lpush("queue:low", job("a"))

    found, missed = run("find", "--arg", "bob"), run("find", "--arg", "alice")

    assert (found.exit_code, "a    queue low" in found.stdout) == (0, True)
    assert "The set retry could not be read: WRONGTYPE" in found.stderr
    assert "The queue broken could not be read: WRONGTYPE" in found.stderr
    assert (missed.exit_code, missed.stdout) == (1, "")
    assert "No job with alice in its arguments is running" in missed.stderr
    assert "It may be in what could not be read." in missed.stderr
    assert run("find", "--arg", "alice", "--json").stdout == "[]\n"


def test_what_is_hidden_stays_hidden_in_a_search_by_arguments(run, redis_client):
    """Whoever searches for it sees that there is such a job, as with the filters of every command."""
    redis_client.zadd("dead", {job("a", args=["bob", {"password": "hunter2"}]): 1})

    for result in (run("find", "--arg", "bob"), run("find", "--arg", "bob", "--json")):
        assert "[redacted]" in result.output
        assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which job? Give its id, or --arg"),
        (("a", "--arg", "bob"), "not both"),
        (("--arg", ""), "--arg is empty; give a text"),
    ],
)
def test_a_search_for_nothing_or_in_two_ways_is_refused(run, words, said):
    """An empty text is in the arguments of every job."""
    result = run("find", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_search_in_large_sets_reads_them_page_by_page(run, redis_client):
    """In few round trips, and only the matches stay in memory."""
    redis_client.zadd("schedule", {job(str(number), args=[number]): number for number in range(5000)})
    redis_client.config_resetstat()

    found = json.loads(run("find", "--arg", "[4711]", "--json").stdout)

    assert [one["jid"] for one in found] == ["4711"]
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] <= 10
