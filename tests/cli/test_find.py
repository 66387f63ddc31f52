"""`sidekiq-py find`: where one job is."""

import json
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
