"""Retry, kill, delete, reschedule: one exact job is moved, once, or nothing happens."""

import math
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from sidekiq_py import program
from sidekiq_py.api import DeadSet, JobSet, Queue, RetrySet, ScheduledSet, WorkSet
from sidekiq_py.client.sync_client import Client
from sidekiq_py.errors import ArgumentTypeError, PayloadError, RedisConnectionError, RedisReplyError, SidekiqError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits
from tests.api.conftest import T0
from tests.support.queued_jobs import queued_jobs


@pytest.fixture
def failed(redis_client, payload):
    """Puts jobs into `retry`, all at one score: `failed("a", "b")`."""

    def put(*jids, key="retry", score=T0, **more):
        members = [payload(jid, retry_count=1, error_class="E", error_message="no", **more) for jid in jids]
        redis_client.zadd(key, dict.fromkeys(members, score))
        return members

    return put


def test_a_retry_moves_the_job_and_does_not_count(pool, redis_client, failed):
    """The limit of retries is for the machine's own tries."""
    failed("a", queue="low")
    [entry] = RetrySet()

    assert entry.retry() is True

    [job] = queued_jobs(redis_client, "low")
    assert (job["jid"], job["retry_count"], job["error_class"]) == ("a", 0, "E")
    assert list(job)[:2] == ["retry", "queue"]
    assert redis_client.smembers("queues") == {b"low"}
    assert redis_client.zcard("retry") == 0


def test_of_two_jobs_due_at_one_instant_the_right_one_is_moved(pool, redis_client, failed):
    """Ruby takes whatever is alone at the score: here the wrong job, as the right one was moved before."""
    failed("a", "b")
    right = RetrySet().find_job("a")
    redis_client.zrem("retry", right.value)

    assert (right.retry(), right.kill(), right.add_to_queue(), right.delete(), right.reschedule(T0)) == (False,) * 5

    assert [entry.jid for entry in RetrySet()] == ["b"]
    assert redis_client.keys("*") == [b"retry"]


def test_two_people_who_press_the_button_move_the_job_once(pool, redis_client, failed):
    """The second finds it gone, and writes nothing."""
    failed("a")
    [mine], [yours] = RetrySet(), RetrySet()

    assert (mine.retry(), yours.retry()) == (True, False)
    assert len(queued_jobs(redis_client)) == 1


def test_a_scheduled_job_is_pushed_with_its_count_as_it_was(pool, redis_client, failed):
    """`add_to_queue` is not a retry."""
    failed("a", key="schedule")
    [entry] = ScheduledSet()

    entry.add_to_queue()

    assert [job["retry_count"] for job in queued_jobs(redis_client)] == [1]


def test_killing_keeps_the_bytes_and_calls_the_death_handlers(pool, redis_client, failed):
    """What is in the dead set is what was in the retry set; the handlers are told why."""
    [member] = failed("a")
    deaths = []
    program.hooks.on_death(lambda job, error: deaths.append((job["jid"], str(error))))
    before = datetime.now(UTC)

    [entry] = RetrySet()
    assert entry.kill() is True

    [dead] = DeadSet()
    assert dead.value == member
    assert before - timedelta(seconds=1) <= dead.at <= datetime.now(UTC)
    assert deaths == [("a", "Job killed by API")]
    assert redis_client.zcard("retry") == 0


def test_killing_may_be_done_quietly(pool, failed):
    """`notify_failure=False`."""
    failed("a")
    deaths = []
    program.hooks.on_death(lambda job, error: deaths.append(job))
    [entry] = RetrySet()

    entry.kill(notify_failure=False)

    assert deaths == []


def test_a_job_that_was_gone_when_it_was_to_be_killed_calls_no_death_handler(pool, redis_client, failed):
    """It is not dead: somebody else has it."""
    failed("a")
    deaths = []
    program.hooks.on_death(lambda job, error: deaths.append(job))
    [entry] = RetrySet()
    redis_client.delete("retry")

    assert entry.kill() is False
    assert deaths == []
    assert redis_client.zcard("dead") == 0


def test_the_dead_set_is_trimmed_to_one_less_than_its_limit(pool, redis_client, failed):
    """As Ruby's ZREMRANGEBYRANK leaves it; the oldest go, and what is past its time."""
    now = datetime.now(UTC).timestamp()
    redis_client.zadd("dead", {f"old{n}": now - 100 + n for n in range(6)})
    failed("a")
    [entry] = RetrySet(dead_limits=DeadLimits(5, 1000))

    entry.kill()

    assert redis_client.zrange("dead", 0, -1) == [b"old3", b"old4", b"old5", entry.value]


