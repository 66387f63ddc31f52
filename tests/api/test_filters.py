"""Filters as values, pages with places, counts and stops: what lists and bulk actions choose by."""

import json
from datetime import UTC, datetime

import pytest

from sidekiq_py.api import JobFilter, Queue, QueuedJob, RetrySet, WorkSet
from sidekiq_py.errors import RedisReplyError
from tests.support.queued_jobs import queued_jobs


@pytest.fixture
def retries(redis_client, payload):
    """Five retries, due at 1 to 5; the second and the fourth are of another class and queue."""
    for number in range(1, 6):
        other = number % 2 == 0
        redis_client.zadd(
            "retry",
            {
                payload(
                    str(number),
                    klass="Mail" if other else "HardJob",
                    queue="mails" if other else "default",
                    args=[number, "käse"],
                    error_class="Net::ReadTimeout" if other else "ValueError",
                    error_message=f"try {number}",
                    tags=["new", "vip"] if other else "vip",
                ): number
            },
        )
    return RetrySet()


@pytest.mark.parametrize(
    ("wanted", "jids"),
    [
        ({}, "12345"),
        ({"job_class": "Mail"}, "24"),
        ({"queue": "default"}, "135"),
        ({"error": "readtimeout"}, "24"),
        ({"error": "ValueError: try 5"}, "5"),
        ({"argument": '3, "kä'}, "3"),
        ({"after": 2, "before": 4}, "23"),
        ({"after": datetime.fromtimestamp(4, UTC)}, "45"),
        ({"tag": "vip"}, "24"),
        ({"tag": "vi"}, ""),
        ({"text": '"args":[4,'}, "4"),
        ({"job_class": "Mail", "after": 3}, "4"),
    ],
)
def test_a_filter_finds_what_fits_all_that_it_asks_for(pool, retries, wanted, jids):
    """In the order of their times, and counted alike."""
    wanted = JobFilter(**wanted)

    assert "".join(entry.jid for entry in retries.find(wanted)) == jids
    assert "".join(entry.jid for entry in retries.find(wanted, latest_first=True)) == jids[::-1]
    assert retries.count(wanted) == len(jids)


def test_a_time_without_a_zone_is_refused():
    """Machines differ in theirs."""
    with pytest.raises(ValueError, match="has no time zone"):
        JobFilter(after=datetime(2030, 1, 1))


@pytest.mark.parametrize("name", ["after", "before"])
def test_a_text_is_no_time(name):
    """A filter that compares a text with a job's time would fail at the first job, far from the mistake."""
    with pytest.raises(ValueError, match=f"{name} is 'yesterday'; give an aware datetime or epoch seconds"):
        JobFilter(**{name: "yesterday"})


def test_times_alone_are_counted_by_redis(pool, redis_client, retries):
    """No job is read for that."""
    redis_client.zadd("retry", {b"not json": 3.5})

    assert retries.count(JobFilter(after=3, before=4)) == 2


@pytest.mark.parametrize("latest_first", [False, True])
def test_a_page_goes_on_where_the_last_one_ended(pool, redis_client, retries, latest_first):
    """Also where its last entry is gone, and others came."""
    first = retries.page(2, latest_first=latest_first)
    first.entries[-1].delete()
    second = retries.page(2, after=first.next, latest_first=latest_first)
    third = retries.page(2, after=second.next, latest_first=latest_first)

    found = [entry.jid for page in (first, second, third) for entry in page.entries]
    assert "".join(found) == ("54321" if latest_first else "12345")
    assert third.next is None


def test_a_page_of_a_search_ends_after_so_many_looks(pool, retries):
    """So that a search in a large set can show how far it is."""
    page = retries.page(10, wanted=JobFilter(job_class="Mail"), look_at=3)
    rest = retries.page(10, wanted=JobFilter(job_class="Mail"), look_at=3, after=page.next)

    assert ([entry.jid for entry in page.entries], page.looked_at) == (["2"], 3)
    assert ([entry.jid for entry in rest.entries], rest.next) == (["4"], None)


def test_a_bulk_action_stops_between_two_slices(pool, redis_client, retries):
    """What was not dealt with yet stays."""
    result = retries.delete_many(reversed(retries), per_second=10, stop=lambda: redis_client.zcard("retry") < 5)

    assert (result.moved, redis_client.zcard("retry")) == (1, 4)


def test_a_search_tells_how_far_it_is_and_stops(pool, redis_client, payload):
    """Every two hundred jobs."""
    redis_client.zadd("retry", {payload(str(n)): n for n in range(500)})
    counts = []

    found = list(RetrySet().find(JobFilter(), looked_at=counts.append, stop=lambda: counts[-1] >= 400))

    assert (counts, len(found)) == ([200, 400], 399)


