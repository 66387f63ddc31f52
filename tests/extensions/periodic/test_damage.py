"""Keys of one periodic job to which another program has written: the other jobs fire, and workers start."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from click.testing import CliRunner

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.doctor import examine
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.periodic import commands, loading
from sidekiq_py.extensions.periodic.firing import Firing
from sidekiq_py.extensions.periodic.keys import PAYLOAD_KEY
from sidekiq_py.redis_access.connection.pool import Pool
from tests.extensions.periodic.conftest import NOON
from tests.support.waiting import eventually

Start = Callable[..., None]
Look = Callable[[float], list[str]]

BAD = "cron_job:default:bad"
OWN = f"sidekiq_py:cron:{BAD}"
POLICIES: list[dict[str, Any]] = [{}, {"overlap": "skip", "catch_up": timedelta(minutes=5), "jitter": 1}]


def declare_two(start: Start, look: Look, **policy: Any) -> None:
    """A job whose keys will suffer, and one that is to fire all the same; both have fired once."""
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Bad"), name="bad", **policy)
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Good"), name="good")
    start()
    look(NOON + 60.5)
    look(NOON + 62)


def use_everything(start: Start, look: Look, pool: Pool) -> None:
    """Two minutes go by, with all that reads or writes the timetable in between."""
    look(NOON + 120.5)
    loading.restore(pool)
    loading.LostRuns().release(pool)
    assert [(job.runs(), job.history(), job.lost_ticks()) for job in CronJobs()]
    start(NOON + 130)
    look(NOON + 180.5)
    look(NOON + 182)


def good_ones(client: redis.Redis) -> int:
    """How often the other job was pushed."""
    return sum(b'"Good"' in raw for raw in client.lrange("queue:default", 0, -1))


def findings() -> str:
    """All that the doctor says of the timetable."""
    return "\n".join(finding.seen for check, finding in examine().findings() if check.name == "periodic-jobs")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "key",
    [BAD, OWN, f"{BAD}:enqueued", f"{BAD}:jid_history", f"sidekiq_py:cron_runs:{BAD}", "sidekiq_py:cron_declared"],
)
def test_a_key_of_another_type_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, key: str, policy: dict[str, Any]
) -> None:
    """Nor a worker that starts; the doctor names the key."""
    declare_two(start, look, **policy)
    redis_client.delete(key)
    redis_client.set(key, "text")

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3
    assert key in findings()


@pytest.mark.parametrize("value", ["inf", "nan", "1e400", "not ours"])
@pytest.mark.parametrize("field", ["fired", "since", "catch_up", "jitter", "running_since", "p:inf"])
def test_a_number_that_is_none_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, field: str, value: str
) -> None:
    """It counts as missing."""
    declare_two(start, look, **POLICIES[1])
    redis_client.hset(OWN, field, value)

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3


@pytest.mark.parametrize("number", ["9" * 5000, "2+" + "9" * 5000])
def test_a_timetable_with_a_number_of_any_length_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, number: str
) -> None:
    """Python does not read such a number, and raises another error than that for a damaged timetable."""
    declare_two(start, look)
    redis_client.hset(BAD, "cron", f"* * * * mon%{number}")

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3


@pytest.mark.parametrize("copy", ["{", "[]", "{}", '{"cron":"61 * * * *","klass":"A"}', b"\xff"])
def test_a_copy_that_is_none_is_not_written_back(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, copy: str | bytes
) -> None:
    """The job is gone until a worker starts that declares it; others are written back."""
    declare_two(start, look)
    redis_client.hset(OWN, "copy", copy)
    redis_client.delete("cron_jobs:default")

    loading.restore(pool)
    assert [job.name for job in CronJobs()] == ["good"]
    start(NOON + 130)

    assert [job.name for job in CronJobs()] == ["bad", "good"]


@pytest.mark.parametrize("key", [f"{BAD}:jid_history", f"sidekiq_py:cron_runs:{BAD}"])
def test_a_spoilt_history_keeps_no_tick_from_firing(
    start: Start, look: Look, redis_client: redis.Redis, key: str
) -> None:
    """Otherwise the tick would be claimed, and its job not pushed."""
    declare_two(start, look)
    redis_client.delete(key, "queue:default")
    redis_client.set(key, "text")

    look(NOON + 120.5)
    look(NOON + 122)

    assert [json.loads(raw)["class"] for raw in redis_client.lrange("queue:default", 0, -1)] == ["Good", "Bad"]


@pytest.mark.parametrize("value", ["text", "9223372036854775807"])
def test_a_counter_of_changes_that_is_none_stops_nothing(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, value: str
) -> None:
    """A worker that starts writes all of its jobs, not just the first."""
    redis_client.set("sidekiq_py:cron_changes", value)
    declare_two(start, look)

    use_everything(start, look, pool)
    bad = CronJobs().find("bad")
    assert bad is not None
    bad.disable("for now")

    assert good_ones(redis_client) == 3


def test_a_spoilt_history_keeps_no_job_from_ending(start: Start, redis_client: redis.Redis) -> None:
    """The job ran, and leaves no place in flight."""
    runs: list[int] = []

    @sidekiq.job(name="Noted")
    def noted() -> None:
        runs.append(1)

    redis_client.set(OWN, "text")
    redis_client.set(f"sidekiq_py:cron_runs:{BAD}", "text")
    sidekiq.Client().push({"class": "Noted", "args": [], PAYLOAD_KEY: BAD})

    with sidekiq.embed(concurrency=1):
        eventually(lambda: runs and not redis_client.keys("sidekiq_py:in*:*"))

    assert runs == [1]


NAMES = [b"caf\xe9", b"\xed\xa0\x80 lone"]
LAYOUTS = [(b"cron_jobs", b"cron_job:%b"), (b"cron_jobs:default", b"cron_job:default:%b")]


def of_ruby(client: redis.Redis, name: bytes, layout: tuple[bytes, bytes], **fields: Any) -> bytes:
    """Write a job as sidekiq-cron does; its key."""
    key = layout[1] % name
    client.sadd(layout[0], key)
    client.hset(key, mapping={"name": name, "klass": "X", "cron": "* * * * *", "status": "enabled", **fields})
    return key


@pytest.mark.parametrize("layout", LAYOUTS, ids=["1.x", "2.x"])
@pytest.mark.parametrize("name", NAMES, ids=["Latin-1", "surrogate"])
def test_a_name_that_is_not_utf_8_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, name: bytes, layout: tuple[bytes, bytes]
) -> None:
    """Ruby writes such a name without a thought; its own hash stays as it is."""
    declare_two(start, look)
    key = of_ruby(redis_client, name, layout)
    before = redis_client.hgetall(key)

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3
    assert name.decode(errors="surrogateescape") in {job.name for job in CronJobs()}
    assert redis_client.hgetall(key) == before
    assert "3 periodic jobs can be read" in findings()


@pytest.mark.parametrize("name", NAMES, ids=["Latin-1", "surrogate"])
def test_a_declared_name_that_is_not_utf_8_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can be pushed for it, as no payload can carry its key; the log says so."""
    declare_two(start, look)
    key = of_ruby(redis_client, name, LAYOUTS[1], message='{"class":"X","args":[],"retry":true}')
    redis_client.hset(b"sidekiq_py:cron:" + key, mapping={"ours": "1", "jitter": "1", "by": "shop:x", "running": name})
    redis_client.sadd("sidekiq_py:cron_declared", key, b"cron_job:n\xe9:" + name, b"cron_job:gone\xe9")

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3
    assert redis_client.exists(b"queue:default")
    assert b'"X"' not in b"".join(redis_client.lrange("queue:default", 0, -1))
    assert any("is skipped" in record.getMessage() for record in caplog.records)


