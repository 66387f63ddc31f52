"""Jobs of more bytes than `worker_max_body_bytes`."""

import json
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery._run.too_large import id_at_an_end
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_celery.worker.engine_config import engine_config
from sidekiq_celery.worker.pools import slots

from tests.compat.tasks.worker import TaskWorker
from tests.support.ledger import push_jobs
from tests.support.waiting import eventually

LIMIT_BYTES = 33_000_000


def test_a_job_over_the_limit_is_kept_unread(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """As it is, in the dead set, with a failure as its result that says which setting to change; others run."""
    ran: list[int] = []

    @app.task(name="proj.measure", typing=False)
    def measure(text: str) -> None:
        ran.append(len(text))

    app.conf.worker_max_body_bytes = LIMIT_BYTES
    result = measure.delay("x" * LIMIT_BYTES)
    raw = redis_client.lindex("queue:celery", 0)
    measure.delay("x")

    worker.start(max_job_bytes=engine_config(app, slots("threads", 1)).max_job_bytes)
    eventually(lambda: redis_client.zcard("dead") == 1 and ran)

    assert redis_client.zrange("dead", 0, -1) == [raw]
    assert ran == [1]
    assert redis_client.zcard("retry") == 0
    failure = json.loads(redis_client.get(f"celery-task-meta-{result.id}") or b"{}")
    assert failure["status"] == "FAILURE"
    assert f"the job has {len(raw or b''):,} bytes, and worker_max_body_bytes is 33,000,000" in str(failure["result"])


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz"])
def test_a_compressed_body_is_not_decompressed_beyond_the_limit(
    app: Celery, worker: TaskWorker, compression: str
) -> None:
    """A job of a few hundred bytes can become gigabytes, for which Linux would kill the worker."""
    ran: list[int] = []

    @app.task(name="proj.measure", typing=False)
    def measure(text: str) -> None:
        ran.append(len(text))

    app.conf.worker_max_body_bytes = 20_000
    too_large = measure.apply_async(("x" * 1_000_000,), compression=compression)
    large = measure.apply_async(("x" * 15_000,), compression=compression)
    worker.start(max_job_bytes=20_000)

    with pytest.raises(InvalidTaskError, match="more than 20,000 bytes without its compression"):
        too_large.get(timeout=60)
    large.get(timeout=60)
    assert ran == [15_000]


def test_what_is_too_large_need_not_be_a_job(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """Nobody looks; without an id there is no result."""
    app.conf.worker_max_body_bytes = 1000
    push_jobs(redis_client, ["[" * 2000], queue="celery")

    worker.start(max_job_bytes=1000)
    eventually(lambda: redis_client.zcard("dead") == 1)

    assert redis_client.zrange("dead", 0, -1) == [b"[" * 2000]
    assert redis_client.keys("celery-task-meta-*") == []


def test_the_limit_is_a_setting(app: Celery) -> None:
    """32 MiB unless it is set; 0 for none."""
    assert engine_config(app, slots("threads", 1)).max_job_bytes == 32 * 1024 * 1024

    app.conf.worker_max_body_bytes = 0

    assert engine_config(app, slots("threads", 1)).max_job_bytes == 0


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("job", "jid"),
    [
        ({"class": "a", "args": [LONG, {"x": 1, "jid": "no"}], "jid": "yes", "queue": "q"}, "yes"),
        ({"class": "a", "jid": "yes", "args": [LONG, {"x": 1, "jid": "no"}]}, "yes"),
        ({"class": "a", "args": [{"x": 1, "jid": "no"}, LONG]}, None),
        ({"class": "a", "args": [LONG, {"x": 1, "jid": "no"}]}, None),
        ({"class": "a", "args": [LONG, {"x": 1, "jid": "no"}], "jid": 5}, None),
        ({"class": "a", "args": [',"jid":"no"}', LONG]}, None),
        ({"class": "a", "args": [LONG, ',"jid":"no"}']}, None),
        ({"class": "a", "args": [LONG], "jid": "yes", "celery": {"shadow": ',"jid":"no"}'}}, "yes"),
        ({"jid": "yes", "args": [LONG]}, "yes"),
        ({"class": "a", "args": [LONG], "jid": "yes", "body": LONG}, None),
    ],
)
def test_an_id_is_found_near_an_end_and_never_among_arguments(job: Any, jid: str | None) -> None:
    """Without reading all; else there is none."""
    assert id_at_an_end(json.dumps(job, separators=(",", ":")).encode()) == jid
