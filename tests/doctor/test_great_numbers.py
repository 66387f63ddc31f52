"""Where there is much of something: all of it is looked at, or it is told what was not."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from sidekiq_py.cli import main
from sidekiq_py.doctor import sampling
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.reads import survey
from tests.doctor.conftest import Look, payload, push, ruby_process
from tests.web.conftest import round_trips

__all__ = ["round_trips"]

_FILL = "for number = ARGV[1], ARGV[2] do redis.call('SET', 'cache:' .. number, 1) end"
_AT_ONCE = 10_000
_PROCESSES = """
for number = 1, ARGV[1] do
  local identity, queue = 'web:' .. number .. ':0123456789ab', 'q' .. number
  redis.call('SADD', 'processes', identity)
  redis.call('HSET', identity, 'info', (ARGV[2]:gsub('QUEUE', queue)), 'busy', 0, 'beat', 0, 'quiet', 'false')
  redis.call('SADD', 'queues', queue)
  redis.call('LPUSH', 'queue:' .. queue, ARGV[3])
end
"""
_HIDDEN = [f"hidden{number}" for number in range(5)]
_OWNERS = [f"web:{number}:abcdefabcdef:1" for number in range(5)]


def fill(client: redis.Redis, number: int) -> None:
    """Keys of others, in steps that keep the server from answering for an instant only."""
    for first in range(1, number, _AT_ONCE):
        client.eval(_FILL, 0, first, first + _AT_ONCE - 1)


def hide(client: redis.Redis) -> None:
    """Queues that no set lists, and owners that no registry names."""
    for queue in _HIDDEN:
        client.lpush(f"queue:{queue}", json.dumps(payload(queue=queue)))
    for owner in _OWNERS:
        client.hset(f"sidekiq_py:inflight:{owner}", "1.0:default", json.dumps(payload()))


def test_queues_and_owners_are_found_among_any_number_of_other_keys(
    look: Look, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis picks them by their names."""
    monkeypatch.setattr("sidekiq_py.doctor.keyspace.SECONDS_AT_MOST", 600)
    fill(redis_client, 400_000)
    ruby_process(redis_client)
    hide(redis_client)

    diagnosis = look()

    assert sorted(name for found in diagnosis["unworked-queues"] for name in found.subjects) == _HIDDEN
    assert sorted(name for found in diagnosis["unentered-owners"] for name in found.subjects) == _OWNERS
    assert diagnosis.report.about["keys_looked_at"] >= 400_000
    assert diagnosis.report.keys_are_whole


