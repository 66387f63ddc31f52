"""Due jobs to their queues: each once, none lost, none in another's way, whoever else moves some."""

import logging
import subprocess
import threading
from collections import Counter
from typing import Any

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from sidekiq_py.engine.upkeep.promoter import REST_SECONDS, Promoter
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.job_path.push import Outgoing
from tests.engine.upkeep.polling import LONG_AGO, NOW, Polling, contents, jids, job, repush
from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually

RUBY_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"


# One look


def test_a_due_job_goes_to_its_queue_as_a_push_leaves_it(polling: Polling, redis_client: redis.Redis) -> None:
    """`retry` and `queue` in front, `enqueued_at` behind, other keys untouched; what is not due stays."""
    due = b'{"class":"Hard","args":[1e7],"jid":"a","x":9007199254740993,"queue":"low"}'
    redis_client.zadd("schedule", {due: NOW - 1})
    redis_client.zadd("schedule", {job("later"): NOW + 1})

    promoter = polling.promoter(now=lambda: NOW)
    promoter.move_due()

    assert contents(redis_client, "low") == [
        b'{"retry":true,"queue":"low","class":"Hard","args":[10000000.0],"jid":"a","x":9007199254740993,'
        b'"created_at":1700000000.5,"enqueued_at":1700000000.5}'
    ]
    assert redis_client.smembers("queues") == {b"low"}
    assert jids(redis_client.zrange("schedule", 0, -1)) == ["later"]
    assert promoter.moved == 1


def test_jobs_go_out_in_the_order_in_which_they_are_due(polling: Polling, redis_client: redis.Redis) -> None:
    """Over slices too, and those of `retry` before those of `schedule`."""
    redis_client.zadd("schedule", {job(f"s{n}"): LONG_AGO + n for n in range(250)})
    redis_client.zadd("retry", {job(f"r{n}"): LONG_AGO + 1000 + n for n in range(120)})

    polling.promoter().move_due()

    assert jids(contents(redis_client, "default")) == [f"r{n}" for n in range(120)] + [f"s{n}" for n in range(250)]


def test_a_job_that_middleware_stops_is_removed_and_counted(polling: Polling, redis_client: redis.Redis) -> None:
    """As in Ruby; the next one goes out."""
    redis_client.zadd("schedule", {job("stopped"): LONG_AGO, job("moved"): LONG_AGO + 1})

    promoter = polling.promoter(repush=lambda payload: None if payload["jid"] == "stopped" else repush(payload))
    promoter.move_due()

    assert jids(contents(redis_client, "default")) == ["moved"]
    assert redis_client.zcard("schedule") == 0
    assert (promoter.stopped, promoter.moved) == (1, 1)
    assert polling.reported == []