def test_a_name_that_is_not_utf_8_is_disabled_and_removed(redis_client: redis.Redis) -> None:
    """By its own name; a job whose name looks the same stays."""
    key = of_ruby(redis_client, b"caf\xe9", LAYOUTS[1])
    other = of_ruby(redis_client, "caf\ufffd".encode(), LAYOUTS[1])

    job = CronJobs().find("caf\udce9")
    assert job is not None
    job.disable("bad name")
    assert redis_client.hget(key, "status") == b"disabled"
    job.remove()

    assert redis_client.smembers("cron_jobs:default") == {other}
    assert redis_client.hget(other, "status") == b"enabled"
    assert not redis_client.exists(key)


@pytest.mark.parametrize("value", ["1e300", "1e17", "-1e300", "9" * 400, "nan"])
@pytest.mark.parametrize("field", ["since", "fired", "catch_up", "jitter", "running_since"])
def test_a_time_that_is_none_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, field: str, value: str
) -> None:
    """It counts as missing, and listings can be read."""
    declare_two(start, look)
    redis_client.hset(OWN, field, value)

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3
    assert {"bad", "good"} <= {job.to_dict()["name"] for job in CronJobs()}
    assert [job.catch_up for job in CronJobs()]


@pytest.mark.parametrize("member", [b"", b"x", b"cron_job:", b"[]", b"\xff\xfe"])
def test_a_member_that_is_no_key_of_a_job_stops_no_other_job(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, member: bytes
) -> None:
    """In each of the sets that list such keys."""
    declare_two(start, look)
    for key in ("cron_jobs", "cron_jobs:default", "sidekiq_py:cron_declared"):
        redis_client.sadd(key, member)

    use_everything(start, look, pool)

    assert good_ones(redis_client) == 3
    assert {"bad", "good"} <= {job.to_dict()["name"] for job in CronJobs()}


