"""Many jobs in few round trips."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.errors import ArgumentTypeError, PayloadError
from tests.client.conftest import Pushed, masked

pytestmark = pytest.mark.usefixtures("configured")


def calls_of(client: redis.Redis, command: str) -> int:
    """How often the server has run a command since its counters were reset."""
    return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


def test_the_jids_are_those_of_the_jobs_in_their_order(pushed: Pushed) -> None:
    """The first job runs first."""
    jids = sidekiq.ruby_job("A").perform_bulk([[n] for n in range(2500)])

    payloads = [json.loads(raw) for raw in pushed.queue()]
    assert [payload["jid"] for payload in payloads] == jids
    assert [payload["args"] for payload in payloads] == [[n] for n in range(2500)]


def test_a_slice_holds_a_thousand_jobs(redis_client: redis.Redis) -> None:
    """One LPUSH for each."""
    redis_client.config_resetstat()

    sidekiq.ruby_job("A").perform_bulk([[n] for n in range(2500)])

    assert calls_of(redis_client, "lpush") == 3


def test_the_size_of_a_slice_can_be_chosen(redis_client: redis.Redis) -> None:
    """By the caller of either form."""
    redis_client.config_resetstat()

    sidekiq.ruby_job("A").perform_bulk([[n] for n in range(6)], batch_size=3)
    sidekiq.Client().push_bulk({"class": "A", "args": [[n] for n in range(6)], "batch_size": 2})

    assert calls_of(redis_client, "lpush") == 5


def test_sidekiq_8_1_schedules_a_hundred_at_a_time(redis_url: str, redis_client: redis.Redis) -> None:
    """A ZADD of a thousand holds Redis up."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8")
    redis_client.config_resetstat()

    sidekiq.ruby_job("A").perform_bulk([[n] for n in range(250)], at=4e9)

    assert calls_of(redis_client, "zadd") == 3


def test_nothing_to_push_is_no_error(pushed: Pushed) -> None:
    """And no round trip."""
    assert sidekiq.ruby_job("A").perform_bulk([]) == []
    assert pushed.queues() == set()


def test_a_generator_is_read_as_it_is_pushed(pushed: Pushed) -> None:
    """What it raises in the middle leaves the slices before enqueued."""

    def rows() -> Iterator[list[int]]:
        yield from ([n] for n in range(4))
        raise LookupError("no more")

    with pytest.raises(LookupError):
        sidekiq.ruby_job("A").perform_bulk(rows(), batch_size=2)

    assert len(pushed.queue()) == 4


def test_tuples_serve_as_lists_of_arguments(pushed: Pushed) -> None:
    """As database rows are."""
    sidekiq.ruby_job("A").perform_bulk([(1, "x"), [2, "y"]])

    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [[1, "x"], [2, "y"]]


def test_one_moment_for_all_and_one_for_each(pushed: Pushed) -> None:
    """Epoch seconds or aware datetimes."""
    when = datetime(2100, 1, 1, tzinfo=UTC)

    sidekiq.ruby_job("A").perform_bulk([[1], [2]], at=when)
    sidekiq.ruby_job("A").perform_bulk(([n] for n in (3, 4)), at=[4e9, 4e9 + 1])

    assert {tuple(json.loads(raw)["args"]): score for raw, score in pushed.schedule()} == {
        (1,): when.timestamp(),
        (2,): when.timestamp(),
        (3,): 4e9,
        (4,): 4e9 + 1,
    }


def test_no_moment_at_all_pushes_at_once(pushed: Pushed) -> None:
    """Ruby's `push_bulk` takes `"at" => nil`, so that a caller can pass on a time that it may not have."""
    sidekiq.Client().push_bulk({"class": "A", "args": [[1], [2]], "at": None})

    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [[1], [2]]
    assert pushed.schedule() == []


