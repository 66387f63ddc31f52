"""Which ticks are fired, by the clock that is handed in."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.errors import RedisReplyError, ReplyLostError
from sidekiq_py.extensions.periodic import firing, store
from sidekiq_py.extensions.periodic.cron_jobs import CronJobs
from sidekiq_py.extensions.periodic.cron_text import CronText
from sidekiq_py.extensions.periodic.declared import declarations
from sidekiq_py.extensions.periodic.firing import Firing
from sidekiq_py.extensions.periodic.loading import restore
from sidekiq_py.extensions.periodic.ticks import previous_time, upcoming
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.wire.failure import error_text
from tests.extensions.periodic.conftest import NOON
from tests.extensions.periodic.test_cron_text import MINUTES, recorded

Look = Callable[[float], list[str]]
Start = Callable[..., None]
Queued = Callable[[], list[bytes]]
MINUTE = 60
REPORT = "cron_job:default:report"


def job_named(name: str = "Report") -> sidekiq.Job:
    """A declared job."""
    return sidekiq.ruby_job(name)


def test_a_tick_is_pushed_once(start: Start, look: Look, queued: Queued) -> None:
    """However often it is looked at, and by another process, too."""
    sidekiq.periodic("* * * * *", job_named(), name="report", args=["a"])
    start()

    first = look(NOON + 60.2)
    again = look(NOON + 60.9)

    assert (len(first), again) == (1, [])
    [raw] = queued()
    payload = json.loads(raw)
    assert (payload["class"], payload["args"], payload["jid"]) == ("Report", ["a"], first[0])


def test_a_namespace_that_nobody_has_named_is_fired_all_the_same(
    start: Start, look: Look, queued: Queued, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is declared, so it is listed and fired, and its keeper does not take it for deleted."""
    sidekiq.periodic("* * * * *", job_named(), name="report", namespace="reports")
    start()

    assert len(look(NOON + 60.2)) == len(queued()) == 1
    assert [(job.name, job.namespace) for job in CronJobs()] == [("report", "reports")]
    restore(pool)
    assert "was deleted by another program" not in caplog.text


@pytest.mark.parametrize(("jobs", "texts"), [(20, 1), (5000, 5000)])
def test_each_cron_text_is_checked_once(
    pool: Pool, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, jobs: int, texts: int
) -> None:
    """With 10,000 periodic jobs, searching a tick for each would take two thirds of a second, every five seconds."""
    with redis_client.pipeline() as stored:
        for number in range(jobs):
            key, text = f"cron_job:default:report {number}", number % texts
            cron = f"{text % 60} {text // 60 % 24} {text // 1440 + 1} 7 *"
            stored.hset(key, mapping={"name": f"report {number}", "klass": "Report", "cron": cron})
            stored.sadd("cron_jobs:default", key)
        stored.execute()
    searches: list[float] = []

    def note_and_search(cron: CronText, now: float) -> int | None:
        searches.append(now)
        return previous_time(cron, now)

    monkeypatch.setattr(store, "previous_time", note_and_search)
    found = [*store.read_all(pool), *store.read_all(pool)]

    assert [job.problem for job in found] == [None] * jobs * 2
    assert len(searches) <= texts