def test_a_job_of_release_1_whose_key_is_no_hash_stops_no_worker(
    start: Start, look: Look, redis_client: redis.Redis
) -> None:
    """To find the release of the gem, each one's hash is asked."""
    redis_client.sadd("cron_jobs", "cron_job:odd")
    redis_client.set("cron_job:odd", "a string")

    declare_two(start, look)

    assert good_ones(redis_client)


@pytest.mark.parametrize(
    "line", ["j inf 1 pushed", "j 1 1e300 pushed", "j 1 1 pushed nan 1e17", "x", b"\xff", "-1 -1 -1 x"]
)
def test_a_run_that_another_program_has_written_hides_no_other(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis, line: str | bytes
) -> None:
    """Each run that can be read is listed by the commands."""
    declare_two(start, look)
    before = len(CronJobs().find("bad").runs())  # type: ignore[union-attr]
    redis_client.lpush(f"sidekiq_py:cron_runs:{BAD}", line)

    use_everything(start, look, pool)
    result = CliRunner().invoke(commands.cron, ["history", "bad", "--json", "-u", pool.settings.url])

    assert result.exit_code == 0, result.output
    assert len(json.loads(result.output)) > before


def test_a_job_with_an_integer_of_thousands_of_digits_is_shown(
    start: Start, look: Look, pool: Pool, redis_client: redis.Redis
) -> None:
    """Python refuses to convert one to a text."""
    declare_two(start, look)
    redis_client.hset(BAD, "args", "9" * 5000)

    result = CliRunner().invoke(commands.cron, ["show", "bad", "-u", pool.settings.url])

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("forbidden", ["smembers", "hgetall"])
def test_a_timetable_that_may_not_be_read_is_not_taken_for_an_empty_one(
    start: Start, look: Look, redis_client: redis.Redis, redis_url: str, forbidden: str
) -> None:
    """Nor its hashes for damaged ones, which one would delete."""
    declare_two(start, look)
    redis_client.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", f"-{forbidden}")
    url = redis_url.replace("redis://", "redis://limited:pw@")

    try:
        said = [job.problem or "" for job in CronJobs(pool=url)]
    except RedisReplyError as refusal:
        said = [str(refusal)]
    finally:
        redis_client.execute_command("ACL", "DELUSER", "limited")

    assert said
    assert all("NOPERM" in text and "delete" not in text for text in said), said


def test_a_disabled_job_of_ruby_with_a_damaged_key_stops_no_other_job(
    start: Start, pool: Pool, redis_client: redis.Redis
) -> None:
    """Where Python fires Ruby's jobs, too, it notes which of them are disabled."""
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Good"), name="good")
    start()
    message = json.dumps({"retry": True, "class": "Bad", "args": []})
    fields = {"name": "bad", "klass": "Bad", "cron": "* * * * *", "message": message, "status": "disabled"}
    redis_client.hset(BAD, mapping=fields)
    redis_client.sadd("cron_jobs:default", BAD)
    redis_client.set(OWN, "text")

    Firing(fire_ruby_jobs=True).look(pool, NOON + 60.5)

    assert good_ones(redis_client) == 1
