"""Beat as the Redis user of docs/redis.md that runs jobs, with no more rights than that has."""

import threading
from collections.abc import Iterator

import pytest
import redis
from sidekiq_celery import Celery, beat_state
from sidekiq_celery.beat import PersistentScheduler, Service

from tests.compat.beat.beats import TICK, jobs, run_due
from tests.compat.beat.clock import Clock
from tests.support.redis_server import RedisServer
from tests.support.redis_users import Users, documented_users, rights_on_top
from tests.support.waiting import eventually


@pytest.fixture
def users(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[Users]:
    """The documented users, who leave again."""
    made = Users(redis_server, redis_client)
    made.create()
    yield made
    for name in documented_users():
        redis_client.execute_command("ACL", "DELUSER", name)


def test_beat_needs_no_more_rights_than_a_worker(users: Users, clock: Clock, redis_client: redis.Redis) -> None:
    """Starting, sending, adding, pausing, resuming, removing, forgetting: nothing is refused."""
    app = Celery("proj", broker=users.url("worker"), set_as_current=False, fixups=[])
    app.now = clock.now  # type: ignore[method-assign]
    app.conf.beat_schedule = {"tick": TICK, "later": {**TICK, "options": {"countdown": 10**9}}}
    beat_state.add(app, "added", "proj.added", 10)
    beat = PersistentScheduler(app)
    clock.advance(10)

    run_due(beat)
    beat_state.pause(app, "tick")
    beat_state.resume(app, "tick")
    beat_state.run(app, "tick")
    beat_state.remove(app, "added")
    del app.conf.beat_schedule["later"]
    PersistentScheduler(app)

    assert "later" not in [entry.name for entry in beat_state.entries(app)]
    assert len(jobs(redis_client)) == 3
    assert redis_client.zcard("schedule") == 1
    assert users.refusals() == []
    app.close()


def test_a_ping_needs_the_rights_of_remote_control(users: Users) -> None:
    """For beat, which answers, and for who asks."""
    users.give("worker", rights_on_top("Workers and beats that answer remote control"))
    url = users.url("worker")
    app = Celery("proj", broker=url, backend=url, set_as_current=False, fixups=[])
    service = Service(app, remote_control=True, hostname="beat@here")
    beat = threading.Thread(target=service.start)
    beat.start()
    try:
        eventually(lambda: app.control.ping(destination=["beat@here"], timeout=0.3))
    finally:
        service.stop()
        beat.join()

    assert users.refusals() == []
    app.close()