def test_a_dead_job_cannot_be_killed_again(pool, redis_client, failed):
    """It would be written and then removed."""
    failed("a", key="dead")
    [entry] = DeadSet()

    with pytest.raises(SidekiqError, match="dead already"):
        entry.kill()
    assert redis_client.zcard("dead") == 1


def test_raw_text_in_dead_is_shown_and_stays_when_it_is_retried(pool, redis_client):
    """What could not be read as a job cannot be pushed, and must not be lost by trying."""
    redis_client.zadd("dead", {b"not json": 1.0})
    [entry] = DeadSet()

    with pytest.raises(PayloadError):
        entry.retry()

    assert (entry.args, entry.jid, entry.id) == (["not json"], None, "1.0|")
    assert redis_client.zcard("dead") == 1
    assert entry.delete() is True


def test_rescheduling_moves_the_job_in_one_step(pool, redis_client, failed):
    """Same bytes, another time."""
    [member] = failed("a")
    [entry] = RetrySet()

    assert entry.reschedule(datetime.fromtimestamp(T0 + 3600, UTC)) is True

    assert redis_client.zrange("retry", 0, -1, withscores=True) == [(member, T0 + 3600)]


def test_rescheduling_what_is_spelled_otherwise_leaves_one_entry_in_rubys_spelling(pool, redis_client):
    """Ruby would leave the old one, and a second one that runs at once."""
    redis_client.zadd("schedule", {b'{"class": "A", "args": ["\\u00e9", 1e3], "jid": "j"}': T0})
    [entry] = ScheduledSet()

    entry.reschedule(T0 + 60)

    spelled = '{"class":"A","args":["é",1000.0],"jid":"j"}'.encode()
    assert redis_client.zrange("schedule", 0, -1, withscores=True) == [(spelled, T0 + 60)]
    assert (entry.value, entry.score, entry.delete()) == (spelled, T0 + 60, True)


def test_rescheduling_raw_text_keeps_its_bytes(pool, redis_client):
    """What is no JSON has no other spelling."""
    redis_client.zadd("schedule", {b"not { json": T0})
    [entry] = ScheduledSet()

    entry.reschedule(T0 + 60)

    assert redis_client.zscore("schedule", b"not { json") == T0 + 60


@pytest.mark.parametrize(
    "at",
    [float("nan"), float("inf"), 10**400, 10**5000, datetime(2025, 1, 1)],
    ids=lambda at: str(at)[:20] if isinstance(at, float) else type(at).__name__,
)
def test_a_time_that_is_none_is_refused(pool, failed, at):
    """A naive datetime means another instant on another machine."""
    failed("a")
    [entry] = RetrySet()

    with pytest.raises(ValueError, match="time"):
        entry.reschedule(at)
    with pytest.raises(ValueError, match="time"):
        RetrySet().schedule(at, {"class": "A", "args": []})


def test_an_entry_without_end_can_be_rescheduled(pool, redis_client):
    """An infinite score is Redis's to give, as people do who park a job."""
    redis_client.zadd("schedule", {b'{"class":"A","args":[]}': math.inf})
    [entry] = ScheduledSet()

    assert entry.reschedule(T0 + 60) is True
    assert [score for _, score in redis_client.zrange("schedule", 0, -1, withscores=True)] == [T0 + 60]


def test_many_are_rescheduled_where_they_are_still_there(pool, redis_client, failed):
    """One that was taken meanwhile is counted, and does not come back."""
    members = failed(*(str(number) for number in range(250)))
    entries = list(RetrySet())
    redis_client.zrem("retry", members[7], members[8])
    done = []

    result = RetrySet().reschedule_many(entries, datetime.fromtimestamp(T0 + 60, UTC), done.append)

    assert (result.moved, result.gone, result.refused) == (248, 2, 0)
    assert done == [100, 200, 250]
    assert set(redis_client.zrange("retry", 0, -1, withscores=True)) == {
        (member, T0 + 60) for member in members if member not in members[7:9]
    }
    assert redis_client.keys("*") == [b"retry"]


