"""Tasks of a team that came from Celery, next to real Ruby, which enqueues them, shows them and retries them."""

import json
from collections.abc import Iterator

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery._send.clients import client_of

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import LEDGER
from interop_tests.support.ruby import RubyRelease
from sidekiq_py.client.sync_client import Client
from tests.support.waiting import eventually

TASKS = "interop_tests.support.celery_tasks"
SERVES = {"TEAM_TASKS_SERVE": "1"}


@pytest.fixture
def team(ruby_release: RubyRelease, redis_url: str) -> Iterator[Celery]:
    """The same app in this process, which only sends."""
    app = Celery("team", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
    with Client.via(Client(redis_url, sidekiq_version=ruby_release.sidekiq_version)):
        yield app
    client_of(app).close()
    app.close()


@pytest.fixture
def start_tasks(start_python: StartPython) -> StartPython:
    """Starts Python workers that serve the queue `celery`."""

    def start(*arguments: str) -> object:
        return start_python("-q", "celery", *arguments, require=TASKS, environment=SERVES)

    return start  # type: ignore[return-value]


def notes(client: redis.Redis) -> list[str]:
    """What tasks have written."""
    return [line.decode() for line in client.lrange(LEDGER, 0, -1)]


def test_ruby_enqueues_a_task_and_python_runs_it(
    redis_client: redis.Redis, ruby: RunRuby, start_tasks: StartPython
) -> None:
    """Its arguments are positional, the jid is the task's id, and the result is where Celery looks for it."""
    start_tasks()
    push = 'Sidekiq::Client.push("class" => "TeamTask", "queue" => "celery", "args" => ["note", 1, {"a" => 2}])'
    jid = ruby(push)

    [line] = eventually(lambda: notes(redis_client))
    assert line == repr((jid, (1, {"a": 2}), {}))
    meta = eventually(lambda: redis_client.get(f"celery-task-meta-{jid}"))
    assert json.loads(meta)["result"] == "noted"


def test_ruby_reads_what_python_has_sent(redis_client: redis.Redis, ruby: RunRuby, team: Celery) -> None:
    """Class, id, queue and arguments, with the keyword arguments last, as `perform(a, opts)` expects them."""
    result = team.send_task("TeamTask", ("note", 1), {"a": 2})

    read = ruby('Sidekiq::Queue.new("celery").map { |job| [job.klass, job.jid, job.queue, job.args] }')

    assert read == [["TeamTask", result.id, "celery", ["note", 1, {"a": 2}]]]


def test_ruby_shows_a_task_that_is_to_be_retried_and_retries_it(
    redis_client: redis.Redis, ruby: RunRuby, start_tasks: StartPython, team: Celery
) -> None:
    """Its Retries page shows the reason; a retry from there runs the task again, and the last one ends in `dead`."""
    start_tasks()
    result = team.send_task("TeamTask", ("fail",))
    eventually(lambda: redis_client.zcard("retry") == 1)

    shown = ruby("Sidekiq::RetrySet.new.map { |job| [job.jid, job.klass, job.queue, job['error_class'], "
                 "job['error_message'], job['retry_count'], job.at.to_f > Time.now.to_f + 500] }")  # fmt: skip
    ruby("Sidekiq::RetrySet.new.each(&:retry)")

    assert shown == [[result.id, "TeamTask", "celery", "ValueError", "not yet", 0, True]]
    eventually(lambda: redis_client.zcard("dead") == 1)
    [dead] = ruby("Sidekiq::DeadSet.new.map { |job| [job.jid, job['error_message']] }")
    assert dead == [result.id, "not yet"]
    state = json.loads(redis_client.get(f"celery-task-meta-{result.id}") or b"{}")
    assert state["status"] == "FAILURE"


def test_ruby_promotes_a_task_that_waits_for_its_time(
    redis_client: redis.Redis, start_ruby: StartRuby, start_tasks: StartPython, team: Celery
) -> None:
    """A countdown is a scheduled job like any other, whichever poller moves it."""
    with start_ruby(queues=["nothing-here"], poll_seconds=0.1):
        team.send_task("TeamTask", ("note",), {"b": [1.5, None]}, countdown=0.3)
        eventually(lambda: redis_client.llen("queue:celery") == 1)

    start_tasks()

    [line] = eventually(lambda: notes(redis_client))
    assert line.endswith("(), {'b': [1.5, None]})")