def fill(redis_client, payload, count, queue="default", **more):
    """Push *count* jobs, jid "0" first."""
    redis_client.sadd("queues", queue)
    redis_client.lpush(f"queue:{queue}", *[payload(str(n), queue=queue, enqueued_at=n, **more) for n in range(count)])


def jids_of(redis_client, queue):
    """What runs next in front."""
    return [job["jid"] for job in queued_jobs(redis_client, queue)]


def test_a_queue_is_walked_from_the_job_that_runs_next(pool, redis_client, payload):
    """While it is worked, pushed to and thinned out, what stays comes once."""
    fill(redis_client, payload, 900)
    seen = []

    for number, job in enumerate(reversed(Queue())):
        seen.append(job.jid)
        redis_client.lpush("queue:default", payload(f"new{number}"))
        if number % 3 == 0:
            job.delete()
        if number % 50 == 49:
            redis_client.rpop("queue:default")
        if number > 1100:
            break

    assert len(seen) == len(set(seen))
    assert [jid for jid in seen if not jid.startswith("new")] == [str(n) for n in range(900)]


def test_a_queue_is_found_in_by_filter(pool, redis_client, payload):
    """A job's time is when it was enqueued."""
    fill(redis_client, payload, 10)

    found = Queue().find(JobFilter(after=3, before=6))

    assert [job.jid for job in found] == ["5", "4", "3"]


def test_pages_of_a_queue(pool, redis_client, payload):
    """By place, the newest first; a search ends after so many looks."""
    fill(redis_client, payload, 5)
    queue = Queue()

    first = queue.page(2)
    rest = queue.page(5, after=first.next)
    search = queue.page(5, wanted=JobFilter(after=1, before=2), look_at=4)

    assert [job.jid for job in (*first.jobs, *rest.jobs)] == ["4", "3", "2", "1", "0"]
    assert (first.next, rest.next) == (2, None)
    assert ([job.jid for job in search.jobs], search.next, search.looked_at) == (["1"], 4, 4)


def test_all_jobs_of_a_queue_move_behind_those_of_another(pool, redis_client, payload):
    """In their order, byte for byte."""
    fill(redis_client, payload, 250)
    fill(redis_client, payload, 2, queue="low")
    before = redis_client.lrange("queue:default", 0, -1)
    counts = []

    result = Queue().move_to("low", progress=counts.append)

    assert (result.moved, counts) == (250, [100, 200, 250])
    assert redis_client.lrange("queue:low", 0, 249) == before
    assert jids_of(redis_client, "low")[:2] == ["0", "1"]
    assert redis_client.exists("queue:default") == 0


def test_a_move_enters_the_new_queue(pool, redis_client, payload):
    """So that every Web UI shows it."""
    fill(redis_client, payload, 1)

    Queue().move_to("new")

    assert redis_client.sismember("queues", "new")


def test_chosen_jobs_move_in_their_order(pool, redis_client, payload, pages_of):
    """The others stay in theirs, however many pages it takes."""
    pages_of(5)
    fill(redis_client, payload, 60)
    queue = Queue()

    chosen = (job for job in reversed(queue) if int(job.jid) % 3)
    result = queue.move_to("low", chosen)

    assert result.moved == 40
    assert jids_of(redis_client, "low") == [str(n) for n in range(60) if n % 3]
    assert jids_of(redis_client, "default") == [str(n) for n in range(60) if n % 3 == 0]


@pytest.mark.parametrize("oldest_first", [True, False])
def test_chosen_jobs_are_found_where_they_stand_by_now(pool, redis_client, payload, oldest_first):
    """Workers have taken some before them, and jobs of a dead worker have come back in front of them."""
    fill(redis_client, payload, 30)
    chosen = list(Queue().find(JobFilter(after=10, before=20), oldest_first=oldest_first))
    for _ in range(12):
        redis_client.rpop("queue:default")
    first = Queue().move_to("low", chosen[:5])
    redis_client.rpush("queue:default", *[payload(f"back{n}") for n in range(20)])
    second = Queue().move_to("low", chosen[5:])

    assert (first.moved + second.moved, first.gone + second.gone) == (8, 2)
    assert sorted(jids_of(redis_client, "low")) == [str(n) for n in range(12, 20)]
    assert jids_of(redis_client, "default")[-10:] == [str(n) for n in range(20, 30)]
    assert redis_client.llen("queue:default") == 30