def test_many_are_rescheduled_in_few_round_trips(pool, redis_client, failed, monkeypatch):
    """A hundred at a time: a hundred thousand jobs over a slow line would otherwise take half an hour."""
    failed(*(str(number) for number in range(250)))
    entries = list(RetrySet(pool=pool))
    trips = []
    run = Pool.run
    monkeypatch.setattr(Pool, "run", lambda *args, **options: (trips.append(1), run(*args, **options))[1])

    RetrySet(pool=pool).reschedule_many(entries, T0 + 60)

    assert len(trips) <= 5


def test_many_that_are_spelled_otherwise_are_rescheduled_as_one_is(pool, redis_client):
    """In Ruby's spelling, and the objects know it; what is no JSON keeps its bytes."""
    redis_client.zadd("schedule", {b'{"class": "A", "args": [1e3], "jid": "j"}': T0, b"not { json": T0})
    entries = list(ScheduledSet())

    assert ScheduledSet().reschedule_many(entries, T0 + 60).moved == 2

    spelled = b'{"class":"A","args":[1000.0],"jid":"j"}'
    assert set(redis_client.zrange("schedule", 0, -1, withscores=True)) == {
        (spelled, T0 + 60),
        (b"not { json", T0 + 60),
    }
    assert ScheduledSet().reschedule_many(entries, T0 + 90).moved == 2
    assert {entry.score for entry in entries} == {T0 + 90}


def test_what_redis_refuses_to_reschedule_is_reported(pool, redis_client):
    """And the others are moved."""
    redis_client.zadd("schedule", {b"one": T0})
    entries = list(ScheduledSet())
    redis_client.delete("schedule")
    redis_client.set("schedule", "x")

    result = ScheduledSet().reschedule_many(entries, T0 + 60)

    assert (result.moved, result.gone, result.refused) == (0, 0, 1)
    [(entry, error)] = result.errors
    assert (entry.value, error.code) == (b"one", "WRONGTYPE")


@pytest.mark.parametrize("at", [float("nan"), datetime(2025, 1, 1)], ids=["nan", "naive"])
def test_a_time_that_is_none_is_refused_for_many(pool, failed, at):
    """Before anything is done."""
    failed("a")

    with pytest.raises(ValueError, match="time"):
        RetrySet().reschedule_many(RetrySet(), at)


@pytest.fixture
def full_server(new_redis_server, payload):
    """A server whose memory is used up, with one job to retry: its pool, a plain client, and the job's bytes."""
    server = new_redis_server()
    pool, client = Pool(RedisSettings(server.url)), server.client()
    member = payload("a")
    client.zadd("retry", {member: T0})
    client.config_set("maxmemory", "1")
    yield pool, client, member
    client.close()
    pool.close()


@pytest.mark.parametrize(("button", "arguments"), [("retry", ()), ("kill", ()), ("reschedule", (T0 + 1,))])
def test_when_redis_is_out_of_memory_nothing_is_lost(full_server, button, arguments):
    """The new place is written first; where that fails, the old one stands."""
    pool, client, member = full_server
    [entry] = RetrySet(pool=pool)

    with pytest.raises(RedisReplyError, match="OOM"):
        getattr(entry, button)(*arguments)

    assert client.zrange("retry", 0, -1, withscores=True) == [(member, T0)]
    assert client.keys("*") == [b"retry"]


def test_when_redis_is_out_of_memory_many_are_not_tried_one_by_one(full_server):
    """The error concerns the server, and would come again for each."""
    pool, client, member = full_server

    with pytest.raises(RedisReplyError, match="OOM"):
        RetrySet(pool=pool).reschedule_many(RetrySet(pool=pool), T0 + 1)

    assert client.zrange("retry", 0, -1, withscores=True) == [(member, T0)]


def test_deleting_by_score_and_jid_takes_that_one(pool, redis_client, failed):
    """The Web UI's links are made of both."""
    failed("a", "b")

    assert RetrySet().delete(T0, "b") is True
    assert RetrySet().delete(T0, "b") is False
    assert [entry.jid for entry in RetrySet()] == ["a"]


def test_entries_are_fetched_by_score(pool, failed):
    """One score, or from one to another."""
    failed("a", score=10)
    failed("b", "c", score=20)

    retries = RetrySet()

    assert [entry.jid for entry in retries.fetch(20)] == ["b", "c"]
    assert [entry.jid for entry in retries.fetch(20, "c")] == ["c"]
    assert [entry.jid for entry in retries.fetch((5, 15))] == ["a"]
    assert len(retries.fetch((0, float("inf")))) == 3