def test_lines_about_due_jobs_hide_what_the_policy_hides(
    polling: Polling, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the job that goes to its queue and of the one that a middleware stops; the rest of the payload is shown."""
    secret = [{"password": "hunter2", "plan": "gold"}]
    redis_client.zadd("schedule", {job("stopped", args=secret): LONG_AGO, job("moved", args=secret): LONG_AGO + 1})

    promoter = polling.promoter(repush=lambda payload: None if payload["jid"] == "stopped" else repush(payload))
    with caplog.at_level(logging.DEBUG, "sidekiq"):
        promoter.move_due()

    lines = [line for line in caplog.messages if "password" in line]
    assert [("stopped" in line, "hunter2" in line, "gold" in line) for line in lines] == [
        (True, False, True),
        (False, False, True),
    ]


@pytest.mark.parametrize(
    "member",
    [
        b"{not json",
        b"\xff\xfe",
        b"[1]",
        b"null",
        b"{}",
        b'{"class":"Hard","args":{}}',
        b'{"class":"Hard","args":[1E400]}',
        b'{"class":' + b"9" * 5000 + b',"args":[]}',
        b'{"class":"Hard","args":{"a":[' + b"9" * 5000 + b"]}}",
    ],
    ids=lambda member: repr(member[:40]),
)
def test_what_is_no_job_goes_raw_to_dead(member: bytes, polling: Polling, redis_client: redis.Redis) -> None:
    """Ruby loses it and ends its look; here it is reported and the next one goes out."""
    redis_client.zadd("retry", {member: LONG_AGO, job("moved"): LONG_AGO + 1})

    promoter = polling.promoter(now=lambda: NOW)
    promoter.move_due()

    assert redis_client.zrange("dead", 0, -1, withscores=True) == [(member, NOW)]
    assert jids(contents(redis_client, "default")) == ["moved"]
    assert promoter.unusable == 1
    [(_, context)] = polling.reported
    assert context["jobstr"] == member


def test_a_job_whose_middleware_raises_stays_and_is_tried_again(polling: Polling, redis_client: redis.Redis) -> None:
    """Reported once, tried ever more slowly, and moved when it works."""
    clock, tries, is_broken = [1000.0], Counter[str](), [True]

    def failing(payload: dict[str, Any]) -> Outgoing | None:
        tries[payload["jid"]] += 1
        if payload["jid"] == "stuck" and is_broken[0]:
            raise ConnectionError("the database is down")
        return repush(payload)

    redis_client.zadd("schedule", {job("stuck"): LONG_AGO, job("moved"): LONG_AGO + 1})
    promoter = polling.promoter(repush=failing, monotonic=lambda: clock[0])
    for _ in range(100):
        promoter.move_due()
        clock[0] += 0.1

    assert jids(contents(redis_client, "default")) == ["moved"]
    assert jids(redis_client.zrange("schedule", 0, -1)) == ["stuck"]
    assert tries == {"stuck": 4, "moved": 1}  # at 0, 1, 3 and 7 s
    assert [str(error) for error, _ in polling.reported] == ["the database is down"]

    is_broken[0] = False
    clock[0] += 60
    promoter.move_due()
    assert jids(contents(redis_client, "default")) == ["moved", "stuck"]


def test_jobs_that_cannot_go_do_not_block_those_behind_them(polling: Polling, redis_client: redis.Redis) -> None:
    """However many there are: a look gives up after a while, and the next one comes further. One error is reported."""

    def failing(payload: dict[str, Any]) -> Outgoing | None:
        if payload["jid"].startswith("stuck"):
            raise ValueError("not now")
        return repush(payload)

    redis_client.zadd("schedule", {job(f"stuck{n}"): LONG_AGO + n for n in range(350)})
    redis_client.zadd("schedule", {job("behind"): LONG_AGO + 1000})
    promoter = polling.promoter(repush=failing, monotonic=lambda: 0.0)

    for _ in range(5):
        promoter.move_due()

    assert jids(contents(redis_client, "default")) == ["behind"]
    assert redis_client.zcard("schedule") == 350
    assert len(polling.reported) == 1


def test_a_queue_of_a_foreign_type_keeps_its_jobs_in_the_set(polling: Polling, redis_client: redis.Redis) -> None:
    """Reported once; others go out; it goes out when the key is put right."""
    clock = [0.0]
    redis_client.set("queue:odd", "a string")
    redis_client.zadd("schedule", {job("stuck", queue="odd"): LONG_AGO, job("moved"): LONG_AGO + 1})
    promoter = polling.promoter(monotonic=lambda: clock[0])

    for _ in range(3):
        promoter.move_due()
    assert jids(contents(redis_client, "default")) == ["moved"]
    assert len(polling.reported) == 1

    redis_client.delete("queue:odd")
    clock[0] += 10
    promoter.move_due()
    assert jids(contents(redis_client, "odd")) == ["stuck"]
    assert redis_client.zcard("schedule") == 0


def test_a_set_of_a_foreign_type_does_not_stop_the_other(polling: Polling, redis_client: redis.Redis) -> None:
    """Reported once, however often it cannot be read."""
    redis_client.set("schedule", "foreign")
    promoter = polling.promoter()
    for jid in ("first", "second"):
        redis_client.zadd("retry", {job(jid): LONG_AGO})
        promoter.move_due()

    assert [context["context"] for _, context in polling.reported] == [
        "schedule is not a sorted set: something else wrote to this key. Rename or delete it"
    ]
    redis_client.delete("schedule")
    redis_client.zadd("schedule", {job("third"): LONG_AGO})
    promoter.move_due()
    assert jids(contents(redis_client, "default")) == ["first", "second", "third"]


def test_a_moment_that_no_float_holds_stops_nothing(polling: Polling, redis_client: redis.Redis) -> None:
    """Redis would refuse it as a score: the due job goes out, as with any other `at` that cannot be used."""
    redis_client.zadd("retry", {job("odd", at=10**400): LONG_AGO, job("moved"): LONG_AGO + 1})

    polling.promoter(repush=Client(pool=polling.url, sidekiq_version="6.4.1").repush).move_due()

    assert jids(contents(redis_client, "default")) == ["odd", "moved"]
    assert polling.reported == []


def test_a_queue_that_may_not_be_written_keeps_its_own_jobs_only(restricted: tuple[Polling, redis.Redis]) -> None:
    """Redis refuses the whole script for one such key; the other jobs of the slice go out all the same."""
    polling, client = restricted
    client.zadd("retry", {job("stuck", queue="forbidden"): LONG_AGO})
    client.zadd("schedule", {job(f"s{n}"): LONG_AGO + n for n in range(150)})
    client.zadd("schedule", {job("stuck too", queue="forbidden"): LONG_AGO + 0.5})

    polling.promoter().move_due()

    assert jids(contents(client, "default")) == [f"s{n}" for n in range(150)]
    assert jids(client.zrange("retry", 0, -1) + client.zrange("schedule", 0, -1)) == ["stuck", "stuck too"]
    assert [(type(error), error.code) for error, _ in polling.reported] == [(RedisReplyError, "NOPERM")] * 2


def test_without_the_right_to_zrem_no_job_is_pushed_again_and_again(restricted: tuple[Polling, redis.Redis]) -> None:
    """It could not leave the set, and each pass would push it once more."""
    polling, client = restricted
    client.execute_command("ACL", "SETUSER", "worker", "-zrem")
    client.zadd("schedule", {job("stays"): LONG_AGO})

    polling.promoter().move_due()

    assert contents(client, "default") == []
    assert jids(client.zrange("schedule", 0, -1)) == ["stays"]
    assert [type(error) for error, _ in polling.reported] == [RedisReplyError]


def test_a_set_that_may_not_be_read_does_not_stop_the_other(restricted: tuple[Polling, redis.Redis]) -> None:
    """Reported once."""
    polling, client = restricted
    client.execute_command("ACL", "SETUSER", "worker", "resetkeys", "~schedule", "~dead", "~queues", "~queue:default")
    client.zadd("retry", {job("stuck"): LONG_AGO})
    client.zadd("schedule", {job("moved"): LONG_AGO})
    promoter = polling.promoter()

    promoter.move_due()
    promoter.move_due()

    assert jids(contents(client, "default")) == ["moved"]
    [(_, context)] = polling.reported
    assert context["context"].startswith("retry cannot be read")


def test_middleware_that_redis_refuses_something_holds_up_its_own_job_only(
    polling: Polling, redis_client: redis.Redis
) -> None:
    """A lock key of a foreign type, say: that is no trouble of the server's."""

    def locking(payload: dict[str, Any]) -> Outgoing | None:
        if payload["jid"] == "stuck":
            raise RedisReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return repush(payload)

    redis_client.zadd("retry", {job("stuck"): LONG_AGO, job("moved"): LONG_AGO + 1})

    polling.promoter(repush=locking).move_due()

    assert jids(contents(redis_client, "default")) == ["moved"]
    assert jids(redis_client.zrange("retry", 0, -1)) == ["stuck"]


# Many that cannot move


class Stuck:
    """A promoter before whom 5,000 jobs of `schedule` and of `retry` cannot move."""

    def __init__(self, polling: Polling, client: redis.Redis) -> None:
        self.at, self.tries = 0.0, Counter[str]()
        for name in ("schedule", "retry"):
            client.zadd(name, {job(f"stuck {name} {n}"): LONG_AGO + n for n in range(5000)})
        self.promoter = polling.promoter(repush=self._repush, now=lambda: NOW + self.at, monotonic=lambda: self.at)

    def _repush(self, payload: dict[str, Any]) -> Outgoing | None:
        self.tries[payload["jid"]] += 1
        if payload["jid"].startswith("stuck"):
            raise ValueError("not now")
        return repush(payload)

    def look(self, *, after_seconds: float) -> None:
        """One more look."""
        self.at += after_seconds
        self.promoter.move_due()


@pytest.fixture
def stuck(polling: Polling, redis_client: redis.Redis) -> Stuck:
    """All of them due."""
    return Stuck(polling, redis_client)


def test_thousands_that_cannot_go_do_not_starve_one_behind_them(stuck: Stuck, redis_client: redis.Redis) -> None:
    """A look goes on where the last one ended, though those before are due for another try by then."""
    redis_client.zadd("schedule", {job("behind"): LONG_AGO + 6000})

    for _ in range(6):
        stuck.look(after_seconds=REST_SECONDS)

    assert jids(contents(redis_client, "default")) == ["behind"]
    assert (redis_client.zcard("schedule"), redis_client.zcard("retry")) == (5000, 5000)
    assert all(tries <= 2 for tries in stuck.tries.values())


def test_what_comes_due_waits_for_none_that_cannot_go(stuck: Stuck, redis_client: redis.Redis) -> None:
    """Nor does `schedule` for `retry`: it is moved by the next look, however far the round has come."""
    stuck.look(after_seconds=0)
    redis_client.zadd("schedule", {job("comes due"): NOW + 0.02})

    stuck.look(after_seconds=0.05)

    assert jids(contents(redis_client, "default")) == ["comes due"]


def test_those_that_cannot_go_are_not_read_at_every_look(stuck: Stuck, redis_client: redis.Redis) -> None:
    """Twenty looks a second, each with thousands of payloads, would be all that Redis does."""
    stuck.look(after_seconds=0)
    tries = stuck.tries.total()

    for _ in range(20):
        stuck.look(after_seconds=0.05)

    assert stuck.tries.total() == tries


def test_schedule_does_not_wait_for_middleware_that_takes_its_time(polling: Polling, redis_client: redis.Redis) -> None:
    """A pass over `retry` ends after a second, also in the middle of a slice."""
    clock = [0.0]

    def slow(payload: dict[str, Any]) -> Outgoing | None:
        if payload["jid"].startswith("stuck"):
            clock[0] += 5
            raise TimeoutError("the database is down")
        return repush(payload)

    redis_client.zadd("retry", {job(f"stuck {n}"): LONG_AGO + n for n in range(100)})
    redis_client.zadd("schedule", {job("moved"): LONG_AGO})

    polling.promoter(repush=slow, monotonic=lambda: clock[0]).move_due()

    assert jids(contents(redis_client, "default")) == ["moved"]
    assert clock[0] <= 5


def test_each_is_tried_more_and_more_rarely_however_many_there_are(stuck: Stuck) -> None:
    """Its pauses double, however many looks there are meanwhile; three minutes of them cost each nine tries at most."""
    for _ in range(90):
        stuck.look(after_seconds=REST_SECONDS)

    assert 5 <= min(stuck.tries.values()) <= max(stuck.tries.values()) <= 9


# Races


def test_several_promoters_and_rubys_poller_move_each_job_once(polling: Polling, redis_client: redis.Redis) -> None:
    """Two thousand due jobs, three of ours and Ruby's poller: each is in its queue once."""
    ruby = ruby_poller(polling.url)
    members = {job(f"{n:04}", queue=f"q{n % 3}"): LONG_AGO + n % 7 for n in range(2000)}
    redis_client.zadd("schedule", members)
    promoters = [polling.promoter() for n in range(3)]
    threads = [threading.Thread(target=promoter.move_due) for promoter in promoters]

    tell(ruby)
    eventually(lambda: redis_client.zcard("schedule") < 2000, every_seconds=0.001)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_ruby = int(ruby.communicate(timeout=30)[0].split()[-1])

    arrived = [member for queue in range(3) for member in contents(redis_client, f"q{queue}")]
    assert sorted(jids(arrived)) == [f"{n:04}" for n in range(2000)]
    assert redis_client.zcard("schedule") == 0
    assert sum(promoter.moved for promoter in promoters) + by_ruby == 2000
    assert by_ruby > 0
    assert polling.reported == []


def beside_another(polling: Polling, redis_client: redis.Redis) -> Promoter:
    """A promoter; while it prepares its first slice of many due jobs, another takes all of that slice that it can."""
    asked: list[str] = []

    def prepare(payload: dict[str, Any]) -> Outgoing | None:
        asked.append(payload["jid"])
        if payload["jid"] == "stays":
            raise ValueError("not this one")
        if len(asked) < 3:
            redis_client.zrem("schedule", *(job(f"{n:03}") for n in range(100)))
        return repush(payload)

    redis_client.zadd("schedule", {job(f"{n:03}"): LONG_AGO + n for n in range(300)})
    return polling.promoter(repush=prepare)


def test_a_poller_whose_slice_another_has_taken_leaves_the_next_to_it(
    polling: Polling, redis_client: redis.Redis
) -> None:
    """Otherwise all that poll at once do the same work. It goes on at its next look, in case the other has ended."""
    promoter = beside_another(polling, redis_client)

    promoter.move_due()
    assert (promoter.moved, redis_client.zcard("schedule")) == (0, 200)

    promoter.move_due()
    assert (promoter.moved, redis_client.zcard("schedule")) == (200, 0)


def test_a_poller_goes_on_if_a_job_of_its_slice_stays(polling: Polling, redis_client: redis.Redis) -> None:
    """Otherwise it would read the job that stays again, before those behind it."""
    redis_client.zadd("schedule", {job("stays"): LONG_AGO - 1})
    promoter = beside_another(polling, redis_client)

    promoter.move_due()

    assert jids(redis_client.zrange("schedule", 0, -1)) == ["stays"]


def ruby_poller(url: str) -> subprocess.Popen[str]:
    """Sidekiq's own poller, loaded and waiting for a line; it prints how many jobs it moved."""
    program = """
        require "sidekiq"
        require "sidekiq/scheduled"
        Sidekiq.redis = {url: ARGV[0]}
        Sidekiq.logger.level = Logger::WARN
        pushed = 0
        Sidekiq::Client.prepend(Module.new { define_method(:push) { |item| pushed += 1; super(item) } })
        Sidekiq.redis(&:ping)
        puts "ready"
        $stdout.flush
        $stdin.gets
        Sidekiq::Scheduled::Enq.new.enqueue_jobs
        puts pushed
    """
    try:
        process = subprocess.Popen(
            ["ruby", "-W0", "-e", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    except OSError as error:
        skip_or_fail(f"no Ruby ({error}); on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        process.communicate()
        skip_or_fail("no Ruby with Sidekiq 6.4.1; on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
    return process


def tell(process: subprocess.Popen[str]) -> None:
    """Let the Ruby poller go."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
