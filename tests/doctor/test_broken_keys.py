"""Keys that hold something else than Sidekiq and Python keep there, and names that are no UTF-8."""

import json
import shutil
import subprocess

import pytest
import redis
from click.testing import CliRunner
from sidekiq_celery import Celery
from sidekiq_celery._admission import rate_limits, revokes, worker_copy
from sidekiq_celery._beat import listing, persistent
from sidekiq_celery._run import failed_tasks

from sidekiq_py.cli import main
from sidekiq_py.doctor import Level, examine
from sidekiq_py.doctor.finding import for_shell, span
from sidekiq_py.extensions.batches import steps
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.wire.control_characters import escaped
from tests.doctor.conftest import Look, payload, push, python_process, ruby_process, run_advice

_WITH_BASH = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")

OWNER = "app:9:ba9876543210:1"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("queues", "set"),
        ("processes", "set"),
        ("paused", "set"),
        ("schedule", "sorted set"),
        ("retry", "sorted set"),
        ("dead", "sorted set"),
        ("sidekiq_py:owners", "hash"),
        ("sidekiq_py:departed", "hash"),
        ("sidekiq_py:suspects", "hash"),
        ("sidekiq_py:revoked", "sorted set"),
        ("sidekiq_py:audit", "stream"),
        ("sidekiq_py:bulk_runs", "sorted set"),
        ("sidekiq_py:extension_keys", "hash"),
        (steps.ALL, "sorted set"),
        (steps.RUNNING, "sorted set"),
        (steps.INVALID, "sorted set"),
        (steps.RUBY_PROCESSES, "set"),
        (steps.ruby_runs_key("web:8:0123456789ab"), "hash"),
        (failed_tasks.INDEX, "sorted set"),
        (revokes.STAMPS_KEY, "sorted set"),
        (worker_copy.RATES_KEY, "hash"),
        (rate_limits.rate_key("shop.add"), "hash"),
        (listing.BEATS, "hash"),
        (persistent.turns_key(Celery("shop")), "hash"),
        (f"sidekiq_py:inflight:{OWNER}", "hash"),
        (f"sidekiq_py:inbox:{OWNER}:default", "list"),
    ],
)
def test_a_key_of_a_wrong_type_is_a_problem_that_names_it(
    look: Look, redis_url: str, redis_client: redis.Redis, key: str, expected: str
) -> None:
    """With its type, the right one, and the command that moves it away."""
    redis_client.set(key, "x")

    diagnosis = look()

    found = diagnosis.the("key-types")
    assert (found.level, found.subjects) == ("problem", (key,))
    assert found.seen.startswith(f"The key `{key}` is a string and not a {expected}. ")
    assert not diagnosis.report.is_healthy()
    run_advice(found.advice, redis_url, "--yes")
    assert look()["key-types"] == []
    assert redis_client.get(f"misplaced:{key}") == b"x"


@pytest.mark.parametrize(
    "key",
    [
        *("stat:processed", "stat:failed", "stat:failed:2020-02-29"),
        *("sidekiq_py:orders", "sidekiq_py:poller", f"sidekiq_py:lease:{OWNER}"),
    ],
)
def test_a_string_that_is_none_is_a_problem(look: Look, redis_client: redis.Redis, key: str) -> None:
    """Counters, also of a day that is long gone, and signs of life."""
    redis_client.lpush(key, "x")

    assert look().the("key-types").seen.startswith(f"The key `{key}` is a list and not a ")


def test_a_counter_that_is_no_number_is_a_problem(look: Look, redis_client: redis.Redis) -> None:
    """INCRBY refuses it; an ordinary one is in order."""
    redis_client.mset({"stat:processed": "12x", "stat:failed": "-12"})

    found = look().the("key-types")

    assert found.subjects == ("stat:processed",)
    assert "is a string that is not a whole number" in found.seen


