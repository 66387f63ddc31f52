"""Every call of a client, byte for byte as real Sidekiq 6.4.1 pushed it; only jid and times differ."""

from typing import Any

import pytest

import sidekiq_py as sidekiq
from interop_tests.support.recordings import Recording, recordings
from sidekiq_py.handles import Handle
from tests.client.conftest import Pushed, masked

CALLS = [pytest.param(found, id=found.situation) for found in recordings() if found.is_push]
# The calls were recorded in 2023, and what was to come is past: moments are put off by some sixty years.
LATER = 2_000_000_000


def handle_of(told: dict[str, Any]) -> Handle[...]:
    """The job that was called, with the options of its Ruby class."""
    handle: Handle[...] = sidekiq.ruby_job(told["job"], **told["options"])
    options = dict(told.get("set", {}))
    if "wait_until" in options:
        options["wait_until"] += LATER
    return handle.set(options) if options else handle


def call(told: dict[str, Any]) -> object:
    """Make the recorded call."""
    match told["call"]:
        case "perform_async":
            return handle_of(told).perform_async(*told["args"])
        case "perform_in" | "perform_at":
            interval = told["interval"]
            return handle_of(told).perform_in(interval + LATER if is_future(interval) else interval, *told["args"])
        case "perform_bulk":
            return handle_of(told).perform_bulk(told["args"])
        case "push_bulk":
            return sidekiq.Client().push_bulk(told["item"])
    item = dict(told["item"])
    if "options" in told:
        item["class"] = sidekiq.ruby_job(item["class"], **told["options"])
    return sidekiq.Client().push(item)


def add_middleware(told: dict[str, Any]) -> None:
    """The client middleware of the recording, if it had one."""
    keys = told.get("middleware_adds")
    if keys:
        sidekiq.client_middleware.add(lambda job, payload, queue, call_next: payload.update(keys) or call_next())


def is_future(moment: float) -> bool:
    """Whether it lay ahead when it was recorded."""
    return moment > 1_700_000_000.123456


def is_relative(told: dict[str, Any]) -> bool:
    """Whether the score is counted from the moment of the call."""
    return "wait" in told.get("set", {}) or 0 < told.get("interval", 0) < 1_000_000_000


@pytest.mark.parametrize("found", CALLS)
def test_a_call_leaves_what_ruby_left(found: Recording, redis_url: str, pushed: Pushed) -> None:
    """The same members in the same order, with the same scores."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="6.4.1")
    add_middleware(found.input)
    call(found.input)

    if found.key == "schedule":
        entries = pushed.schedule()
        assert [masked(raw) for raw, _ in entries] == [masked(raw) for raw in found.members]
        if not is_relative(found.input):
            assert [score % LATER for _, score in entries] == [score % LATER for score in found.scores]
    else:
        queue = found.key.removeprefix("queue:")
        assert [masked(raw) for raw in pushed.queue(queue)] == [masked(raw) for raw in reversed(found.members)]
