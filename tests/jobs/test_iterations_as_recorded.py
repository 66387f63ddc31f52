"""Iterable jobs as each recorded release of real Sidekiq left them: the state, what is queued, what is retried."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.support.recordings import Held, Recording, database_of, named, recordings
from sidekiq_py import program
from sidekiq_py.errors import Interrupted
from sidekiq_py.jobs.decorators import registry
from sidekiq_py.middleware.running import run
from sidekiq_py.wire.payload import parse_job

RUNS = [found for found in recordings() if found.input.get("step") == "run_iterable"]


class FixtureError(Exception):
    """What the jobs raise."""


class Stopping:
    """Whether the process is being stopped; one for all runs of a test."""

    is_wanted = False


class Counting(sidekiq.IterableJob, name="CountingJob"):
    """Ruby's CountingJob: the deed says at which item the process is told to stop, or the job raises."""

    def build_enumerator(
        self, _deed: str, count: int, *_more: Any, cursor: int | None
    ) -> Iterable[tuple[int, int]] | None:
        return self.array_enumerator(range(count), cursor)

    def each_iteration(self, item: int, deed: str, _count: int, at: int | None = None) -> None:
        if deed == "raise_at" and item == at:
            raise FixtureError(f"item {item}")
        if deed == "stop_at_each" or (deed == "stop_at" and item == at):
            Stopping.is_wanted = True


class Pages(sidekiq.IterableJob, name="PagesJob"):
    """Ruby's PagesJob: its cursor is an object."""

    def build_enumerator(self, _deed: str, _at: int, *, cursor: Any) -> Iterator[tuple[str, Any]]:
        first = cursor["page"] if cursor else 0
        return ((f"page {page}", {"page": page, "of": 4.0}) for page in range(first, 4))

    def each_iteration(self, item: str, _deed: str, at: int) -> None:
        if item == f"page {at}":
            Stopping.is_wanted = True


JOBS = {"CountingJob": Counting, "PagesJob": Pages}
# Before 8.0.4, Ruby saves where a job is every five seconds and when it is interrupted. Where it raises, it begins
# again further back, and does again what was done; ours goes on at the item that failed, as Ruby does since then.
SAVED_ON_FAILURE_SINCE = (8, 0, 4)


@pytest.mark.parametrize("found", named(*RUNS))
def test_a_run_leaves_the_state_that_ruby_left(found: Recording, redis_url: str, redis_client: redis.Redis) -> None:
    """How often it was begun and the next cursor, or nothing where the job has come to its end."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version=found.sidekiq)
    key = f"it-{found.input['jid']}"
    if found.input["state_before"]:
        redis_client.hset(key, mapping=dict(found.input["state_before"]))

    payload = parse_job(found.before)

    ended = attempt(payload)

    given = found.input["error"]
    assert ended == (None if given is None else KINDS[given["class"]])
    if ended is FixtureError and found.dialect.version < SAVED_ON_FAILURE_SINCE:
        assert redis_client.hmget(key, "ex", "c") == [b"1", b"%d" % payload["args"][2]]
    else:
        assert state_of(database_of(redis_client).get(key)) == state_of(found.database.get(key))


KINDS = {"Sidekiq::JobRetry::Skip": Interrupted, "FixtureError": FixtureError}


def attempt(payload: dict[str, Any]) -> type[BaseException] | None:
    """One run, in a process that begins to stop when the job says so; how it ended."""
    Stopping.is_wanted = False
    definition = registry.find(payload["class"])
    assert definition is not None
    try:
        run(definition, payload, "default", program.server_middleware, lambda: Stopping.is_wanted)
    except (Interrupted, FixtureError) as error:
        return type(error)
    return None


def state_of(held: Held | None) -> dict[bytes, bytes]:
    """Fields of the state in their order, but for the run time, which is another in each run."""
    return {} if held is None else {field: value for field, value in held.members if field != b"rt"}