@pytest.mark.parametrize(
    ("key", "checks"),
    [
        ("schedule", ["due-elsewhere", "overdue"]),
        ("retry", ["due-elsewhere", "overdue", "refused-classes"]),
        ("paused", ["paused"]),
        ("queues", ["unlisted-queues"]),
        ("sidekiq_py:owners", ["orphans", "unentered-owners"]),
        ("sidekiq_py:suspects", ["suspects"]),
    ],
)
def test_nothing_is_in_order_that_a_broken_key_would_tell(
    look: Look, redis_client: redis.Redis, key: str, checks: list[str]
) -> None:
    """It stays unseen, for the reason of that key; the rest is looked at."""
    ruby_process(redis_client)
    redis_client.set(key, "x")
    redis_client.lpush("queue:mailers", json.dumps(payload(queue="mailers")))

    diagnosis = look()

    for name in checks:
        assert "unseen" in diagnosis.levels(name), name
        assert f"because the key `{key}` is a string" in diagnosis[name][-1].seen
    assert diagnosis.levels("unworked-queues") == ["problem"]


@pytest.mark.usefixtures("look")
def test_the_command_fails_for_keys_of_a_wrong_type(redis_url: str, redis_client: redis.Redis) -> None:
    """Nothing of them stands among what is in order."""
    redis_client.mset({"schedule": "x", "retry": "x"})

    result = CliRunner().invoke(main, ["doctor", "-u", redis_url])

    assert result.exit_code == 1
    assert "overdue jobs" not in result.stdout.partition("OK: ")[2]


def test_the_key_of_one_process_hides_no_other(look: Look, redis_client: redis.Redis) -> None:
    """Nor does what it says to declare."""
    broken = "web:8:0123456789ab"
    redis_client.sadd("processes", broken)
    redis_client.set(broken, "x")
    python = python_process(redis_client, classes=None)
    redis_client.lpush(f"sidekiq_py:declared:{python}", "x")
    ruby_process(redis_client)

    diagnosis = look()

    assert {name for finding in diagnosis["key-types"] for name in finding.subjects} == {
        broken,
        f"sidekiq_py:declared:{python}",
    }
    assert (diagnosis.report.about["ruby_processes"], diagnosis.report.about["python_processes"]) == (1, 1)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_queue_whose_name_is_no_utf_8_is_looked_at(
    look: Look, redis_client: redis.Redis, redis_url: str, is_listed: bool
) -> None:
    """Its byte is spelled out where it is shown, also in JSON."""
    ruby_process(redis_client)
    redis_client.lpush(b"queue:mail\xff", json.dumps(payload()))
    if is_listed:
        redis_client.sadd("queues", b"mail\xff")

    diagnosis = look()
    result = CliRunner().invoke(main, ["doctor", "-u", redis_url, "--json"])

    assert diagnosis.the("unworked-queues").seen == r"1 job waits in `mail\xff`, and no process serves that queue."
    assert "not UTF-8" in diagnosis.the("unworked-queues").advice
    assert diagnosis.levels("unlisted-queues") == ([] if is_listed else ["warning"])
    assert diagnosis.report.about["jobs_looked_at"] == 1
    assert result.exit_code == 1
    assert r"mail\xff" in [name for found in json.loads(result.stdout)["findings"] for name in found["subjects"]]


