"""What each recorded release of real Sidekiq wrote about processes, work, metrics and iterations, as we read it."""

from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest
import redis

from interop_tests.support.recordings import Recording, named, put, recordings, recordings_of
from sidekiq_py.api import Deploy, IterableJobQuery, Metrics, ProcessSet, Stats, WorkSet

pytestmark = pytest.mark.usefixtures("pool")

IDENTITY = "fixture-host:4242:5eed5eed5eed"
ALL = recordings()
Load = Callable[[Recording], None]


@pytest.fixture
def load(redis_client: redis.Redis) -> Load:
    """Puts what a recording left into Redis."""
    return lambda found: put(redis_client, found.database)


BEATS = ("heartbeat_info", "heartbeat_quiet", "heartbeat_weights", "heartbeat_random", "heartbeat_embedded")


@pytest.mark.parametrize("found", named(*[found for found in ALL if found.situation in BEATS]))
def test_a_process_of_ruby_s_is_seen_as_it_is(found: Recording, load: Load) -> None:
    """Its host, its queues and number of threads, its last heartbeat, and whether it is stopping."""
    load(found)
    given = found.input

    [process] = ProcessSet()

    names = tuple(queue if isinstance(queue, str) else queue[0] for queue in given["queues"])
    assert (process.identity, process.hostname, process.pid, process.tag) == (
        IDENTITY,
        "fixture-host",
        4242,
        "fixtures",
    )
    assert (process.queues, process.concurrency, process.busy) == (names, given["concurrency"], 0)
    assert process.beat_at == datetime.fromtimestamp(given["now"], UTC)
    assert (process.is_stopping, process.is_embedded) == (found.situation == "heartbeat_quiet", "embedded" in given)
    assert process.version == (found.sidekiq if found.dialect.info_has_version else None)
    assert process.rss_kb == (given["rss_kb"] if found.dialect.has_rss else 0)
    assert process.rtt_us == (given["rtt_us"] if found.dialect.has_rtt else 0)
    assert not process.is_python


@pytest.mark.parametrize("found", named(*recordings_of("heartbeat_weights")))
def test_the_weights_of_ruby_s_queues_are_seen(found: Recording, load: Load) -> None:
    """Before 7 a process publishes none."""
    load(found)

    [process] = ProcessSet()

    [capsule] = process.capsules
    wanted = {name: int(weight) for name, weight in found.input["queues"]}
    assert capsule.weights == (wanted if found.dialect.info_has_weights else dict.fromkeys(wanted, 0))


@pytest.mark.parametrize("found", named(*recordings_of("heartbeat_capsules")))
def test_the_capsules_of_a_process_of_ruby_s_are_seen(found: Recording, load: Load) -> None:
    """All its queues, and its threads across all of them."""
    load(found)

    [process] = ProcessSet()

    assert (process.queues, process.concurrency) == (("critical", "default", "single"), 3)
    assert [sorted(capsule.weights) for capsule in process.capsules] == [["critical", "default"], ["single"]]


@pytest.mark.parametrize("found", named(*recordings_of("heartbeat_work")))
def test_a_job_that_ruby_runs_is_seen(found: Recording, load: Load) -> None:
    """Under either name of the key, with its queue, its start and its payload."""
    load(found)

    [(process_id, thread_id, work)] = WorkSet()

    assert (process_id, thread_id, work.queue) == (IDENTITY, "tid000", "default")
    assert work.run_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert work.job.args[0] == "ledger_and_wait_for"
    assert work.job.value == found.input["before"][0].encode()


@pytest.mark.parametrize("found", named(*recordings_of("heartbeat_counts")))
def test_ruby_s_counters_are_seen(found: Recording, load: Load) -> None:
    """A failed job also counts as processed."""
    load(found)

    assert (Stats().processed, Stats().failed) == (found.input["processed"], found.input["failed"])


METRICS = [found for found in ALL if found.input.get("step") == "flush_metrics" and found.input["runs"]]


@pytest.mark.parametrize("found", named(*METRICS))
def test_ruby_s_metrics_are_seen(found: Recording, load: Load) -> None:
    """How many runs, how many failures, how long, and in which bucket of the histogram."""
    load(found)
    given = found.input
    failures = sum(args[0] == "raise" for args in given["runs"])
    successes = len(given["runs"]) - failures

    result = Metrics(now=given["now"]).for_job(given["class"])

    job = result.jobs[given["class"]]
    total = job.total
    assert (total.processed, total.failed) == (len(given["runs"]), failures)
    assert total.ms == round(given["run_seconds"] * 1000) * successes
    assert sum(sum(counts) for counts in job.histograms.values()) == successes


@pytest.mark.parametrize("found", named(*recordings_of("deploy_mark")))
def test_ruby_s_deploys_are_seen(found: Recording, load: Load) -> None:
    """By their minute."""
    load(found)

    assert Deploy().fetch(date(2023, 11, 14)) == {"2023-11-14T22:13:00Z": found.input["label"]}


INTERRUPTED = ("iterable_interrupted", "iterable_interrupted_twice", "iterable_cursor_is_an_object")


@pytest.mark.parametrize("found", named(*[found for found in ALL if found.situation in INTERRUPTED]))
def test_how_far_ruby_came_is_seen(found: Recording, load: Load) -> None:
    """The next cursor and the number of runs so far."""
    load(found)
    jid = found.input["jid"]

    state = IterableJobQuery([jid])[jid]

    cursors = {
        "iterable_interrupted": 3,
        "iterable_interrupted_twice": 2,
        "iterable_cursor_is_an_object": {"page": 3, "of": 4.0},
    }
    assert state.cursor == cursors[found.situation]
    assert state.executions == (2 if found.situation == "iterable_interrupted_twice" else 1)
