"""The buttons of the Web UI, as each recorded release of real Sidekiq carried them out: all of Redis afterwards."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.support.recordings import Held, Recording, database_of, named, put, recordings, recordings_of
from sidekiq_py import deploy, program
from sidekiq_py.api import DeadSet, JobSet, ProcessSet, Queue, RetrySet, ScheduledSet, Stats
from sidekiq_py.client import sync_client
from sidekiq_py.errors import JsonParseError

SETS: dict[str, Callable[[], JobSet]] = {"schedule": ScheduledSet, "retry": RetrySet, "dead": DeadSet}
# Here Ruby's `reschedule` breeds a second entry that runs at once; ours does not.
GHOST = "foreign_spelling_rescheduled_leaves_a_ghost"
# Ruby takes the entry out of its set, fails at its text, and has lost it. Ours says so and leaves it where it is.
UNREADABLE = "retried_text_is_lost"
ENTRY_STEPS = ("retry", "add_to_queue", "kill", "delete", "reschedule")
ALL = recordings()
BUTTONS = [
    found
    for found in ALL
    if found.input.get("step") in ENTRY_STEPS and "from" in found.input and found.situation not in (GHOST, UNREADABLE)
]
WHOLE_SETS = [found for found in ALL if found.input.get("step") in ("retry_all", "kill_all", "clear")]
# Before 7.3.5 Ruby's `retry_all` began with the entry that was due last. Ours begins with the one that has waited
# longest, as Ruby's does since, whatever release reads.
OLDEST_FIRST_SINCE = (7, 3, 5)


@pytest.fixture
def configure(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A program that writes as a recorded release, at the time of the recording."""

    def as_recorded(found: Recording) -> None:
        program.reset()
        program.configure(redis_url=redis_url, sidekiq_version=found.sidekiq)
        monkeypatch.setattr(time, "time", lambda: found.input["now"])

    yield as_recorded
    sync_client.current().close()
    program.reset()


Configure = Callable[[Recording], None]


def as_bytes(text: str) -> bytes:
    """A text of a recording's input."""
    return text.encode()


@pytest.mark.parametrize("found", named(*BUTTONS))
def test_a_button_leaves_what_ruby_left(found: Recording, redis_client: redis.Redis, configure: Configure) -> None:
    """Members, scores and every other key."""
    given = found.input
    redis_client.zadd(given["from"], {found.before: given["score"]})
    configure(found)
    [entry] = SETS[given["from"]]()

    getattr(entry, given["step"])(*([given["at"]] if "at" in given else []))

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of(GHOST)))
def test_rescheduling_foreign_spelling_leaves_no_ghost(
    found: Recording, redis_client: redis.Redis, configure: Configure
) -> None:
    """Ruby leaves a second entry with a score near 1970, which runs at once; ours leaves one entry at the new time."""
    redis_client.zadd("schedule", {found.before: found.input["score"]})
    configure(found)
    [entry] = ScheduledSet()

    entry.reschedule(found.input["at"])

    assert len(found.members) == 2
    assert database_of(redis_client)["schedule"].scores == [found.input["at"]]


@pytest.mark.parametrize("found", named(*recordings_of(UNREADABLE)))
def test_a_retry_of_what_is_no_job_loses_nothing(
    found: Recording, redis_client: redis.Redis, configure: Configure
) -> None:
    """The error names the problem, and the entry stays for a person to look at."""
    redis_client.zadd(found.input["from"], {found.before: found.input["score"]})
    configure(found)
    [entry] = DeadSet()

    with pytest.raises(JsonParseError):
        entry.retry()

    assert found.database == {}
    assert database_of(redis_client)["dead"].members == [found.before]


@pytest.mark.parametrize("found", named(*recordings_of("retried_by_api_of_two_at_one_moment")))
def test_of_two_entries_at_one_moment_the_right_one_moves(
    found: Recording, redis_client: redis.Redis, configure: Configure
) -> None:
    """The other one stays under its score."""
    redis_client.zadd("retry", {as_bytes(member): score for member, score in found.input["before"]})
    configure(found)
    entry = RetrySet().find_job(found.input["jid"])
    assert entry is not None

    entry.retry()

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of("deleted_by_jid")))
def test_an_entry_is_deleted_by_its_jid(found: Recording, redis_client: redis.Redis, configure: Configure) -> None:
    """The other entry with the same time stays."""
    redis_client.zadd("retry", {as_bytes(member): score for member, score in found.input["before"]})
    configure(found)

    RetrySet().delete(found.input["before"][0][1], found.input["jid"])

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of("scheduled_by_hand")))
def test_a_payload_is_scheduled_by_hand(found: Recording, redis_client: redis.Redis, configure: Configure) -> None:
    """As requested, key by key."""
    configure(found)

    ScheduledSet().schedule(found.input["at"], found.input["payload"])

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of("killed_by_hand_without_notice")))
def test_a_payload_is_killed_by_hand(found: Recording, redis_client: redis.Redis, configure: Configure) -> None:
    """And no death handler is called."""
    configure(found)

    DeadSet().kill(found.input["member"], notify_failure=False)

    assert database_of(redis_client) == found.database
    assert "fixture:deaths" not in found.elsewhere


