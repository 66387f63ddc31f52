"""Jobs that left their queue, and what else lives on this Redis."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sidekiq_py.doctor.families import family_of
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.doctor.conftest import Look, payload, push, python_process, ruby_process, run_advice
from tests.engine.fetch.in_flight_jobs import OWNER, fetch
from tests.support.in_flight import jobs_in_flight
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

IDENTITY = OWNER.rpartition(":")[0]


def take(url: str, owner: str = OWNER) -> None:
    """An owner fetches what is in `default`."""
    pool = Pool(RedisSettings(url))
    with pool.link() as link:
        assert fetch(link, owner=owner)
    pool.close()


def test_jobs_at_a_process_that_is_heard_of_are_in_order(look: Look, redis_url: str, redis_client: redis.Redis) -> None:
    """However many."""
    push(redis_client)
    take(redis_url)

    assert look()["orphans"] == []


def test_jobs_of_a_worker_that_was_killed(
    look: Look, start_worker: Callable[..., WorkerProcess], redis_client: redis.Redis
) -> None:
    """Nobody is left to bring them back. Once its lease has run out that shows, though its heartbeat still stands."""
    worker = start_worker("tests.cli.worker_jobs")
    identity = worker.identity
    push(redis_client, "Sleep", args=[600])
    eventually(lambda: jobs_in_flight(redis_client, f"{identity}:1"))
    worker.kill()
    redis_client.delete(f"sidekiq_py:lease:{identity}:1")
    redis_client.expire(identity, 30)

    found = look().the("orphans")

    assert (found.level, found.subjects) == ("problem", (f"{identity}:1",))
    assert "1 job is in flight at 1 Python process" in found.seen
    assert "sidekiq-py recover" in found.advice


def test_orphans_that_a_living_worker_will_bring_back(look: Look, redis_url: str, redis_client: redis.Redis) -> None:
    """A lease tells that one lives."""
    push(redis_client)
    take(redis_url)
    push(redis_client)
    take(redis_url, owner="host:2:abc:1")
    redis_client.delete(f"sidekiq_py:lease:{OWNER}")

    found = look().the("orphans")

    assert (found.level, found.subjects) == ("warning", (OWNER,))
    assert "A running Python worker will recover them" in found.advice


def test_a_process_that_beats_without_a_lease(look: Look, redis_url: str, redis_client: redis.Redis) -> None:
    """As all do after an outage of Redis."""
    push(redis_client)
    take(redis_url)
    redis_client.delete(f"sidekiq_py:lease:{OWNER}")
    python_process(redis_client, IDENTITY)

    assert look().levels("orphans") == ["note"]


def test_jobs_that_no_registry_names_come_back_by_the_printed_command(
    look: Look, redis_url: str, redis_client: redis.Redis
) -> None:
    """In flight, and in an inbox."""
    push(redis_client)
    take(redis_url)
    redis_client.lpush(f"sidekiq_py:inbox:{OWNER}:low", json.dumps(payload(queue="low")))
    redis_client.delete("sidekiq_py:owners", f"sidekiq_py:lease:{OWNER}")

    found = look().the("unentered-owners")
    assert (found.level, found.subjects) == ("problem", (OWNER,))
    assert "2 jobs are in flight" in found.seen
    recovered = run_advice(found.advice, redis_url, "--all")

    assert "2 jobs returned" in recovered.output
    assert (redis_client.llen("queue:default"), redis_client.llen("queue:low")) == (1, 1)
    assert look()["unentered-owners"] == []


def test_suspects_are_a_note(look: Look, redis_client: redis.Redis) -> None:
    """A process may die for many reasons."""
    redis_client.hset("sidekiq_py:suspects", "0" * 40, "1:1700000000.000")

    assert look().levels("suspects") == ["note"]


def test_private_lists_of_super_fetch_whose_process_is_gone(look: Look, redis_client: redis.Redis) -> None:
    """Ruby's affair; a list of a process that lives is not named."""
    alive = ruby_process(redis_client)
    redis_client.lpush(f"queue:sq|{alive}|default", "{}")
    redis_client.lpush("queue:sq|web:8:0123456789ab|default", "{}", "{}")

    diagnosis = look()

    found = diagnosis.the("orphans-of-ruby")
    assert "2 jobs are in private lists" in found.seen
    assert found.subjects == ("queue:sq|web:8:0123456789ab|default",)
    assert diagnosis["unlisted-queues"] == []


