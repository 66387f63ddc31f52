"""Due jobs as the pollers of each recorded release of real Sidekiq moved them: all of Redis afterwards."""

import time
from collections.abc import Callable, Iterator

import pytest
import redis

from interop_tests.support.recordings import Held, Recording, database_of, named, recordings, recordings_of
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.config import Config
from sidekiq_py.engine.upkeep.promoter import Promoter
from sidekiq_py.redis_access.connection.pool import Pool

# A member that is no job is lost in Ruby once it has been popped; ours goes to `dead`.
LOST_BY_RUBY = "promoted_text_is_lost"
PROMOTIONS = [
    found for found in recordings() if found.input.get("step") == "promote" and found.situation != LOST_BY_RUBY
]
Promote = Callable[[Recording], None]


@pytest.fixture
def promote(pool: Pool, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Promote]:
    """One pass over the sets that writes as the recorded release, at the time of the recording."""

    def at_that_time(found: Recording) -> None:
        program.reset()
        program.configure(redis_url=redis_url, sidekiq_version=found.sidekiq)
        monkeypatch.setattr(time, "time", lambda: found.input["now"])
        promoter = Promoter(
            Config().dead_limits,
            pool=pool,
            repush=sync_client.current().repush,
            dialect=lambda: found.dialect,
            report=lambda error, context: None,
        )
        promoter.move_due()

    yield at_that_time
    sync_client.current().close()
    program.reset()


@pytest.mark.parametrize("found", named(*PROMOTIONS))
def test_a_due_job_becomes_what_ruby_makes_of_it(found: Recording, redis_client: redis.Redis, promote: Promote) -> None:
    """The bytes in the queue, and nothing else changes."""
    redis_client.zadd(found.input["from"], {found.before: found.input["score"]})

    promote(found)

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of("promoted_in_order")))
def test_due_jobs_come_in_ruby_s_order(found: Recording, redis_client: redis.Redis, promote: Promote) -> None:
    """Retries first, by score and then by their bytes; what is not due stays."""
    for name, score, raw in found.input["before"]:
        redis_client.zadd(name, {raw: score})

    promote(found)

    assert database_of(redis_client) == found.database


@pytest.mark.parametrize("found", named(*recordings_of(LOST_BY_RUBY)))
def test_what_ruby_s_poller_loses_is_kept(found: Recording, redis_client: redis.Redis, promote: Promote) -> None:
    """In `dead`, byte for byte, for a person to look at."""
    redis_client.zadd("schedule", {found.before: found.input["score"]})

    promote(found)

    assert found.database == {}
    assert database_of(redis_client) == {"dead": Held("zset", [found.before], [found.input["now"]])}