@pytest.mark.parametrize("found", named(*WHOLE_SETS))
def test_a_button_for_the_whole_set_leaves_what_ruby_left(
    found: Recording, redis_client: redis.Redis, configure: Configure
) -> None:
    """In the same order."""
    given = found.input
    redis_client.zadd(given["from"], {as_bytes(member): score for member, score in given["before"]})
    configure(found)

    getattr(SETS[given["from"]](), given["step"])()

    expected = found.database
    if given["step"] == "retry_all" and found.dialect.version < OLDEST_FIRST_SINCE:
        expected["queue:default"].members.reverse()
    assert database_of(redis_client) == expected


@pytest.mark.parametrize("found", named(*recordings_of("dead_set_trimmed")))
def test_the_dead_set_is_trimmed_as_ruby_trims_it(
    found: Recording, redis_client: redis.Redis, configure: Configure
) -> None:
    """Entries that are too old are removed at the next kill."""
    redis_client.zadd("dead", {as_bytes(member): score for member, score in found.input["before"]})
    configure(found)

    DeadSet().kill(found.input["member"])

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of("queue_cleared"), *recordings_of("queue_job_deleted")))
def test_a_queue_is_left_as_ruby_leaves_it(found: Recording, redis_client: redis.Redis, configure: Configure) -> None:
    """Emptied and removed from the list, or without one job."""
    redis_client.sadd("queues", "default")
    redis_client.rpush("queue:default", *[as_bytes(raw) for raw in found.input["before"]])
    configure(found)

    if found.input["step"] == "clear_queue":
        Queue().clear()
    else:
        job = Queue().find_job(found.input["jid"])
        assert job is not None
        job.delete()

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of("stats_reset")))
def test_the_counters_are_reset_as_ruby_resets_them(
    found: Recording, redis_client: redis.Redis, configure: Configure
) -> None:
    """Only the totals; the days stay."""
    redis_client.mset({"stat:processed": 12, "stat:failed": 3, "stat:processed:2023-11-14": 5})
    configure(found)

    Stats().reset()

    assert database_of(redis_client) == found.database


SIGNALS = {"quiet_signal": "quiet", "stop_signal": "stop", "thread_dump_signal": "dump_threads"}


@pytest.mark.parametrize("found", named(*[found for found in ALL if found.situation in SIGNALS]))
def test_a_process_is_sent_the_signal_that_ruby_sends(
    found: Recording, redis_client: redis.Redis, configure: Configure
) -> None:
    """To a process that Ruby registered."""
    put(redis_client, {name: held for name, held in found.database.items() if name != found.key})
    configure(found)
    [process] = ProcessSet()

    getattr(process, SIGNALS[found.situation])()

    assert database_of(redis_client) == with_our_lock(found)


def with_our_lock(found: Recording) -> dict[str, Held]:
    """Ruby before 6.5.2 cleans the list at each look; ours takes turns with all processes, by the key of later ones."""
    return found.database | {"process_cleanup": Held("string", [b"1"], [])}


@pytest.mark.parametrize("found", named(*recordings_of("cleaned_up")))
def test_a_process_without_a_heartbeat_leaves_the_list(
    found: Recording, redis_client: redis.Redis, configure: Configure
) -> None:
    """Reading the list cleans it up, at most once a minute."""
    redis_client.sadd("processes", "gone-host:1:000000000000")
    configure(found)

    assert list(ProcessSet()) == []

    assert database_of(redis_client) == with_our_lock(found)


@pytest.mark.parametrize("found", named(*recordings_of("deploy_mark")))
def test_a_deploy_is_marked_as_ruby_marks_it(found: Recording, redis_client: redis.Redis, configure: Configure) -> None:
    """Under the current minute, and locked for a minute."""
    configure(found)

    deploy.mark(found.input["label"])

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of("iterable_cancelled_by_a_client")))
def test_an_iterable_job_is_cancelled_as_ruby_cancels_it(
    found: Recording, redis_client: redis.Redis, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With whole seconds in its state, to which ours adds a cursor, because Ruby fails on a job that has none."""
    configure(found)
    monkeypatch.setattr("sidekiq_py.jobs.iterable.time", lambda: found.input["now"])

    sidekiq.cancel(found.input["jid"])

    assert redis_client.hget(found.key, "c") == b"null"
    redis_client.hdel(found.key, "c")
    assert database_of(redis_client) == found.database