def test_what_the_walk_did_not_reach_is_unseen(
    look: Look, redis_client: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is in order; what is known by name is found all the same."""
    monkeypatch.setattr("sidekiq_py.doctor.keyspace.SECONDS_AT_MOST", -1)
    fill(redis_client, 20_000)
    redis_client.set("dear-leader", "x")
    ruby_process(redis_client)
    push(redis_client)

    diagnosis = look()
    shown = CliRunner().invoke(main, ["doctor", "-u", redis_url])

    for name in ("unworked-queues", "unlisted-queues", "unentered-owners", "namespaces", "orphans-of-ruby"):
        assert diagnosis.levels(name) in (["unseen"], []), name
    assert diagnosis.levels("unworked-queues") == ["unseen"]
    assert "the scan of the key names was cut off" in diagnosis.the("unentered-owners").seen
    assert not diagnosis.report.keys_are_whole
    assert diagnosis.report.about["keys_looked_at"] < 10_000
    leader, unreached = diagnosis["products"]
    assert leader.seen.startswith("Sidekiq Enterprise's leader")
    assert unreached.level == "unseen"
    assert "namespaces" not in shown.stdout.partition("OK: ")[2]


def test_without_scan_nothing_is_said_of_queues_that_only_it_finds(look: Look, redis_client: redis.Redis) -> None:
    """A user who may not use it sees the queues of the set, and those that processes work."""
    ruby_process(redis_client, queues=("default", "low"))
    redis_client.lpush("queue:low", json.dumps(payload(queue="low", enqueued_at=1.0e9)))
    redis_client.execute_command("ACL", "SETUSER", "no_scan", "on", "nopass", "~*", "+@all", "-scan")
    place = redis_client.connection_pool.connection_kwargs

    diagnosis = look(f"redis://no_scan:x@{place['host']}:{place['port']}/{place['db']}")
    redis_client.execute_command("ACL", "DELUSER", "no_scan")

    assert diagnosis.levels("unworked-queues") == ["unseen"]
    assert diagnosis.the("latency").subjects == ("low",)


def test_a_walk_ends_when_it_is_late(redis_url: str, redis_client: redis.Redis) -> None:
    """It says whether it was through."""
    fill(redis_client, 20_000)
    redis_client.set(b"\xff", 1)
    pool = Pool(RedisSettings(redis_url))

    whole = survey.walk(pool, "*", is_late=lambda: False, is_kept=lambda name: name < "cache:" or name > "cache;")
    part = survey.walk(pool, "*", is_late=lambda: True, is_kept=lambda _: True)
    pool.close()

    assert (whole.names, whole.is_whole) == ({"\udcff"}, True)
    assert whole.seen >= 20_001
    assert not part.is_whole
    assert 0 < part.seen < 20_000


def test_thousands_of_processes_are_all_known(look: Look, redis_client: redis.Redis) -> None:
    """Each works a queue of its own."""
    info = {"hostname": "web", "queues": ["QUEUE"], "labels": [], "concurrency": 5, "version": "7.3.2"}
    redis_client.eval(_PROCESSES, 0, 2500, json.dumps(info), json.dumps(payload()))

    diagnosis = look()

    assert diagnosis["unworked-queues"] == []
    assert diagnosis.report.about["ruby_processes"] == 2500


def test_jobs_of_many_queues_are_read_together(
    look: Look, redis_client: redis.Redis, round_trips: Callable[..., Any]
) -> None:
    """With a round trip for each queue, thousands of queues would take minutes on a link with 100 ms."""
    counts = []
    for queues in (100, 400):
        for number in range(queues):
            redis_client.sadd("queues", f"q{number}")
            redis_client.lpush(f"queue:q{number}", json.dumps(payload(queue=f"q{number}")))
        with round_trips() as made:
            assert look().report.about["jobs_looked_at"] >= queues
        counts.append(made.count)

    assert counts[1] - counts[0] < 20


def test_large_jobs_after_many_small_ones_are_not_read_all_at_once(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit on bytes is noticed only after a reply, and one with 2,000 jobs of 100 kB would have 200 MB."""
    for number in range(100):
        job = json.dumps(payload(queue=f"q{number:02}", args=["x" * (10_000 if number > 70 else 0)]))
        redis_client.sadd("queues", f"q{number:02}")
        redis_client.lpush(f"queue:q{number:02}", *[job] * 60)
    read, at_once = survey.queue_pages, []

    def queue_pages(*given: Any) -> list[list[bytes]]:
        pages = read(*given)
        at_once.append(sum(map(len, pages)))
        return pages

    monkeypatch.setattr(survey, "queue_pages", queue_pages)
    pool = Pool(RedisSettings(redis_url))

    sample = sampling.gather_jobs(pool, sampling.gather_queues(pool, []))

    assert max(at_once) <= 500
    assert len(at_once) < len(sample.jobs) / 100


@pytest.mark.usefixtures("look")
def test_names_of_a_megabyte_do_not_fill_the_terminal(redis_url: str, redis_client: redis.Redis) -> None:
    """Any program may push to such a queue. JSON has the whole name."""
    huge = "x" * 1_000_000
    ruby_process(redis_client)
    redis_client.lpush(f"queue:{huge}", json.dumps(payload(queue=huge)))

    shown = CliRunner().invoke(main, ["doctor", "-u", redis_url])
    document = CliRunner().invoke(main, ["doctor", "-u", redis_url, "--json"])

    assert "1 job waits in" in shown.stdout
    assert len(shown.stdout) < 50_000
    assert huge in document.stdout


@pytest.mark.usefixtures("look")
def test_many_findings_of_a_kind_are_counted(redis_url: str, redis_client: redis.Redis) -> None:
    """JSON has them all."""
    ruby_process(redis_client)
    for number in range(50):
        redis_client.lpush(f"queue:q{number}", json.dumps(payload(queue=f"q{number}")))

    shown = CliRunner().invoke(main, ["doctor", "-u", redis_url])
    document = CliRunner().invoke(main, ["doctor", "-u", redis_url, "--json"])

    assert shown.stdout.count("and no process serves that queue") == 20
    assert "… and 30 more like this (--json lists all)." in shown.stdout
    assert "50 problems" in shown.stdout
    assert document.stdout.count("and no process serves that queue") == 50
    [unlisted] = [found for found in json.loads(document.stdout)["findings"] if found["check"] == "unlisted-queues"]
    assert unlisted["advice"].endswith("q25 q26, and 30 more")
    assert len(unlisted["subjects"]) == 50