def test_the_next_tick_is_searched_again_only_for_jobs_that_have_changed(
    start: Start, pool: Pool, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are read every five seconds, and of 10,000 most are as they were. A clock that goes back is believed."""
    sidekiq.periodic("0 0 * * *", job_named(), name="report")
    sidekiq.periodic("0 1 * * *", job_named("Other"), name="other")
    start()
    searched: list[CronText] = []

    def search(cron: CronText, after: float) -> Iterator[int]:
        searched.append(cron)
        return upcoming(cron, after)

    monkeypatch.setattr(firing, "upcoming", search)
    process = Firing()
    process.look(pool, NOON, b"1")
    assert len(searched) == 2

    process.look(pool, NOON + 30, b"1")
    assert len(searched) == 2

    redis_client.hset(REPORT, "cron", "0 2 * * *")
    process.look(pool, NOON + 60, b"2")
    assert len(searched) == 3

    process.look(pool, NOON, b"2")
    assert len(searched) == 5


def test_of_two_processes_one_fires(start: Start, pool: Pool, queued: Queued) -> None:
    """Both look at the same moment, each for the first time."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    processes = [Firing(), Firing()]

    pushed = [firing.look(pool, NOON + 60.5, b"1") for firing in processes]

    assert [len(jids) for jids in pushed] == [1, 0]
    assert len(queued()) == 1


def test_what_has_fired_counts_where_nothing_else_says_so(
    start: Start, pool: Pool, redis_client: redis.Redis, queued: Queued
) -> None:
    """Another process has read the timetable before, and the gem's list is gone by the time it claims."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    one, other = Firing(), Firing()
    one.look(pool, NOON + 58, b"1")
    other.look(pool, NOON + 58, b"1")
    one.look(pool, NOON + 60.5, b"1")
    redis_client.delete(f"{REPORT}:enqueued")

    assert other.look(pool, NOON + 60.6, b"1") == []
    assert len(queued()) == 1


def test_nothing_fires_for_the_time_before_the_declaration(start: Start, look: Look) -> None:
    """The last tick lies twenty seconds back when the job is declared."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start(NOON + 20)

    assert look(NOON + 21) == []


def test_the_gem_s_books_are_kept(start: Start, look: Look, redis_client: redis.Redis) -> None:
    """`:enqueued`, `last_enqueue_time` and `:jid_history`, byte for byte."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()

    [jid] = look(NOON + 60.5)

    assert redis_client.zrange(f"{REPORT}:enqueued", 0, -1, withscores=True) == [
        (b"2030-01-01T11:59:00Z", NOON),  # as the gem does at the first save
        (b"2030-01-01T12:01:00Z", NOON + 60),
    ]
    assert redis_client.hget(REPORT, "last_enqueue_time") == b"2030-01-01 12:01:00 +0000"
    assert redis_client.lrange(f"{REPORT}:jid_history", 0, -1) == [
        b'{"jid":"%b","enqueued":"2030-01-01 12:01:00 UTC"}' % jid.encode()
    ]


def test_a_tick_that_ruby_has_taken_is_left_to_it(
    start: Start, look: Look, redis_client: redis.Redis, queued: Queued
) -> None:
    """Its member stands in `:enqueued`."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    redis_client.zadd(f"{REPORT}:enqueued", {"2030-01-01T12:01:00Z": NOON + 60})

    assert look(NOON + 60.5) == []
    assert queued() == []


def test_a_tick_that_ruby_took_in_the_other_layout_is_left_to_it(
    start: Start, look: Look, redis_client: redis.Redis
) -> None:
    """sidekiq-cron 1.x keeps the same job under `cron_job:report`."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    redis_client.zadd("cron_job:report:enqueued", {"2030-01-01T12:01:00Z": NOON + 60})

    assert look(NOON + 60.5) == []


def test_a_tick_that_is_a_minute_late_is_fired_and_an_older_one_is_not(start: Start, look: Look) -> None:
    """As the gem's grace period has it."""
    sidekiq.periodic("0 * * * *", job_named(), name="report")
    start(NOON + 1)

    assert look(NOON + 3600 + 61) == []
    assert len(look(NOON + 7200 + 59)) == 1


def test_of_several_ticks_within_the_grace_period_the_last_is_fired(start: Start, look: Look) -> None:
    """A worker that stood still for half a minute does not push a job that is due each second thirty times."""
    sidekiq.periodic("* * * * * *", job_named(), name="report")
    start()

    assert len(look(NOON + 30.5)) == 1
    assert [run.tick for run in CronJobs().find("report").runs()] == [NOON + 30]


def test_a_change_of_the_timetable_is_read_at_the_next_look(
    start: Start, pool: Pool, redis_client: redis.Redis
) -> None:
    """Without one, it is read every five seconds, as jobs that Ruby changes are not counted."""
    firing = Firing()
    sidekiq.periodic("* * * * *", job_named(), name="report")
    firing.look(pool, NOON + 57, b"1")
    start(NOON + 58)

    assert firing.look(pool, NOON + 60.1, b"1") == []
    assert len(firing.look(pool, NOON + 60.2, b"2")) == 1


def test_missed_ticks_are_made_up_for_where_that_is_asked_for(
    start: Start, look: Look, redis_client: redis.Redis
) -> None:
    """Six of them, earliest first; `last_enqueue_time` never goes back."""
    sidekiq.periodic("*/10 * * * *", job_named(), name="report", catch_up=timedelta(hours=2))
    start(NOON)

    jids = look(NOON + 3605)

    runs = list(reversed(CronJobs().find("report").runs()))
    assert [run.tick for run in runs] == [NOON + ten * 600 for ten in range(1, 7)]
    assert [run.jid for run in runs] == jids
    assert redis_client.hget(REPORT, "last_enqueue_time") == b"2030-01-01 13:00:05 +0000"


def test_a_hundred_ticks_are_made_up_for_at_most(start: Start, look: Look) -> None:
    """The latest ones: a worker that was away for a week does not fill a queue."""
    sidekiq.periodic("* * * * *", job_named(), name="report", catch_up=timedelta(days=7))
    start()

    jids = look(NOON + 500 * MINUTE + 5)

    assert len(jids) == 100
    assert [run.tick for run in CronJobs().find("report").runs()] == [NOON + n * MINUTE for n in range(500, 400, -1)]
    assert look(NOON + 500 * MINUTE + 6) == []


def test_ticks_of_the_time_while_it_was_disabled_are_not_made_up_for(start: Start, look: Look) -> None:
    """Not even where missed ticks are."""
    sidekiq.periodic("*/10 * * * *", job_named(), name="report", catch_up=timedelta(hours=2))
    start(NOON)
    CronJobs().find("report").disable("holidays")
    assert look(NOON + 1900) == []

    start(NOON + 1990)
    CronJobs().find("report").enable()

    assert look(NOON + 2000) == []
    assert len(look(NOON + 2405)) == 1


def test_what_ruby_s_web_tab_disables_does_not_fire(
    start: Start, look: Look, redis_client: redis.Redis, pool: Pool
) -> None:
    """It changes the field `status` and nothing else; once enabled again, no process makes up for anything."""
    sidekiq.periodic("*/10 * * * *", job_named(), name="report", catch_up=7200)
    start(NOON)
    redis_client.hset(REPORT, "status", "disabled")
    assert look(NOON + 1900) == []
    redis_client.hset(REPORT, "status", "enabled")

    assert Firing().look(pool, NOON + 2000, b"1") == []
    assert look(NOON + 2000) == []
    assert len(look(NOON + 2401)) == 1


def test_a_status_that_changed_since_it_was_read_counts(start: Start, pool: Pool, redis_client: redis.Redis) -> None:
    """The script that claims looks once more."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    firing = Firing()
    firing.look(pool, NOON + 58, b"1")
    redis_client.hset(REPORT, "status", "disabled")

    assert firing.look(pool, NOON + 60.5, b"1") == []
    assert redis_client.llen("queue:default") == 0


def test_a_run_that_goes_on_keeps_the_next_one_from_starting(start: Start, look: Look) -> None:
    """With `overlap="skip"`; the tick is passed over for good, and Ruby cannot take it either."""
    sidekiq.periodic("* * * * *", job_named(), name="report", overlap="skip")
    start()
    [jid] = look(NOON + 60.5)

    assert look(NOON + 120.5) == []
    outcomes = [(run.tick, run.outcome) for run in CronJobs().find("report").runs()]
    assert outcomes == [(NOON + 120, "skipped"), (NOON + 60, "pushed")]
    end(jid)
    assert len(look(NOON + 180.5)) == 1


def end(jid: str, key: str = REPORT, how: str = "success") -> None:
    """As the worker that has run it says."""
    from sidekiq_py.client import sync_client

    pool = sync_client.current().pool
    store.write(pool, ("CRON_ENDED", f"sidekiq_py:cron:{key}", jid, how, f"{NOON + 70}", "1.25"))


def test_ticks_to_come_are_taken_in_advance_where_ruby_must_not_fire_them(
    start: Start, look: Look, redis_client: redis.Redis
) -> None:
    """The gem wins a tick by adding its member; it is there already, and Python fires it all the same."""
    sidekiq.periodic("* * * * *", job_named(), name="report", overlap="skip")
    start()
    look(NOON + 1)

    assert redis_client.zadd(f"{REPORT}:enqueued", {"2030-01-01T12:01:00Z": NOON + 60}, nx=True) == 0
    assert len(look(NOON + 60.5)) == 1


@pytest.mark.parametrize("is_declared", [True, False], ids=["still declared here", "no longer declared here"])
def test_ticks_taken_in_advance_are_given_back_when_the_job_becomes_ruby_s(
    start: Start, look: Look, redis_client: redis.Redis, is_declared: bool
) -> None:
    """Neither language would fire them: ten minutes of a frequent job, two days of a daily one."""
    sidekiq.periodic("* * * * *", job_named(), name="report", overlap="skip")
    start()
    look(NOON + 1)
    redis_client.hset(REPORT, "klass", "RubyReport")

    if is_declared:
        look(NOON + 20)
    else:
        declarations.clear()
        start()

    assert redis_client.zadd(f"{REPORT}:enqueued", {"2030-01-01T12:01:00Z": NOON + 60}, nx=True) == 1
    assert not [name for name in redis_client.hkeys(f"sidekiq_py:cron:{REPORT}") if name.startswith(b"p:")]


def test_what_was_planted_is_forgotten_once_it_has_passed(start: Start, look: Look, redis_client: redis.Redis) -> None:
    """Or the hash would grow with each tick."""
    sidekiq.periodic("* * * * *", job_named(), name="report", overlap="skip")
    start()
    for minute in range(30):
        look(NOON + minute * MINUTE + 0.5)

    planted = [name for name in redis_client.hkeys(f"sidekiq_py:cron:{REPORT}") if name.startswith(b"p:")]
    assert len(planted) <= 12


def test_jitter_delays_a_push_by_so_much_at_most(start: Start, look: Look) -> None:
    """The same in every process, so that two do not disagree on when."""
    sidekiq.periodic("* * * * *", job_named(), name="report", jitter=20)
    start()

    at = next(moment for moment in range(80) if look(NOON + 60 + moment))

    assert 0 < at <= 20


def test_a_tick_that_jitter_delays_for_longer_than_it_may_be_late_is_fired(start: Start, look: Look) -> None:
    """A tick may be a minute late, counted from the end of its jitter."""
    sidekiq.periodic("0 * * * *", job_named(), name="report", jitter=1800)
    start()

    at = next(seconds for seconds in range(0, 1830, 30) if look(NOON + 3600 + seconds))

    assert at > firing.GRACE_SECONDS


def test_a_clock_that_goes_back_fires_nothing_twice(start: Start, look: Look) -> None:
    """What has fired only moves forward."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    assert len(look(NOON + 3600.5)) == 1

    assert [look(NOON + minute * MINUTE + 0.5) for minute in range(5)] == [[]] * 5
    assert len(look(NOON + 3660.5)) == 1


@pytest.mark.parametrize(
    ("policy", "made_up_for"),
    [
        ({}, []),
        ({"catch_up": timedelta(hours=2)}, [30, 40, 50, 60, 70, 80]),
        ({"overlap": "skip"}, []),
        ({"jitter": 20}, []),
    ],
    ids=["plain", "catch_up", "overlap", "jitter"],
)
def test_a_clock_that_jumps_an_hour_ahead_and_back_fires_each_tick_once(
    start: Start, look: Look, policy: dict[str, Any], made_up_for: list[int]
) -> None:
    """Ahead it misses what lies between, as if no worker had run; back it waits until it is there again."""
    sidekiq.periodic("*/10 * * * *", job_named(), name="report", **policy)
    start()

    for minute in (*range(26), *range(86, 92), *range(27, 106)):
        # Half a minute later, when a push that jitter delays is due.
        for jid in look(NOON + minute * MINUTE + 30):
            end(jid)

    fired = [(run.tick - NOON) // MINUTE for run in reversed(CronJobs().find("report").runs())]
    assert fired == [10, 20, *made_up_for, 90, 100]


def test_a_clock_that_is_set_back_an_hour_loses_no_tick_once_it_is_there_again(start: Start, look: Look) -> None:
    """The hour that it shows for the second time fires nothing; what comes behind it does, without a gap."""
    sidekiq.periodic("*/10 * * * *", job_named(), name="report")
    start()

    for minute in (*range(66), *range(6, 96)):
        look(NOON + minute * MINUTE + 0.5)

    fired = [(run.tick - NOON) // MINUTE for run in reversed(CronJobs().find("report").runs())]
    assert fired == [10, 20, 30, 40, 50, 60, 70, 80, 90]


AROUND_A_CHANGE = [
    *("30 2 * * *", "0 2 * * *", "15 1 * * *", "30 1 * * *", "0 3 * * *", "30 0 * * *", "0 * * * *", "0 */2 * * *"),
    *("20-40/10 0-4 * * *", "5/10 2 * * *", "1-59/2 2 * * *"),
]
CHANGES = {(line["start"], line["cron"].split()[-1]) for line in recorded() if not line["cron"].startswith("@")}


@pytest.mark.parametrize(("begin", "zone"), sorted(CHANGES))
def test_where_the_clocks_change_what_fires_is_what_fugit_says(start: Start, look: Look, begin: int, zone: str) -> None:
    """Looked at each minute; in six zones, each with both changes of a year."""
    texts = {f"{text} {zone}" for text in AROUND_A_CHANGE}
    lines = [line for line in recorded() if line["start"] == begin and line["cron"] in texts]
    assert len(lines) == len(texts)
    for line in lines:
        sidekiq.periodic(line["cron"], job_named(), name=line["cron"])
    start(begin)

    for minute in range(1, MINUTES):
        look(begin + minute * MINUTE + 0.5)

    for line in lines:
        # What fugit was asked for is the last tick before each minute: the first one may lie before the beginning.
        theirs = [begin + tick for _, tick in line["previous"] if tick > 0]
        ours = [run.tick for run in reversed(CronJobs().find(line["cron"]).runs())]
        assert [tick for tick in ours if tick < begin + (MINUTES - 1) * MINUTE] == theirs, line["cron"]


def test_what_has_fired_is_known_after_the_gem_has_cut_its_list(
    start: Start, pool: Pool, look: Look, redis_client: redis.Redis
) -> None:
    """`:enqueued` keeps a day; a process that comes new knows the last tick all the same."""
    sidekiq.periodic("* * * * *", job_named(), name="report", catch_up=timedelta(days=3))
    start()
    assert len(look(NOON + 60.5)) == 1
    redis_client.delete(f"{REPORT}:enqueued")

    assert Firing().look(pool, NOON + 61.5, b"new") == []


def test_a_damaged_hash_is_passed_over(
    start: Start, look: Look, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The others fire, and the log says once what is wrong."""
    sidekiq.periodic("* * * * *", job_named("A"), name="a")
    sidekiq.periodic("* * * * *", job_named("B"), name="b")
    sidekiq.periodic("* * * * *", job_named("C"), name="c")
    start()
    redis_client.hset("cron_job:default:a", "cron", "61 * * * *")
    redis_client.hset("cron_job:default:b", "message", "no json")

    assert len(look(NOON + 60.5)) == 1
    look(NOON + 70)

    warnings = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert len(warnings) == 2
    assert "'61' is not a valid minute" in warnings[0]


def test_ruby_s_jobs_are_left_to_ruby(look: Look, pool: Pool, redis_client: redis.Redis) -> None:
    """Unless all of them are asked for; one that needs Ruby never."""
    _save_as_ruby(redis_client, "plain", message='{"retry":true,"queue":"default","class":"R","args":[]}')
    _save_as_ruby(redis_client, "no_retry", message='{"queue":"default","class":"R","args":[]}')
    # As sidekiq-cron 2.3.1 saves an Active Job for which the schedule sets `retry: 3`, but not `active_job`.
    _save_as_ruby(redis_client, "rails_retry", message='{"queue":"default","class":"R","args":[],"retry":3}', retry="3")
    _save_as_ruby(redis_client, "rails", message='{"retry":true,"class":"R","args":[]}', active_job="1")
    _save_as_ruby(redis_client, "symbols", message='{"retry":true,"class":"R","args":[]}', symbolize_args="true")
    record = '[{"_sc_globalid":"gid://shop/Order/1"}]'
    _save_as_ruby(redis_client, "record", message='{"retry":true,"class":"R","args":[]}', args=record)

    assert look(NOON + 60.5) == []
    assert len(Firing(fire_ruby_jobs=True).look(pool, NOON + 60.5, b"x")) == 1
    assert [job.name for job in CronJobs() if job.runs()] == ["plain"]


def _save_as_ruby(client: redis.Redis, name: str, **fields: str) -> None:
    key = f"cron_job:default:{name}"
    client.sadd("cron_jobs:default", key)
    values = {
        "name": name,
        "namespace": "default",
        "klass": "R",
        "cron": "* * * * *",
        "status": "enabled",
        "args": "[]",
    }
    client.hset(key, mapping={**values, **fields})


def test_a_full_queue_of_another_type_leaves_the_tick_unclaimed(
    start: Start, pool: Pool, redis_client: redis.Redis
) -> None:
    """Claim and push are one script: what cannot be pushed was not claimed."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    redis_client.set("queue:default", "no list")

    assert Firing().look(pool, NOON + 60.5, b"1") == []
    redis_client.delete("queue:default")

    assert len(Firing().look(pool, NOON + 62.5, b"2")) == 1


def test_the_moment_of_the_push_is_appended_where_the_gem_would(start: Start, look: Look, queued: Queued) -> None:
    """`date_as_argument`, from a schedule file."""
    from sidekiq_py.extensions.periodic.declared import declare

    declare("* * * * *", "Report", by="file", name="report", args=[1], date_as_argument=True)
    start()
    look(NOON + 60.25)

    [raw] = queued()
    assert json.loads(raw)["args"] == [1, NOON + 60.25]


def test_a_middleware_that_stops_the_push_passes_over_the_tick(start: Start, look: Look, queued: Queued) -> None:
    """It is asked once."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    sidekiq.client_middleware.add(lambda job, payload, queue, call_next: None)

    assert look(NOON + 60.5) == []
    assert [run.outcome for run in CronJobs().find("report").runs()] == ["stopped"]
    assert queued() == []


def test_middleware_sees_a_tick_once_until_the_timetable_is_read_again(start: Start, pool: Pool) -> None:
    """Twice a second, the claim would refuse the tick, but only after the middleware had run."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    firing = Firing()
    seen: list[str] = []

    def note(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        seen.append(payload["jid"])
        return call_next()

    sidekiq.client_middleware.add(note)
    for seconds in (60.1, 60.6, 61.1):
        firing.look(pool, NOON + seconds, b"1")

    assert len(seen) == 1


def test_a_refusal_of_redis_is_no_tick_lost(start: Start, pool: Pool, redis_client: redis.Redis) -> None:
    """In a failover: the error is raised, so that it is reported, and the tick is still to be had."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    firing = Firing()
    redis_client.config_set("min-replicas-to-write", "1")
    try:
        with pytest.raises(RedisReplyError):
            firing.look(pool, NOON + 60.5, b"1")
    finally:
        redis_client.config_set("min-replicas-to-write", "0")

    assert len(firing.look(pool, NOON + 61.5, b"1")) == 1


def test_ticks_that_redis_refused_are_made_up_for_by_the_same_process(
    start: Start, look: Look, queued: Queued, redis_client: redis.Redis
) -> None:
    """If they counted as done in the process that was refused, only another one would fire them."""
    sidekiq.periodic("* * * * *", job_named(), name="report", catch_up=timedelta(hours=1))
    start()
    redis_client.set("queue:default", "no list")
    refused = [look(NOON + at) for at in (60.5, 61, 120.5)]
    redis_client.delete("queue:default")

    look(NOON + 130)

    assert refused == [[], [], []]
    assert len(queued()) == 2
    job = CronJobs().find("report")
    assert job is not None
    assert [run.tick for run in job.runs()] == [NOON + 120, NOON + 60]


class Unprintable(ValueError):
    """An error whose message raises."""

    def __str__(self) -> str:
        raise RuntimeError("on purpose")


@pytest.mark.parametrize("error", [ValueError("no tenant"), SystemExit(1), Unprintable()])
def test_a_middleware_that_raises_stops_no_other_job(
    start: Start, look: Look, queued: Queued, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """If it ended each round, jobs behind it in the timetable would never fire."""
    sidekiq.periodic("* * * * *", job_named("Bad"), name="bad")
    sidekiq.periodic("* * * * *", job_named("Good"), name="good")
    start()

    def refuse(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        if payload["class"] == "Bad":
            raise error
        return call_next()

    sidekiq.client_middleware.add(refuse)
    for at in (60.5, 61, 70):
        look(NOON + at)

    assert [json.loads(raw)["class"] for raw in queued()] == ["Good"]
    lines = [record.getMessage() for record in caplog.records if "is skipped" in record.getMessage()]
    assert lines == [f"periodic job bad is skipped: {type(error).__name__}: {error_text(error)}"]


def test_once_on_dst_fires_a_repeated_time_once(start: Start, look: Look) -> None:
    """On the last Sunday of October 2030 the clocks of Berlin show half past two twice."""
    sidekiq.periodic("30 2 * * *", job_named("A"), name="twice", tz="Europe/Berlin")
    sidekiq.periodic("30 2 * * *", job_named("B"), name="once", tz="Europe/Berlin", once_on_dst=True)
    first = int(datetime(2030, 10, 27, 0, 30, tzinfo=UTC).timestamp())
    start(first - 1000)

    fired = [len(look(at + 0.5)) for at in (first, first + 3600)]

    assert fired == [2, 1]


def test_under_a_namespace_all_keys_begin_with_it(redis_url: str, redis_client: redis.Redis) -> None:
    """As the redis-namespace gem has them for sidekiq-cron; members of its set bear no namespace."""
    sidekiq.configure(redis_url=redis_url, namespace="myapp", sidekiq_version="6.4.1")
    jobs = CronJobs()
    jobs.add("* * * * *", "Report", name="report", overlap="skip")
    redis_client.hset(f"myapp:sidekiq_py:cron:{REPORT}", "since", "0")

    [jid] = Firing().look(jobs.pool, NOON + 60.5, b"1")
    end(jid)

    assert [run.outcome for run in jobs.find("report").runs()] == ["success"]
    assert redis_client.smembers("myapp:cron_jobs:default") == {REPORT.encode()}
    assert all(key.startswith(b"myapp:") for key in redis_client.keys("*"))
    jobs.find("report").remove()
    assert redis_client.keys("*report*") == []


@pytest.mark.parametrize(
    "rights", ["~queue:* +ping +select +smembers", "~* +@all -time"], ids=["few", "without the time"]
)
def test_a_worker_without_the_rights_runs_jobs_all_the_same(
    rights: str, redis_url: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Users whose rights are listed one by one were not given those of a later release."""
    from sidekiq_py.config import Config
    from sidekiq_py.extension import JobEnd
    from sidekiq_py.extensions.periodic import PeriodicJobs
    from sidekiq_py.redis_access.connection.settings import RedisSettings
    from sidekiq_py.wire.dialect import Dialect

    redis_client.execute_command("ACL", "SETUSER", "few", "on", ">x", *rights.split())
    try:
        extension = PeriodicJobs()
        pool = Pool(RedisSettings(redis_url.replace("://", "://few:x@")))
        extension.start(pool, Config())
        for task in extension.maintain():
            assert task.run(pool) is None
        end = JobEnd("success", {"sidekiq_py_cron": REPORT}, b"", "default", 0.0, Dialect.pinned("7"))
        assert list(extension.end(end)) == []
    finally:
        redis_client.execute_command("ACL", "DELUSER", "few")
    assert "periodic jobs are neither written nor fired here" in caplog.text


def test_a_lost_reply_is_no_tick_lost_and_none_fired_twice(
    start: Start, pool: Pool, queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script is sent again, and finds its own claim."""
    sidekiq.periodic("* * * * *", job_named(), name="report")
    start()
    write, sent = settle_script.write, []

    def lose_the_first_reply(link: Link, effects: Any) -> None:
        sent.append(effects)
        write(link, effects)
        if len(sent) == 1:
            raise ReplyLostError("the connection broke")

    monkeypatch.setattr(settle_script, "write", lose_the_first_reply)

    [jid] = Firing().look(pool, NOON + 60.5, b"1")

    assert len(sent) == 2
    assert [json.loads(raw)["jid"] for raw in queued()] == [jid]


def test_a_job_with_a_status_is_queued_at_its_tick(start: Start, look: Look, redis_client: redis.Redis) -> None:
    """As after any other push; by hand, too."""
    sidekiq.periodic("* * * * *", sidekiq.ruby_job("R", status=True), name="n", args=[1])
    start()

    [job] = CronJobs()
    jids = [*look(NOON + 60.5), job.run()]

    found = [redis_client.hmget(f"sidekiq:status:{jid}", "status", "worker", "args") for jid in jids]
    assert found == [[b"queued", b"R", b"[1]"]] * 2