def test_working_lists_of_gitlab_whose_process_is_gone(look: Look, redis_client: redis.Redis) -> None:
    """By its own heartbeat."""
    redis_client.set("reliable-fetcher-heartbeat-web-7-0123456789ab", 1, ex=60)
    redis_client.lpush("working:queue:default:web:7:0123456789ab", "{}")
    redis_client.lpush("working:queue:default:web:8:0123456789ab", "{}")

    assert look().the("orphans-of-ruby").subjects == ("working:queue:default:web:8:0123456789ab",)


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("b-Xc4yN0pB7eMGPw", "Sidekiq Pro's batches"),
        ("b-Xc4yN0pB7eMGPw-failinfo", "Sidekiq Pro's batches"),
        ("super_processes", "Sidekiq Pro's super_fetch"),
        ("queue:sq|web:7:0123456789ab|default", "Sidekiq Pro's super_fetch"),
        ("dear-leader", "Sidekiq Enterprise's leader"),
        ("loops:abc", "Sidekiq Enterprise's periodic jobs"),
        ("lmtr-c-stripe", "Sidekiq Enterprise's rate limiters"),
        ("unique:0a0b", "Sidekiq Enterprise's unique jobs"),
        ("cron_job:nightly", "sidekiq-cron"),
        ("cron_jobs:default", "sidekiq-cron"),
        ("schedules", "sidekiq-scheduler"),
        ("sidekiq-scheduler:pushed:nightly", "sidekiq-scheduler"),
        ("uniquejobs:digests", "sidekiq-unique-jobs"),
        ("unique:keys", "sidekiq-unique-jobs"),
        ("working:queue:default:web:7:0123456789ab", "GitLab's reliable fetcher"),
        ("BID-abc-jids", "sidekiq-batch (not Sidekiq Pro's)"),
        ("sidekiq:status:abc", "sidekiq-status"),
        ("throttled:api", "sidekiq-throttled"),
        ("limit_fetch:pause:default", "sidekiq-limit_fetch"),
        ("limit:heartbeat:0a0b", "sidekiq-limit_fetch"),
        ("batching:batches", "sidekiq-grouping"),
        ("batching:last_execution_time:report_job_default", "sidekiq-grouping"),
        ("debouncer", "sidekiq-debouncer"),
        ("debounce/v3/ReportJob/7", "sidekiq-debouncer"),
        ("sidekiq-fair_tenant:enqueued:ReportJob:tenant:7", "sidekiq-fair_tenant"),
        ("activejob_uniqueness:billing/invoice_job:0a0b", "activejob-uniqueness"),
    ],
)
def test_a_key_of_another_product_is_recognized(key: str, title: str) -> None:
    """By its name."""
    family = family_of(key)

    assert family is not None
    assert family.title == title


@pytest.mark.parametrize("key", ["queue:default", "schedule", "b-side", "stat:processed", "it-abc", "j|2024|1:2", "x"])
def test_other_keys_are_nobodys(key: str) -> None:
    """Sidekiq's own, and those of whoever shares the server."""
    assert family_of(key) is None


