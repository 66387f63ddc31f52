"""Queues whose key is not a list, or that this Redis user may not read: commands about other queues work."""

import json

import pytest

REASON = "WRONGTYPE Operation against a key holding the wrong kind of value"


@pytest.fixture
def broken(redis_client):
    """The queue `good` with a job, and `wrong`, whose key is a string."""
    redis_client.sadd("queues", "wrong", "good")
    redis_client.set("queue:wrong", "x")
    redis_client.lpush("queue:good", json.dumps({"class": "Boom", "args": [], "jid": "a", "enqueued_at": 1.5}))


@pytest.fixture
def limited_url(redis_client, redis_url):
    """The URL of a user who may not read the queue `secret`, which has a job; `good` has one, too."""
    redis_client.sadd("queues", "secret", "good")
    for name in ("secret", "good"):
        redis_client.lpush(f"queue:{name}", json.dumps({"class": "Boom", "args": [], "jid": "a"}))
    rules = "reset on >pw ~[^q]* ~queues ~queue:good &* +@all"
    redis_client.execute_command("ACL", "SETUSER", "limited", *rules.split())
    yield redis_url.replace("://", "://limited:pw@")
    redis_client.execute_command("ACL", "DELUSER", "limited")


@pytest.mark.usefixtures("broken")
def test_the_list_shows_a_broken_queue_with_the_reason(run):
    """It would be missed if it were hidden, and a size of 0 would be believed."""
    result = run("queues")

    assert result.exit_code == 0
    assert [line.split(maxsplit=4) for line in result.stdout.splitlines()[1:]] == [
        ["good", "1", *result.stdout.splitlines()[1].split()[2:]],
        ["wrong", "-", "-", "0", f"cannot be read: {REASON}"],
    ]
    assert "sidekiq-py doctor" in result.stderr


@pytest.mark.parametrize("command", [["queues"], ["top", "--once", "--sample", "0"]])
@pytest.mark.usefixtures("broken")
def test_a_broken_queue_has_neither_size_nor_latency_in_json(run, command):
    """A program that reads 0 would take it for an empty queue."""
    document = json.loads(run(*command, "--json").stdout)
    found = {queue["name"]: queue for queue in (document if command == ["queues"] else document["queues"])}

    assert (found["wrong"]["size"], found["wrong"]["latency"], found["wrong"]["error"]) == (None, None, REASON)
    assert (found["good"]["size"], found["good"]["error"]) == (1, None)


@pytest.mark.usefixtures("broken")
def test_top_shows_a_broken_queue(run):
    """In place of numbers that nobody has read."""
    [row] = [
        line.split()
        for line in run("top", "--once", "--sample", "0").stdout.splitlines()
        if line.split()[:1] == ["wrong"]
    ]

    assert row == ["wrong", "-", "-", "0", "cannot", "be", "read"]


@pytest.mark.usefixtures("broken")
def test_stats_names_the_queues_that_are_not_in_its_sum(run, redis_client):
    """All other numbers are right; the latency of `default` is unknown if that queue is broken."""
    shown = run("stats")
    redis_client.sadd("queues", "default")
    redis_client.set("queue:default", "x")
    numbers = json.loads(run("stats", "--json").stdout)

    assert shown.exit_code == 0
    assert ["Enqueued", "1"] in [line.split() for line in shown.stdout.splitlines()]
    assert shown.stderr == (
        f"Not among the enqueued jobs are those of queues that cannot be read: wrong ({REASON}).\n"
        "To find out what to do about queues that cannot be read: sidekiq-py doctor\n"
    )
    assert (numbers["enqueued"], numbers["unread_queues"], numbers["default_latency"]) == (
        1,
        ["default", "wrong"],
        None,
    )


