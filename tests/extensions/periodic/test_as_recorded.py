"""What is written is what the real gem wrote, release by release (`ruby_fixtures/cron/`)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.extensions.periodic import loading, store
from sidekiq_py.extensions.periodic.cron_jobs import CronJobs
from sidekiq_py.extensions.periodic.declared import make
from sidekiq_py.extensions.periodic.layout import layout_of
from sidekiq_py.redis_access.connection.pool import Pool

RECORDED = Path(__file__).parents[3] / "ruby_fixtures" / "cron"
# The moment that the recording enqueues at: 2030-01-01 12:34:05 UTC.
MOMENT = 1893501245.0
VERSIONS = ("1.2.0", "1.8.0", "2.3.1")

KNOWN = {"queue": "low", "retry": 3}
SITUATIONS: dict[str, dict[str, Any]] = {
    "saved, of a class that Ruby lacks": {
        "cron": "*/5 * * * *",
        "job": "PythonJob",
        "args": [1, "two", {"a": None}],
        "tz": "Europe/Berlin",
    },
    "saved, of a class that Ruby has": {"cron": "0 9 * * 1-5", "job": "KnownJob", "description": "At nine"},
    "saved, into a queue": {"cron": "0 9 * * *", "job": "KnownJob", "queue": "high", "args": ["ä"]},
    "saved, with the date as an argument": {"cron": "0 9 * * *", "job": "PythonJob", "date_as_argument": True},
    "disabled": {"cron": "0 9 * * *", "job": "PythonJob"},
    "enqueued": {"cron": "0 9 * * *", "job": "PythonJob", "args": [1]},
    "destroyed": {"cron": "0 9 * * *", "job": "PythonJob"},
}


# 1.2.0 appends the moment of the save, and has no field for it.
BY_RELEASE = [(version, name) for version in VERSIONS for name in SITUATIONS if version > "1.2.0" or "date" not in name]


@pytest.mark.parametrize(("version", "situation"), BY_RELEASE)
def test_the_keys_are_those_that_the_gem_leaves(
    version: str, situation: str, pool: Pool, redis_client: redis.Redis
) -> None:
    """Hashes with their fields in order, sets, histories and the job that is pushed."""
    recorded = json.loads((RECORDED / f"{version}.json").read_text())["situations"][situation]
    given = dict(SITUATIONS[situation])
    job = given.pop("job")
    declared = sidekiq.ruby_job("KnownJob", **KNOWN) if job == "KnownJob" else job
    loading.save(pool, layout_of(version), [make(given.pop("cron"), declared, name="report", **given)])
    stored = CronJobs().find("report")
    if situation == "disabled":
        stored.disable()
    elif situation == "enqueued":
        stored.run(at=MOMENT)
    elif situation == "destroyed":
        stored.remove()

    left = {key.decode(): _read(redis_client, key) for key in redis_client.keys("*")}
    ours = {key: value for key, value in left.items() if not key.startswith("sidekiq_py:") and ":enqueued" not in key}
    theirs = {key: value for key, value in recorded.items() if ":enqueued" not in key}
    # Redis keeps the order of a hash's fields only while all values are short.
    for key, fields in list(theirs.items()):
        if isinstance(fields[0], list) and max(len(value) for _, value in fields) > 60:
            ours[key], theirs[key] = sorted(ours[key]), sorted(fields)
    assert ours == theirs
    assert (f"{stored.stored.key}:enqueued" in left) == any(":enqueued" in key for key in recorded)


def _read(client: redis.Redis, key: bytes) -> Any:
    kind = client.type(key)
    if kind == b"hash":
        return [[name.decode(), value.decode()] for name, value in client.hgetall(key).items()]
    if kind == b"set":
        return sorted(member.decode() for member in client.smembers(key))
    if kind == b"list":
        return [_masked(line.decode()) for line in client.lrange(key, 0, -1)]
    return None


def _masked(line: str) -> str:
    line = re.sub(r"[0-9a-f]{24}", "JID", line)
    line = re.sub(r'_at":\d+(\.\d+)?', '_at":0', line)
    return re.sub(r',"sidekiq_py_cron":"[^"]*"', "", line)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_gem_has_saved_is_read(version: str, pool: Pool, redis_client: redis.Redis) -> None:
    """Each recorded hash, with its text, arguments and state."""
    recorded = json.loads((RECORDED / f"{version}.json").read_text())["situations"]
    for situation in ("saved, of a class that Ruby has", "disabled", "enqueued"):
        redis_client.flushdb()
        for key, value in recorded[situation].items():
            if value and isinstance(value[0], list):
                redis_client.hset(key, mapping=dict(value))
            elif key.startswith("cron_jobs"):
                redis_client.sadd(key, *value)
        [job] = CronJobs()
        assert job.problem is None
        assert (job.name, job.is_python, job.is_enabled) == ("report", False, situation != "disabled")
        assert (job.last_enqueue_time is not None) == (situation == "enqueued")
        assert job.stored.entry is not None
        assert (
            job.stored.entry.fields(job.stored.layout)
            == [part for pair in recorded[situation][job.stored.key] for part in pair]
            or version == "1.2.0"
        )


def test_the_layout_follows_the_jobs_that_ruby_has(pool: Pool, redis_client: redis.Redis) -> None:
    """1.x only where it has jobs and 2.x has none but ours; 1.2 lacks a field of 1.8."""
    assert store.layout_in_use(pool, None).version == "2"
    redis_client.sadd("cron_jobs", "cron_job:a")
    redis_client.hset("cron_job:a", "name", "a")
    assert store.layout_in_use(pool, None).version == "1.2"
    redis_client.hset("cron_job:a", "symbolize_args", "false")
    assert store.layout_in_use(pool, None).version == "1.8"
    redis_client.sadd("cron_jobs:default", "cron_job:default:b")
    assert store.layout_in_use(pool, None).version == "2"
    assert store.layout_in_use(pool, "1.2.0").version == "1.2"