def test_products_are_told_with_what_they_mean(look: Look, redis_client: redis.Redis) -> None:
    """A finding each, in their order."""
    redis_client.sadd("cron_jobs", "cron_job:nightly")
    redis_client.hset("cron_job:nightly", "klass", "Nightly")
    redis_client.set("dear-leader", "web:7:0123456789ab")

    leader, cron = look()["products"]

    assert leader.seen.startswith("Sidekiq Enterprise's leader: 1 key (dear-leader).")
    assert "licence" in leader.advice
    assert cron.seen.startswith("sidekiq-cron: 2 keys (cron_job:nightly, cron_jobs).")
    assert "`sidekiq-py cron list` shows them" in cron.seen


@pytest.mark.parametrize(
    ("key", "value"),
    [("bid", "Xc4"), ("encrypt", True), ("unique_token", "0a"), ("overrated", 2), ("lock_digest", "uniquejobs:0a")],
)
def test_jobs_for_the_middleware_of_others(look: Look, redis_client: redis.Redis, key: str, value: Any) -> None:
    """Worse where Python fetches them."""
    ruby_process(redis_client, queues=("default", "python"))
    push(redis_client, **{key: value})

    assert look().levels("marked-jobs") == ["note"]

    python_process(redis_client, queues=("python",))
    push(redis_client, queue="python", **{key: value})
    found = look().the("marked-jobs")

    assert (found.level, found.subjects) == ("warning", ("python",))
    assert f"2 jobs have `{key}`" in found.seen


def test_a_mark_of_thousands_of_digits_is_one_too(look: Look, redis_client: redis.Redis) -> None:
    """Python prints no integer of more than 4,300 digits."""
    ruby_process(redis_client)
    redis_client.sadd("queues", "default")
    redis_client.lpush("queue:default", '{"class":"HardJob","args":[],"jid":"a","bid":' + "9" * 5000 + "}")

    assert "1 job has `bid`" in look().the("marked-jobs").seen


def test_jobs_of_the_gem_sidekiq_batch_are_python_s_too(look: Look, redis_client: redis.Redis) -> None:
    """But for its callbacks, which Ruby alone can run."""
    redis_client.hset("BID-Xc4yN0pB7eMGPw", "pending", 2)
    python_process(redis_client, queues=("python",))
    push(redis_client, queue="python", bid="Xc4yN0pB7eMGPw")

    assert look().levels("marked-jobs") == []

    push(redis_client, "Sidekiq::Batch::Callback::Worker", queue="python", bid="Xc4yN0pB7eMGPw")

    assert "1 job has `bid`" in look().the("marked-jobs").seen


def test_a_queue_that_a_python_worker_has_left(
    look: Look, start_worker: Callable[..., WorkerProcess], redis_client: redis.Redis
) -> None:
    """It met a job of a batch: nobody works the queue now, and both are told."""
    start_worker("tests.cli.worker_jobs")
    push(redis_client, "Note", args=["x"], bid="Xc4yN0pB7eMGPw")

    diagnosis = eventually(lambda: d if (d := look())["unworked-queues"] else None, within_seconds=60)

    unworked = diagnosis.the("unworked-queues")
    assert unworked.subjects == ("default",)
    assert "Have a Ruby process serve it" in unworked.advice
    assert "--extension-key bid=run" in unworked.advice
    assert "serves the queue again after a restart" in diagnosis.the("marked-jobs").seen


def test_jobs_that_expire_and_delayed_extensions(look: Look, redis_client: redis.Redis) -> None:
    """Pro's, and those of Sidekiq up to 6."""
    push(redis_client, expiry=str(time.time()))
    push(redis_client, "Sidekiq::Extensions::DelayedMailer", args=["---\n- !ruby/class 'X'"])

    diagnosis = look()

    assert "`expiry`" in diagnosis.the("marked-jobs").seen
    assert "YAML" in diagnosis.the("extensions").seen


def test_queues_under_a_namespace(look: Look, redis_client: redis.Redis) -> None:
    """With the way to look into it; another key of that ending is none."""
    redis_client.sadd("myapp:queues", "default")
    redis_client.set("other:queues", "x")

    found = look().the("namespaces")

    assert found.subjects == ("myapp",)
    assert found.advice.endswith("--namespace myapp")