@pytest.mark.parametrize("jid", ["plain", "with*star", "with[b]", "with?", 'with"quote', "with\\", "with/slash", "é"])
def test_a_job_is_found_by_any_jid(pool, redis_client, failed, jid):
    """Redis's globs and JSON's escapes do not get in the way, and text that holds the jid is not the job."""
    failed("other", jid, "x" + jid)
    redis_client.zadd("retry", {b"raw " + jid.encode(): 1})

    assert RetrySet().find_job(jid).jid == jid
    assert RetrySet().find_job("nobody") is None


@pytest.mark.parametrize("place", [RetrySet, partial(Queue, "default")])
def test_a_jid_is_a_string(pool, place):
    """A number is never a job's id."""
    with pytest.raises(TypeError, match="the jid is 5; give the job's id as a string"):
        place(pool=pool).find_job(5)


@pytest.mark.parametrize("place", [RetrySet, partial(Queue, "default"), WorkSet])
def test_an_id_is_not_a_filter(pool, place):
    """`find` takes a filter, `find_job` an id."""
    with pytest.raises(
        TypeError, match=r"'0123' is not a JobFilter; queues and sets find a job by its id with find_job"
    ):
        place(pool=pool).find("0123")


def test_scanning_finds_text_anywhere_in_the_payload(pool, failed):
    """Inside Redis, so that a set of a million is not sent."""
    failed("a", klass="Mail")
    failed("b", klass="Report")

    assert [entry.jid for entry in RetrySet().scan("Repo")] == ["b"]
    assert [entry.jid for entry in RetrySet().scan("*Mail*")] == ["a"]


def test_scanning_a_large_set_of_small_jobs_takes_a_few_round_trips(pool, redis_client, failed):
    """With Ruby's hundred entries for each, ten thousand would take a hundred of them."""
    failed(*(f"{number:024x}" for number in range(10_000)))
    redis_client.config_resetstat()

    assert len(list(RetrySet().scan("HardJob"))) == 10_000
    assert redis_client.info("commandstats")["cmdstat_zscan"]["calls"] < 15

    assert len(list(RetrySet().scan("HardJob", 100))) == 10_000
    assert redis_client.info("commandstats")["cmdstat_zscan"]["calls"] > 90


def test_an_entry_can_be_written_as_it_is(pool, redis_client):
    """`schedule` is Ruby's `JobSet#schedule`."""
    ScheduledSet().schedule(T0, {"class": "A", "args": [1.0]})

    assert redis_client.zrange("schedule", 0, -1, withscores=True) == [(b'{"class":"A","args":[1.0]}', T0)]


def test_a_dead_job_can_be_written_and_announced(pool, redis_client, payload):
    """`DeadSet#kill` takes any payload."""
    deaths = []
    program.hooks.on_death(lambda job, error: deaths.append(job["jid"]))

    DeadSet().kill(payload("a"))
    DeadSet().kill(b"raw")

    assert deaths == ["a"]
    assert redis_client.zcard("dead") == 2


def test_text_is_written_to_the_dead_set_as_its_bytes(pool, redis_client, payload):
    """Ruby's takes a string."""
    DeadSet().kill(payload("ä").decode())

    assert redis_client.zrange("dead", 0, -1) == [payload("ä")]


@pytest.mark.parametrize("member", [{"class": "HardWorker"}, None, 5])
def test_what_is_no_payload_is_not_killed(pool, redis_client, member):
    """The message names what was given, and nothing is written."""
    with pytest.raises(ArgumentTypeError, match=f"bytes or text .* not {type(member).__name__}"):
        DeadSet().kill(member)

    assert redis_client.exists("dead") == 0


def test_all_are_retried_lowest_score_first_in_slices(pool, redis_client, failed):
    """What has waited longest runs first; the caller sees how far it is."""
    for number in range(250):
        failed(str(number), score=number)
    progress = []

    result = RetrySet().retry_all(progress.append)

    assert (result.moved, result.gone, result.refused) == (250, 0, 0)
    assert progress == [100, 200, 250]
    assert [job["jid"] for job in queued_jobs(redis_client)] == [str(n) for n in range(250)]
    assert {job["retry_count"] for job in queued_jobs(redis_client)} == {0}