def test_set_may_put_a_bulk_push_off(pushed: Pushed) -> None:
    """By seconds or to a moment."""
    job = sidekiq.ruby_job("A")

    job.set(wait=60).perform_bulk([[1]])
    job.set(wait_until=datetime(2100, 1, 1, tzinfo=UTC)).perform_bulk([[2]])
    job.set(wait=-60).perform_bulk([[3]])

    assert [json.loads(raw)["args"] for raw, _ in pushed.schedule()] == [[1], [2]]
    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [[3]]


def test_a_spread_interval_scatters_the_jobs(pushed: Pushed) -> None:
    """At random from now on; below five seconds it counts as five."""
    before = time.time()

    sidekiq.ruby_job("A").perform_bulk([[n] for n in range(50)], spread_interval=timedelta(seconds=1))

    scores = [score for _, score in pushed.schedule()]
    assert before <= min(scores) < max(scores) <= time.time() + 5
    assert max(scores) - min(scores) > 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"args": "ab"}, "list of lists"),
        ({"args": [1, 2]}, "a list for each"),
        ({"args": {"a": 1}}, "list of lists"),
        ({"args": [[1], [2]], "at": [1.0]}, "1 moments for 2 jobs"),
        ({"args": [[1]], "at": timedelta(hours=1)}, "give epoch seconds or an aware datetime"),
        ({"args": [[49]], "at": b"1"}, "give epoch seconds or an aware datetime"),
        ({"args": [[1]], "at": 4e9, "spread_interval": 10}, "give one of them"),
        ({"args": [[1]], "spread_interval": 0}, "above 0"),
        ({"args": [[1]], "batch_size": 0}, "1 or more"),
        ({"args": [[1], [2]], "jid": "x"}, "more than one job"),
        ({"args": [[1]], "jid": 5}, "jid is 5"),
        ({"args": [[1]], "jid": ""}, "jid is ''"),
        ({}, "no 'args'"),
    ],
)
def test_an_unusable_order_is_refused(options: dict[str, Any], said: str, pushed: Pushed) -> None:
    """Before anything is sent."""
    with pytest.raises(PayloadError, match=said):
        sidekiq.Client().push_bulk({"class": "A", **options})

    assert pushed.queue() == []


def test_a_bad_argument_is_named_by_job_and_place() -> None:
    """Of a thousand jobs one would not find it."""
    with pytest.raises(ArgumentTypeError, match=r"args\[1\]\[0\]"):
        sidekiq.ruby_job("A").perform_bulk([[1], [{2}]])


def test_middleware_runs_for_each_job_and_may_stop_it(pushed: Pushed) -> None:
    """None stands in the place of its jid."""
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: payload["args"] != [1] and call_next())

    jids = sidekiq.ruby_job("A").perform_bulk([[0], [1], [2]])

    assert [jid is None for jid in jids] == [False, True, False]
    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [[0], [2]]


def test_middleware_may_send_jobs_of_one_slice_to_several_queues(pushed: Pushed) -> None:
    """Each goes where its payload says, as since Sidekiq 8."""
    sidekiq.client_middleware.add(
        lambda job, payload, queue, call_next: payload.update(queue=payload["args"][0]) or call_next()
    )

    sidekiq.ruby_job("A").perform_bulk([["x"], ["y"], ["x"]])

    assert (len(pushed.queue("x")), len(pushed.queue("y"))) == (2, 1)
    assert pushed.queues() == {b"x", b"y"}


@pytest.mark.parametrize("version", ["6.0.4", "6.4.1", "7", "8"])
@pytest.mark.parametrize("options", [{}, {"at": 4e9}])
def test_the_quick_way_writes_what_the_careful_one_does(
    redis_url: str, pushed: Pushed, version: str, options: dict[str, Any]
) -> None:
    """Middleware that does nothing must change nothing."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version=version)
    job = sidekiq.ruby_job("A", retry=3, tags=["x"])

    job.set(queue="q", backtrace=True).perform_bulk([[1, 2.5, {"a": None}]], **options)
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: call_next())
    job.set(queue="q", backtrace=True).perform_bulk([[1, 2.5, {"a": None}]], **options)

    found = pushed.queue("q") or [raw for raw, _ in pushed.schedule()]
    assert len(found) == 2
    assert len({masked(raw) for raw in found}) == 1
