"""What handlers of telemetry hear of batches."""

from collections.abc import Callable, Iterator

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import telemetry
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.batches.lifecycle_events import LifecycleEvents
from tests.extensions.batches.conftest import Program


@pytest.fixture
def emitted() -> Iterator[list[tuple[str, str]]]:
    """Events, each with the batch's id."""
    found: list[tuple[str, str]] = []
    telemetry.attach(
        "heard", "sidekiq.batch", lambda name, measurements: found.append((measurements["event"], measurements["bid"]))
    )
    yield found
    telemetry.detach("heard")


@pytest.fixture
def look(app: Program) -> Callable[[], None]:
    """Looks once, as one process of the fleet."""
    events = LifecycleEvents()
    return lambda: events.run(sync_client.current().pool)


def test_births_and_ends_are_told_once(look: Callable[[], None], emitted: list[tuple[str, str]]) -> None:
    """Also of a batch that begins and ends between two looks."""
    look()
    first, second = sidekiq.Batch(), sidekiq.Batch()
    with first.jobs():
        look()
    with second.jobs():
        pass

    look()
    look()

    assert emitted == [
        ("created", first.bid),
        ("created", second.bid),
        ("complete", first.bid),
        ("success", first.bid),
        ("complete", second.bid),
        ("success", second.bid),
    ]


def test_what_was_there_at_the_first_look_is_no_news(look: Callable[[], None], emitted: list[tuple[str, str]]) -> None:
    """A worker that takes over tells of what happens from then on."""
    old, batch = sidekiq.Batch(), sidekiq.Batch()
    with old.jobs():
        pass
    with batch.jobs():
        look()
        assert emitted == []

    look()

    assert emitted == [("complete", batch.bid), ("success", batch.bid)]


def test_nothing_is_asked_of_redis_where_nobody_listens(app: Program) -> None:
    """Most programs measure no batches."""
    LifecycleEvents().run(None)  # type: ignore[arg-type]


def test_a_batch_that_another_program_has_overwritten_hides_no_event_of_another(
    look: Callable[[], None], emitted: list[tuple[str, str]], redis_client: redis.Redis
) -> None:
    """Nothing more is said of it."""
    look()
    first, second = sidekiq.Batch(), sidekiq.Batch()
    with second.jobs():
        look()
        redis_client.set(f"sidekiq_py:batch:{first.bid}", "x")
        look()

    look()

    assert [event for event, bid in emitted if bid == second.bid] == ["created", "complete", "success"]