@pytest.mark.parametrize(
    "command",
    [
        ["show", "good"],
        ["pause", "good"],
        ["unpause", "good"],
        ["clear", "good", "--yes"],
        ["move", "good", "other", "--create", "--yes"],
        ["delete", "good", "--yes"],
    ],
)
@pytest.mark.usefixtures("broken")
def test_commands_about_another_queue_work(run, command):
    """They need not know anything about the broken one."""
    result = run("queues", *command)

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "command",
    [
        ["show", "wrong"],
        ["clear", "wrong", "--yes"],
        ["clear", "wrong", "--dry-run"],
        ["delete", "wrong", "--yes"],
        ["move", "wrong", "good", "--yes"],
        ["move", "good", "wrong", "--yes"],
        ["add", "wrong"],
    ],
)
@pytest.mark.usefixtures("broken")
def test_commands_about_a_broken_queue_say_what_it_is_and_what_to_do(run, redis_client, command):
    """In one line; and nothing is done: the key may be another program's data."""
    result = run("queues", *command)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: WRONGTYPE the queue wrong cannot be used: its key queue:wrong is a string and not a list. Find out "
        "what wrote it, and move it away: sidekiq-py set-aside queue:wrong\n"
    )
    assert redis_client.get("queue:wrong") == b"x"
    assert redis_client.llen("queue:good") == 1
    assert redis_client.smembers("queues") == {b"wrong", b"good"}


def test_the_advice_names_the_namespace(run, redis_client):
    """So that the command can be copied as it stands."""
    redis_client.sadd("my app:queues", "wrong one")
    redis_client.set("my app:queue:wrong one", "x")

    result = run("queues", "show", "wrong one", "--namespace", "my app")

    assert result.stderr.endswith("sidekiq-py set-aside 'queue:wrong one' --namespace 'my app'\n")


@pytest.mark.usefixtures("broken")
def test_a_broken_queue_can_be_paused_and_resumed(run, redis_client):
    """That needs only the set of paused queues, and stops the workers that trip over it."""
    assert run("queues", "pause", "wrong").stdout == "wrong is paused.\n"
    assert redis_client.smembers("paused") == {b"wrong"}
    assert run("queues", "unpause", "wrong").stdout == "wrong is no longer paused.\n"


def test_a_queue_that_the_user_may_not_read_stops_nothing_else(run, limited_url):
    """A user of one team sees that there are queues of another."""
    listed = run("queues", "--json", "-u", limited_url)
    stats = run("stats", "-u", limited_url)
    refused = run("queues", "show", "secret", "-u", limited_url)

    assert {queue["name"]: queue["size"] for queue in json.loads(listed.stdout)} == {"good": 1, "secret": None}
    assert stats.exit_code == 0, stats.output
    assert "secret (NOPERM" in stats.stderr
    for command in (["show", "good"], ["pause", "good"], ["clear", "good", "--yes"]):
        assert run("queues", *command, "-u", limited_url).exit_code == 0
    assert refused.exit_code == 1
    start = "Error: NOPERM the queue secret cannot be used: Redis does not let this user read its key queue:secret ("
    end = "). Give the user that right, or name another user in the URL of Redis\n"
    assert (refused.stderr[: len(start)], refused.stderr[-len(end) :]) == (start, end)
    assert refused.stderr.count("\n") == 1


def test_the_doctor_names_a_queue_that_the_user_may_not_read(run, limited_url):
    """As text, too, where whole checks that could not look are listed by their topics."""
    shown = " ".join(run("doctor", "-u", limited_url).stdout.split())

    assert "unseen The queue `secret` could not be looked at, and no other check covers it, because Redis" in shown
    assert "Let this user read the key `queue:secret`, or run the doctor as a user who may." in shown
    assert "1 thing not checked" in shown


def test_pausing_reads_no_queue(run, redis_client, broken):
    """One that is slow, broken or forbidden could only hinder it."""
    redis_client.config_resetstat()

    run("queues", "pause", "good")

    calls = redis_client.info("commandstats")
    assert not [name for name in ("cmdstat_llen", "cmdstat_lindex", "cmdstat_lrange") if name in calls]
