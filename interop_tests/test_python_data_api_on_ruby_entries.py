"""Our data API moves, kills, reschedules and deletes what Ruby wrote, and leaves what Ruby's own would have left."""

from collections.abc import Callable

import pytest
import redis

from interop_tests.conftest import RunRuby
from interop_tests.support.ledger import masked, members, raw_jobs
from interop_tests.support.recordings import recording, recordings
from sidekiq_py.api import DeadSet, JobSet, Queue, RetrySet, ScheduledSet

pytestmark = pytest.mark.usefixtures("python_client")

SETS: dict[str, Callable[[], JobSet]] = {"schedule": ScheduledSet, "retry": RetrySet, "dead": DeadSet}
BUTTONS = ("retry", "add_to_queue", "kill", "delete", "reschedule")
# Here Ruby's `reschedule` breeds a second entry that runs at once; ours must not.
GHOST = "foreign_spelling_rescheduled_leaves_a_ghost"
MOVES = [
    recorded.situation
    for recorded in recordings()
    if recorded.input.get("step") in BUTTONS and "from" in recorded.input and recorded.situation != GHOST
]


@pytest.mark.parametrize("situation", MOVES)
def test_a_button_leaves_the_bytes_that_ruby_left(situation: str, redis_client: redis.Redis) -> None:
    """The same button on the recorded entry leaves the same member; only `enqueued_at` is read from a clock."""
    recorded = recording(situation)
    step, origin = recorded.input["step"], recorded.input["from"]
    redis_client.zadd(origin, {recorded.before: recorded.input["score"]})
    [entry] = SETS[origin]()

    getattr(entry, step)(*([recorded.input["at"]] if step == "reschedule" else []))

    if recorded.type == "list":
        assert [masked(raw) for raw in raw_jobs(redis_client, recorded.key.removeprefix("queue:"))] == [
            masked(recorded.members[0])
        ]
    else:
        assert members(redis_client, recorded.key) == recorded.members
    assert redis_client.zcard(origin) == (1 if step == "reschedule" else 0)


def test_rescheduling_an_entry_in_foreign_spelling_leaves_no_ghost(redis_client: redis.Redis) -> None:
    """Ruby would leave a second entry with a score near 1970, which runs at once."""
    recorded = recording(GHOST)
    redis_client.zadd("schedule", {recorded.before: recorded.input["score"]})
    [entry] = ScheduledSet()

    entry.reschedule(recorded.input["at"])

    [member] = members(redis_client, "schedule")
    assert redis_client.zscore("schedule", member) == recorded.input["at"]


def test_a_job_that_ruby_queued_is_found_and_deleted(redis_client: redis.Redis, ruby: RunRuby) -> None:
    """By jid; the other one stays."""
    jid, other = ruby('[FixtureJob.perform_async("echo", 1e22, "é"), FixtureJob.perform_async("ok")]')

    job = Queue("default").find_job(jid)

    assert job is not None
    assert (job.klass, job.args) == ("FixtureJob", ["echo", 1e22, "é"])
    assert job.delete() is True
    assert [left.jid for left in Queue("default")] == [other]


def test_what_ruby_scheduled_comes_in_the_order_of_its_times(ruby: RunRuby) -> None:
    """Scores and jids of three entries."""
    jids = ruby("[300, 100, 200].map { |seconds| FixtureJob.perform_in(seconds, 1) }")

    entries = list(ScheduledSet())

    assert sorted(entries, key=lambda entry: entry.score) in (entries, entries[::-1])
    assert [entry.jid for entry in sorted(entries, key=lambda entry: entry.score)] == [jids[1], jids[2], jids[0]]


def test_all_retries_of_ruby_are_retried_at_once(redis_client: redis.Redis) -> None:
    """`retry_all` over many entries, none lost and none doubled."""
    payload = recording("retried_by_api").before
    jids = [f"{number:024x}" for number in range(300)]
    redis_client.zadd("retry", {payload.replace(b"f" * 24, jid.encode()): 4e9 + n for n, jid in enumerate(jids)})

    RetrySet().retry_all()

    assert sorted(job.jid or "" for job in Queue("default")) == jids
    assert redis_client.zcard("retry") == 0