def test_of_equal_jobs_as_many_are_deleted_as_were_chosen(pool, redis_client, payload):
    """The others stay."""
    redis_client.lpush("queue:default", *[payload("same")] * 5, payload("other"))

    result = Queue().delete_many(list(Queue().find(JobFilter(text='"jid":"same"')))[:3])

    assert (result.moved, jids_of(redis_client, "default")) == (3, ["same", "same", "other"])


@pytest.mark.parametrize("missing", ["lset", "lrem", "lpos", "lpush", "sadd"])
def test_a_user_who_lacks_a_right_changes_nothing(redis_url, redis_client, payload, missing):
    """No job stands in both queues, and none is bent."""
    fill(redis_client, payload, 3)
    redis_client.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", f"-{missing}")
    queue = Queue(pool=redis_url.replace("redis://", "redis://limited:secret@"))

    for begin in (0, -1):
        chosen = [QueuedJob(job.value, "default", None, begin) for job in reversed(queue)]
        with pytest.raises(RedisReplyError):
            queue.move_to("low", chosen)

    redis_client.execute_command("ACL", "DELUSER", "limited")
    left = jids_of(redis_client, "default") + jids_of(redis_client, "low")
    assert sorted(left) == ["0", "1", "2"]


def test_a_move_into_a_key_of_another_type_loses_nothing(pool, redis_client, payload):
    """It is an error, and every job is where it was."""
    fill(redis_client, payload, 3)
    redis_client.set("queue:low", "x")

    for jobs in (None, reversed(Queue())):
        with pytest.raises(Exception, match="WRONGTYPE"):
            Queue().move_to("low", jobs)

    assert jids_of(redis_client, "default") == ["0", "1", "2"]


def test_a_move_to_itself_is_refused(pool):
    """It would not end in what anybody wants."""
    with pytest.raises(ValueError, match="name another queue"):
        Queue().move_to("default")


@pytest.mark.parametrize("target", ["", None])
def test_jobs_are_not_moved_to_what_is_no_name(target, pool):
    """They would be stranded. Other odd names may be those of existing queues."""
    with pytest.raises(ValueError, match=f"target is {target!r}"):
        Queue().move_to(target)


def test_chosen_jobs_of_a_queue_are_deleted(pool, redis_client, payload):
    """What a worker has taken meanwhile counts as gone."""
    fill(redis_client, payload, 3)
    chosen = list(reversed(Queue()))
    redis_client.rpop("queue:default")

    result = Queue().delete_many(chosen)

    assert (result.moved, result.gone, redis_client.llen("queue:default")) == (2, 1, 0)


def test_a_queue_is_paused_and_goes_on(pool, redis_client):
    """By Sidekiq Pro's set."""
    queue = Queue("low")

    assert (queue.pause(), queue.pause(), queue.paused) == (True, False, True)
    assert (redis_client.smembers("paused"), Queue.paused_names()) == ({b"low"}, ["low"])
    assert (queue.unpause(), queue.unpause(), queue.paused) == (True, False, False)


def test_clearing_may_keep_the_name_and_deleting_takes_all(pool, redis_client, payload):
    """A deleted queue leaves no pause behind."""
    fill(redis_client, payload, 2)
    redis_client.sadd("paused", "default")

    assert Queue().clear(keep_name=True) == 2
    assert redis_client.smembers("queues") == {b"default"}
    Queue().delete()

    assert redis_client.keys("*") == []


def test_running_jobs_are_found_by_filter_with_their_time(pool, redis_client, payload):
    """A job's time is when it started."""
    redis_client.sadd("processes", "h:1:a")
    redis_client.hset("h:1:a", mapping={"info": json.dumps({"hostname": "h"}), "busy": 2, "beat": 1})
    for thread, klass in (("t1", "Mail"), ("t2", "HardJob")):
        work = {"queue": "default", "payload": payload(thread, klass=klass).decode(), "run_at": 1_700_000_000}
        redis_client.hset("h:1:a:work", thread, json.dumps(work))

    [work] = WorkSet().find(JobFilter(job_class="Mail", before=1_700_000_001))

    assert work.job.jid == "t1"
    assert work.elapsed_seconds > 60
    assert WorkSet().find(JobFilter(after=1_700_000_001)) == []


def test_redis_searches_fewer_jobs_at_once_if_they_are_large(pool, redis_client, payload):
    """It answers nobody else meanwhile: three thousand jobs of 5 kB take it 150 ms."""
    redis_client.zadd("retry", {payload(f"{n:024x}", args=["x" * 5000]): n for n in range(2000)})
    retries = RetrySet()

    for search in (lambda: retries.find_job("f" * 24), lambda: retries.count(JobFilter(text="nowhere"))):
        redis_client.config_resetstat()
        assert not search()
        assert redis_client.info("commandstats")["cmdstat_zscan"]["calls"] >= 8
