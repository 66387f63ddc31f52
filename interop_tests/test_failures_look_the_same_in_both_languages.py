"""What a failed job leaves behind, whichever language enqueued or ran it: the same keys in the same order."""

import base64
import json
import zlib
from typing import Any

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support import python_jobs
from interop_tests.support.ledger import make_due, members
from interop_tests.support.ruby import RubyRelease
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

QUEUES = {"ruby": "ran-by-ruby", "python": "ran-by-python"}
# The last job of each language and queue: one thread runs them in turn.
LAST = "the last one"
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing set": {},
    "no retry": {"retry": False},
    "dead at once": {"retry": 0},
    "fewer than no retries": {"retry": -1},
    "one retry": {"retry": 1},
    "the class's retries": {"retry": None},
    "never dead": {"retry": 0, "dead": False},
    "dead all the same": {"retry": 0, "dead": None},
    "a queue for retries": {"retry_queue": "slow"},
    "two lines": {"backtrace": 2},
    "no lines": {"backtrace": 0},
    "no backtrace": {"backtrace": False},
    "an hour": {"retry_for": 3600},
    "no time": {"retry_for": -1},
    "nothing": {"retry_for": 0},
    "no time and no place": {"retry_for": -1, "dead": False},
    "two hours and no retry": {"retry_for": 7200, "retry": False},
    "for people": {"tags": ["a", "b"], "log_level": "warn", "display_class": "Shown"},
    "for somebody else": {
        "traceparent": "00-ab-01",
        "cattr": {"user": 7, "nested": [{"b": None, "a": "\u2028"}]},
        "big": 10**25,
        "float": 1e22,
    },
    LAST: {"retry": 0},
}


def test_failures_look_the_same_in_both_languages(
    redis_client: redis.Redis,
    ruby_release: RubyRelease,
    ruby: RunRuby,
    start_ruby: StartRuby,
    start_python: StartPython,
) -> None:
    """
    Each language pushes all combinations of options to the queues of both; they fail there, then in the other
    language.
    """
    ruby(
        """
        queues.product(options.to_a) do |queue, (name, set)|
          RetryInJob.set(set.merge("queue" => queue)).perform_async("raise", "#{name}/ruby")
        end
        """,
        queues=list(QUEUES.values()),
        options=OPTIONS,
    )
    for queue in QUEUES.values():
        for name, options in OPTIONS.items():
            python_jobs.retry_in_job.set({**options, "queue": queue}).perform_async("raise", f"{name}/python")

    with start_ruby(queues=[QUEUES["ruby"]], concurrency=1), start_python("-q", QUEUES["python"], "-c", "1"):
        eventually(lambda: sum(LAST.encode() in member for member in members(redis_client, "dead")) == 4)
    once = {(pushed, ran): left_behind(redis_client, pushed, ran) for pushed in QUEUES for ran in QUEUES}
    make_due(redis_client, "retry")
    with start_ruby(queues=[QUEUES["python"]], concurrency=1), start_python("-q", QUEUES["ruby"], "-c", "1"):
        eventually(lambda: have_failed_again(redis_client))
    twice = {(pushed, ran): left_behind(redis_client, pushed, ran) for pushed in QUEUES for ran in QUEUES}

    assert places_of(once["ruby", "ruby"]) == expected_places(ruby_release)
    assert places_of(twice["ruby", "ruby"]) == after_a_retry(expected_places(ruby_release))
    assert all(left == once["ruby", "ruby"] for left in once.values()), once
    assert all(left == twice["ruby", "ruby"] for left in twice.values()), twice


def have_failed_again(client: redis.Redis) -> bool:
    """Whether all jobs have failed in the other language too, but for those in a queue that nobody serves."""
    waiting = members(client, "retry")
    return (
        bool(waiting)
        and all(b"retried_at" in member for member in waiting)
        and client.llen("queue:slow") == len(QUEUES) ** 2
        and not client.exists(*(f"queue:{queue}" for queue in QUEUES.values()))
        and sum(b'"one retry/' in member for member in members(client, "dead")) == len(QUEUES) ** 2
    )


def expected_places(release: RubyRelease) -> dict[str, str]:
    """Where each failed job waits; one that is in no place left nothing behind."""
    places = dict.fromkeys(OPTIONS, "retry")
    places |= dict.fromkeys(("dead at once", "fewer than no retries", "dead all the same", LAST), "dead")
    if release.numbers >= (7, 1, 3):
        places |= dict.fromkeys(("no time", "nothing"), "dead")
        del places["no time and no place"]
    for name in ("no retry", "never dead", "two hours and no retry"):
        del places[name]
    return places


def after_a_retry(places: dict[str, str]) -> dict[str, str]:
    """The same after the second failure; nobody serves the queue for retries."""
    places = {**places, "one retry": "dead"}
    del places["a queue for retries"]
    return places


def places_of(left: dict[str, tuple[str, Any]]) -> dict[str, str]:
    """Where the jobs wait, by name."""
    return {name: place for name, (place, _) in left.items()}


def left_behind(client: redis.Redis, pushed: str, ran: str) -> dict[str, tuple[str, Any]]:
    """Where the failed jobs that *pushed* enqueued and *ran* ran first wait, and what they hold."""
    found = {}
    for place in ("retry", "dead"):
        for member in members(client, place):
            payload = json.loads(member)
            name, _, pusher = payload["args"][1].partition("/")
            if (pusher, first_run_by(payload)) == (pushed, ran):
                found[name] = place, [(key, comparable(key, value)) for key, value in payload.items()]
    return found


def first_run_by(payload: dict[str, Any]) -> str:
    """The language by the job's queue; of one that has left it, by its error, which has not failed again."""
    if payload["queue"] in QUEUES.values():
        return next(language for language, queue in QUEUES.items() if queue == payload["queue"])
    return "python" if "." in payload["error_class"] else "ruby"


def comparable(key: str, value: Any) -> Any:
    """A payload's value without what is another in each run; times have to be of one type."""
    if key == "jid":
        return len(value)
    if key in ("created_at", "enqueued_at", "failed_at", "retried_at"):
        return type(value)
    if key == "args":
        return [value[0], value[1].partition("/")[0]]
    if key == "queue" and value in QUEUES.values():
        return "its own"
    if key == "error_class":
        return value.split(".")[-1]
    if key == "error_message":
        return value.partition("/")[0]
    if key == "error_backtrace":
        return len(json.loads(zlib.decompress(base64.b64decode(value))))
    return value