@_WITH_BASH
@pytest.mark.parametrize("namespace", ["", "my app"])
def test_a_queue_whose_name_is_no_utf_8_is_renamed_by_the_printed_command(
    redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    """In bash, as it stands, but for the way to this Redis."""
    start = namespace.encode() + b":" if namespace else b""
    for key in ("processes", ruby_process(redis_client)):
        redis_client.rename(key, start + key.encode())
    redis_client.lpush(start + b"queue:it's\xff", json.dumps(payload()))
    redis_client.sadd(start + b"queues", b"it's\xff")
    pool = Pool(RedisSettings(redis_url, namespace=namespace))

    [advice] = [found.advice for check, found in examine(pool=pool).findings() if check.name == "unworked-queues"]
    pool.close()
    commands = advice.rpartition(": ")[2].replace("redis-cli ", f"redis-cli -u {redis_url} ")
    subprocess.run(["bash", "-c", commands], check=True, capture_output=True)

    assert redis_client.llen(start + b"queue:NAME") == 1
    assert redis_client.smembers(start + b"queues") == {b"NAME"}


@_WITH_BASH
def test_a_name_that_is_no_utf_8_is_found_again_by_the_printed_command() -> None:
    """In bash."""
    name = b"it's \\ \xff\xfe".decode(errors="surrogateescape")

    printed = subprocess.run(["bash", "-c", f"printf %s {for_shell(name)}"], capture_output=True, check=True)

    assert printed.stdout == b"it's \\ \xff\xfe"
    assert for_shell("a b") == "'a b'"


@_WITH_BASH
def test_a_name_with_control_characters_is_found_again_by_the_printed_command() -> None:
    """Although they are spelled out when the command is printed."""
    name = "it's \\ \x1b[31m\n \x7f \x85a \u202e"

    printed = subprocess.run(["bash", "-c", f"printf %s {escaped(for_shell(name))}"], capture_output=True, check=True)

    assert printed.stdout.decode() == name


def test_a_key_that_is_no_list_is_moved_away_by_the_printed_command(
    look: Look, redis_url: str, redis_client: redis.Redis
) -> None:
    """Also where its name has a blank."""
    push(redis_client)
    redis_client.sadd("queues", "a b")
    redis_client.set("queue:a b", "x")

    found = look().the("unlisted-queues")
    run_advice(found.advice, redis_url, "--yes")

    assert found.seen.startswith("The key `queue:a b` is a string and not a list")
    assert look()["unlisted-queues"] == []


@pytest.mark.parametrize("namespace", ["myapp", "a*b"])
def test_under_a_namespace_commands_name_it(redis_url: str, redis_client: redis.Redis, namespace: str) -> None:
    """Keys of another namespace are not meant."""
    redis_client.mset({f"{namespace}:schedule": "x", f"{namespace}:queue:low": "x", "aXb:queue:high": "x"})
    pool = Pool(RedisSettings(redis_url, namespace=namespace))

    found = [finding for _, finding in examine(pool=pool).findings(Level.PROBLEM)]
    pool.close()

    assert [finding.subjects for finding in found] == [("schedule",), ("low",)]
    for finding, key in zip(found, ("schedule", "queue:low"), strict=True):
        run_advice(finding.advice, redis_url, "--yes")
        assert redis_client.get(f"{namespace}:misplaced:{key}") == b"x"
    assert redis_client.exists("aXb:queue:high")


def test_a_job_that_waits_for_all_eternity(look: Look, redis_client: redis.Redis) -> None:
    """A length of time that nobody can read is not spelled out."""
    ruby_process(redis_client)
    redis_client.zadd("schedule", {json.dumps(payload()): "-1e300"})
    push(redis_client, enqueued_at=-1e300)

    diagnosis = look()

    assert diagnosis.the("overdue").seen.endswith("for more than 1,000 years.")
    assert "up to more than 1,000 years;" in diagnosis.the("latency").seen


@pytest.mark.parametrize("beat", ["1e999", "-1e308"])
def test_a_beat_that_is_no_time(look: Look, redis_client: redis.Redis, beat: str) -> None:
    """Far off, in words; what is no number at all tells nothing."""
    redis_client.hset(ruby_process(redis_client, "a:1:aa"), "beat", beat)
    redis_client.hset(ruby_process(redis_client, "b:1:aa"), "beat", "nan")

    found = look().the("process-clocks")

    assert found.subjects == ("a:1:aa",)
    assert " is more than 1,000 years " in found.seen
    assert span(86_400 * 3) == "3 days"