def test_one_bad_entry_does_not_stop_the_rest_of_retry_all(pool, redis_client, failed):
    """It stays, with its reason; Ruby loses it and stops."""
    failed("a", "b")
    redis_client.zadd("dead", {b"not json": 1.0, b"[]": 2.0})
    failed("c", "d", key="dead")

    result = DeadSet().retry_all()

    assert (result.moved, result.refused) == (2, 2)
    assert [entry.value for entry, error in result.errors if isinstance(error, PayloadError)] == [b"not json", b"[]"]
    assert redis_client.zrange("dead", 0, -1) == [b"not json", b"[]"]


def test_a_job_that_fails_again_at_once_is_not_retried_for_ever(pool, redis_client, failed):
    """Each entry of the beginning is taken once; what comes back waits."""
    failed("a", "b", "c")

    def fail_again(_done):
        while (raw := redis_client.rpop("queue:default")) is not None:
            redis_client.zadd("retry", {raw: T0 + 1_000_000})

    assert RetrySet().retry_all(fail_again).moved == 3
    assert redis_client.zcard("retry") == 3


def test_all_are_killed_without_death_handlers_unless_wanted(pool, redis_client, failed):
    """As Ruby's `kill_all`."""
    failed(*map(str, range(150)))
    deaths = []
    program.hooks.on_death(lambda job, error: deaths.append(job["jid"]))

    assert RetrySet().kill_all().moved == 150
    assert deaths == []

    failed("x", "y")
    RetrySet().kill_all(notify_failure=True)
    assert sorted(deaths) == ["x", "y"]
    assert redis_client.zcard("dead") == 152


def test_client_middleware_sees_each_push_and_may_change_it(pool, redis_client, failed):
    """As for every push."""
    failed("a")

    @program.client_middleware.add
    def stamp(job, payload, queue, call_next):
        payload["stamped"] = [job, queue]
        return call_next()

    RetrySet().retry_all()

    assert [job["stamped"] for job in queued_jobs(redis_client)] == [["HardJob", "default"]]


def test_a_job_that_client_middleware_stops_is_gone_as_in_ruby(pool, redis_client, failed, caplog):
    """But it is logged."""
    failed("a")
    program.client_middleware.add(lambda job, payload, queue, call_next: None)

    with caplog.at_level("INFO", logger="sidekiq"):
        [entry] = RetrySet()
        assert entry.retry() is True

    assert redis_client.keys("*") == []
    assert "client middleware stopped a job that was pushed from retry" in caplog.text


def test_a_queue_that_may_not_be_written_refuses_its_own_jobs_only(pool, redis_client, failed):
    """The others of the slice go on their way, whatever stands before and behind."""
    failed("a", "c")
    failed("b", queue="forbidden")
    rules = "on >secret +@all ~retry ~schedule ~dead ~queues ~processes ~queue:default"
    redis_client.execute_command("ACL", "SETUSER", "clerk", *rules.split())
    links = Pool(RedisSettings(pool.settings.url.replace("redis://", "redis://clerk:secret@")))

    result = RetrySet(client=Client(pool=links, sidekiq_version="6.4.1")).retry_all()

    links.close()
    redis_client.execute_command("ACL", "DELUSER", "clerk")
    assert (result.moved, result.refused) == (2, 1)
    [(entry, error)] = result.errors
    assert (entry.jid, error.code) == ("b", "NOPERM")
    assert [job["jid"] for job in queued_jobs(redis_client)] == ["a", "c"]


def test_a_server_in_trouble_ends_a_bulk_move(pool, failed):
    """Asked for each job anew it would be a timeout a job."""
    failed(*(f"{n}" for n in range(100)))
    tries = []

    def away(job, payload, queue, call_next):
        tries.append(payload["jid"])
        raise RedisConnectionError("Redis is out of reach")

    program.client_middleware.add(away)

    with pytest.raises(RedisConnectionError):
        RetrySet().retry_all()
    assert len(tries) == 1
    assert RetrySet().size == 100


def test_middleware_that_raises_costs_no_job(pool, redis_client, failed):
    """The job stays, the others go on."""
    failed("a", "bad", "c")

    def refuse(job, payload, queue, call_next):
        if payload["jid"] == "bad":
            raise RuntimeError("no")
        return call_next()

    program.client_middleware.add(refuse)

    result = RetrySet().retry_all()

    assert (result.moved, result.refused, str(result.errors[0][1])) == (2, 1, "no")
    assert [entry.jid for entry in RetrySet()] == ["bad"]


