"""A request's attributes and locale in the bytes that each recorded release of real Sidekiq pushed."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.support.recordings import Recording, named, recordings_of
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.contrib.current_attributes import Attributes, locale, persist, persist_locale
from tests.client.conftest import masked


@pytest.fixture(autouse=True)
def own_program() -> Iterator[None]:
    """A program without middleware before and after the test."""
    program.reset()
    yield
    sync_client.current().close()
    locale.reset()
    program.reset()


def pushed(found: Recording, redis_url: str, redis_client: redis.Redis) -> list[bytes]:
    """What a push adds to the queue, without its jid and times."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version=found.sidekiq)
    sidekiq.ruby_job("FixtureJob").perform_async("ok")
    queued: Any = redis_client.lrange("queue:default", 0, -1)
    return [masked(raw) for raw in queued]


@pytest.mark.parametrize(
    "found",
    named(
        *recordings_of("current_attributes"),
        *recordings_of("current_attributes_of_two_classes"),
        *recordings_of("current_attributes_of_none"),
    ),
)
def test_attributes_travel_as_ruby_writes_them(found: Recording, redis_url: str, redis_client: redis.Redis) -> None:
    """An object up to Sidekiq 7, pairs in Active Job's encoding since 8; one key for each class with a value."""
    adds = found.input.get("current", {})
    groups = [Attributes(user_id=None, tenant=None), Attributes(trace=None)]
    persist(*groups)

    with ExitStack() as request:
        for group, key in zip(groups, ("cattr", "cattr_1"), strict=True):
            request.enter_context(group.set(**adds.get(key, {})))
        ours = pushed(found, redis_url, redis_client)

    assert ours == [masked(raw) for raw in found.members]


@pytest.mark.parametrize("found", named(*recordings_of("i18n_locale")))
def test_the_locale_travels_as_ruby_writes_it(found: Recording, redis_url: str, redis_client: redis.Redis) -> None:
    """Under `locale`, before `enqueued_at`."""
    persist_locale()

    with locale.set(name="de"):
        ours = pushed(found, redis_url, redis_client)

    assert ours == [masked(raw) for raw in found.members]