def test_all_scheduled_jobs_can_be_enqueued_or_deleted(pool, redis_client, failed):
    """Whole sets, and chosen entries."""
    failed("a", "b", "c", key="schedule")

    result = ScheduledSet().delete_many(entry for entry in ScheduledSet() if entry.jid == "b")
    assert result.moved == 1
    assert ScheduledSet().add_all_to_queue().moved == 2
    assert ScheduledSet().clear() == 0


def test_a_set_by_its_key(pool, failed):
    """For programs that have the name at hand."""
    failed("a")

    retries = JobSet("retry")

    assert (len(retries), [entry.jid for entry in retries]) == (1, ["a"])
    assert retries.clear() == 1


def test_both_directions_of_a_walk(pool, failed):
    """Ruby's is from the highest score down."""
    for number in range(3):
        failed(str(number), score=number)

    assert [entry.jid for entry in RetrySet()] == ["2", "1", "0"]
    assert [entry.jid for entry in reversed(RetrySet())] == ["0", "1", "2"]


def test_rescheduling_while_walking_moves_each_once(pool, redis_client, failed):
    """Entries that go up are not met again on the way down."""
    for number in range(500):
        failed(str(number), score=number)

    moved = [entry.jid for entry in RetrySet() if entry.reschedule(entry.score + 1000)]

    assert len(moved) == 500
    assert redis_client.zcount("retry", 1000, 1499) == 500


def test_entries_are_read_from_a_place_on(pool, redis_client, payload):
    """With the size of the set, from either end."""
    redis_client.zadd("dead", {payload(str(number)): number for number in range(10)})

    entries, size = DeadSet(pool=pool).at_rank(2, 3)
    latest, _ = DeadSet(pool=pool).at_rank(2, 3, latest_first=True)

    assert ([entry.jid for entry in entries], size) == (["2", "3", "4"], 10)
    assert [entry.jid for entry in latest] == ["7", "6", "5"]
    assert DeadSet(pool=pool).at_rank(10, 5) == ([], 10)


def test_entries_are_found_again_by_their_keys(pool, redis_client, payload):
    """Exactly those of the same score and bytes, however many share the score."""
    redis_client.zadd("retry", {payload(f"{number:05}"): 5.25 for number in range(2500)})
    redis_client.zadd("retry", {payload("early"): -1.5, payload("late"): "+inf", b"\xff": 1e300})
    entries = [*RetrySet(pool=pool)]
    chosen = [entries[0], entries[1], entries[700], entries[2000], entries[-1]]

    found = RetrySet(pool=pool).find_keys([entry.key for entry in chosen])

    assert {key: entry.value for key, entry in found.items()} == {entry.key: entry.value for entry in chosen}


def test_the_last_of_many_entries_with_one_score_is_found_without_counting_them_off(pool, redis_client, payload):
    """Each page begins where the last one ended. To skip the first million members for each of them blocks Redis."""
    redis_client.zadd("retry", {payload(f"{number:05}"): 5.25 for number in range(5000)})
    [last] = RetrySet(pool=pool).at_rank(4999, 1)[0]
    redis_client.config_resetstat()

    assert [*RetrySet(pool=pool).find_keys([last.key])] == [last.key]
    assert RetrySet(pool=pool).fetch(5.25, last.jid)[0].value == last.value
    assert RetrySet(pool=pool).delete(5.25, last.jid)

    calls = {name: stats["calls"] for name, stats in redis_client.info("commandstats").items()}
    assert calls["cmdstat_zrangebyscore"] == 3
    assert calls["cmdstat_zrange"] > 20
    assert RetrySet(pool=pool).find_keys([]) == {}


def test_an_entry_that_has_moved_is_not_found_by_its_key(pool, redis_client, payload):
    """Another score, or other bytes, is another entry."""
    redis_client.zadd("retry", {payload("a"): 1, payload("b"): 2})
    first, second = reversed(RetrySet(pool=pool))
    redis_client.zadd("retry", {first.value: 3})
    redis_client.zrem("retry", second.value)

    assert RetrySet(pool=pool).find_keys([first.key, second.key, "junk", "(1-x"]) == {}
