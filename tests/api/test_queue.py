"""A queue is read page by page while workers and clients change it."""

import json
from contextlib import contextmanager
from itertools import islice

import pytest

from sidekiq_py.api import Queue
from sidekiq_py.api import queue as queue_module
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.reads import queues
from sidekiq_py.redis_access.reads.queues import PlacedJob


def fill(redis_client, payload, count, queue="default"):
    """Push *count* jobs, jid "0" first."""
    redis_client.sadd("queues", queue)
    redis_client.lpush(f"queue:{queue}", *[payload(str(number), queue=queue) for number in range(count)])


def test_jobs_come_newest_first(pool, redis_client, payload):
    """As in Ruby."""
    fill(redis_client, payload, 450)

    assert [job.jid for job in Queue(pool=pool)] == [str(n) for n in reversed(range(450))]


def test_deleting_while_iterating_skips_nothing(pool, redis_client, payload):
    """Each deleted job moves those behind it one place up."""
    fill(redis_client, payload, 450)

    deleted = [job.jid for job in Queue(pool=pool) if job.delete()]

    assert deleted == [str(n) for n in reversed(range(450))]
    assert redis_client.llen("queue:default") == 0


def test_deleting_some_while_others_push_and_workers_take_skips_nothing(pool, redis_client, payload):
    """New jobs at the head move all others down, workers take from the tail."""
    fill(redis_client, payload, 900)
    seen = []

    for number, job in enumerate(Queue(pool=pool)):
        seen.append(job.jid)
        if number % 2:
            job.delete()
        redis_client.lpush("queue:default", payload(f"new{number}"))
        if number % 10 == 0:
            redis_client.rpop("queue:default")

    assert len(seen) == len(set(seen))
    assert set(map(str, range(90, 900))) <= set(seen)


def test_more_pushes_than_a_page_between_two_pages_repeat_nothing(pool, redis_client, payload, pages_of):
    """The place is found again by the jobs that stood there."""
    pages_of(5)
    fill(redis_client, payload, 20)
    seen = []

    for job in Queue(pool=pool):
        seen.append(job.jid)
        if len(seen) in (3, 9):
            redis_client.lpush("queue:default", *[payload(f"new{len(seen)}-{n}") for n in range(50)])

    assert seen == [str(n) for n in reversed(range(20))]


def test_jobs_of_the_same_bytes_are_each_shown(pool, redis_client, pages_of):
    """Nothing stops a client from pushing the same text twice."""
    pages_of(4)
    redis_client.lpush("queue:default", *[b"{}"] * 21)

    assert len(list(Queue(pool=pool))) == 21


def test_a_job_like_one_that_was_deleted_behind_the_reader_is_another_job(pool, redis_client, pages_of):
    """A reader that took it for the deleted one would leave out jobs, or read the same page for ever."""
    pages_of(3)
    redis_client.rpush("queue:default", *"abcuvwxcyz")
    jobs = iter(Queue(pool=pool))
    seen = [next(jobs).value for _ in range(3)]
    redis_client.lrem("queue:default", 1, "b")
    redis_client.lrem("queue:default", 1, "c")

    seen += [job.value for job in islice(jobs, 20)]

    assert b"".join(seen) == b"abcuvwxcyz"


def test_a_whole_page_deleted_behind_the_reader_does_not_hide_the_next_one(pool, redis_client, payload, pages_of):
    """Also when what was read before is deleted in one go."""
    pages_of(4)
    fill(redis_client, payload, 20)
    seen = []

    for job in Queue(pool=pool):
        seen.append(job)
        if len(seen) == 12:
            assert all(old.delete() for old in seen)

    assert [job.jid for job in seen] == [str(n) for n in reversed(range(20))]


def test_deleting_large_pages_while_workers_take_skips_nothing(pool, redis_client, payload, monkeypatch, pages_of):
    """The larger the page, the more jobs workers take until the next one is read."""
    pages_of(5)
    monkeypatch.setattr(queue_module, "_MOST_PAGE_JOBS", 25)
    fill(redis_client, payload, 300)
    seen = set()

    for number, job in enumerate(reversed(Queue(pool=pool))):
        seen.add(job.jid)
        if job.jid.isdigit() and int(job.jid) > 125:
            job.delete()
        if number % 2:
            redis_client.rpop("queue:default")
            redis_client.lpush("queue:default", payload(f"new{number}"))
        assert number < 5000

    assert set(map(str, range(300))) <= seen


def test_a_queue_emptied_while_it_is_read_ends_the_walk(pool, redis_client, payload, pages_of):
    """Workers may be faster than the reader."""
    pages_of(4)
    fill(redis_client, payload, 20)
    jobs = iter(Queue(pool=pool))
    next(jobs)

    redis_client.delete("queue:default")

    assert len(list(jobs)) == 3


def test_a_job_is_found_by_its_jid_and_deleted(pool, redis_client, payload):
    """Only that one goes; a second time there is nothing to delete."""
    fill(redis_client, payload, 3)

    job = Queue(pool=pool).find_job("1")

    assert (job.jid, job.queue, job.klass) == ("1", "default", "HardJob")
    assert (job.delete(), job.delete()) == (True, False)
    assert [json.loads(raw)["jid"] for raw in redis_client.lrange("queue:default", 0, -1)] == ["2", "0"]
    assert Queue(pool=pool).find_job("9") is None


@pytest.mark.parametrize(("place", "is_from_head"), [(3, True), (27, False)])
def test_a_single_job_is_removed_from_the_nearer_end(pool, redis_client, payload, place, is_from_head):
    """Redis looks at each job on the way: the oldest of two million, searched for from the head, took 130 ms."""
    fill(redis_client, payload, 30)

    with inner_commands(redis_client) as commands:
        assert list(Queue(pool=pool))[place].delete()

    [words] = [words for words in commands if words[0] == "LREM"]
    assert words[2] == ("1" if is_from_head else "-1")
    assert redis_client.llen("queue:default") == 29


def test_draining_gives_the_jobs_and_removes_the_name(pool, redis_client, payload):
    """Whoever empties a queue can still see what was in it."""
    fill(redis_client, payload, 3, queue="low")

    drained = [raw for part in Queue("low", pool=pool).drain() for raw in part]

    assert sorted(json.loads(raw)["jid"] for raw in drained) == ["0", "1", "2"]
    assert redis_client.keys("queue*") == []


def test_clearing_removes_the_jobs_and_the_name(pool, redis_client, payload):
    """As in Ruby."""
    fill(redis_client, payload, 3, queue="low")

    assert Queue("low", pool=pool).clear() == 3
    assert redis_client.keys("*") == []


def test_all_queues_come_by_name(pool, redis_client, payload):
    """With their sizes; a queue that is not in the set of names is not known."""
    fill(redis_client, payload, 2, queue="low")
    fill(redis_client, payload, 1, queue="critical")

    assert [(queue.name, queue.size, len(queue)) for queue in Queue.all(pool=pool)] == [
        ("critical", 1, 1),
        ("low", 2, 2),
    ]


def test_latency_is_the_age_of_the_job_that_runs_next(pool, redis_client, payload, monkeypatch):
    """Float seconds and whole milliseconds both; 0.0 for what does not say, and for an empty queue."""
    monkeypatch.setattr(queue_module, "now_seconds", lambda: 1_700_000_010.5)
    queue = Queue(pool=pool)
    assert queue.latency == 0.0

    redis_client.lpush("queue:default", payload(enqueued_at=1_700_000_000.5))
    assert queue.latency == 10.0

    redis_client.rpush("queue:default", payload(enqueued_at=1_700_000_008_500))
    assert queue.latency == 2.0

    redis_client.rpush("queue:default", b"junk")
    assert queue.latency == 0.0


def test_a_paused_queue_says_so(pool, redis_client):
    """The set `paused` is Sidekiq Pro's."""
    redis_client.sadd("paused", "low")

    assert (Queue("low", pool=pool).paused, Queue("high", pool=pool).paused) == (True, False)


def test_an_empty_queue_is_still_an_object(pool):
    """`queue or other` must not take the other for a queue without jobs."""
    queue = Queue(pool=pool)

    assert queue
    assert len(queue) == 0


def test_jobs_in_flight_are_counted_by_queue_and_owner(pool, redis_client, payload):
    """What workers hold, marked ones and those in an inbox included; of living, dead and departed owners."""
    redis_client.hset(
        "sidekiq_py:owners", mapping={"h:1:a:0": '{"queues":["low"]}', "h:2:b:3": '{"queues":["default","low"]}'}
    )
    redis_client.hset("sidekiq_py:departed", "h:3:c:0", '1700000000.000 {"queues":["low"]}')
    redis_client.hset("sidekiq_py:inflight:h:1:a:0", mapping={"1.0:low": payload(), "1.1!low": payload()})
    redis_client.hset("sidekiq_py:inflight:h:2:b:3", "7.0:default", payload())
    redis_client.rpush("sidekiq_py:inbox:h:3:c:0:low", payload())

    assert Queue("low", pool=pool).in_flight == 3
    assert Queue("default", pool=pool).in_flight == 1


def test_a_page_may_begin_with_what_runs_next(pool, redis_client, payload):
    """Places count from it then."""
    fill(redis_client, payload, 10)

    page = Queue(pool=pool).page(3, after=2, oldest_first=True)

    assert ([job.jid for job in page.jobs], page.next) == (["2", "3", "4"], 5)
    assert Queue(pool=pool).page(3, after=9, oldest_first=True).next is None


def test_a_job_is_found_near_the_place_where_it_stood(pool, redis_client, payload, monkeypatch):
    """Workers have taken jobs before it, and some were given back."""
    monkeypatch.setattr(queue_module, "_PAGE_JOBS", 10)
    fill(redis_client, payload, 100)
    job = Queue(pool=pool).page(1, after=60, oldest_first=True).jobs[0]
    redis_client.rpop("queue:default", 40)

    assert Queue(pool=pool).find_near(job.key, 60).jid == "60"
    redis_client.rpush("queue:default", *[payload(f"back{n}") for n in range(45)])
    assert Queue(pool=pool).find_near(job.key, 60).jid == "60"
    assert Queue(pool=pool).find_near("0" * 20, 60) is None


def test_an_operation_on_a_broken_queue_names_it_and_its_type(pool, redis_client):
    """`clear` leaves the key alone: whatever wrote it may need it."""
    redis_client.sadd("queues", "wrong", "good")
    redis_client.hset("queue:wrong", "a", "b")
    queue, good = Queue("wrong"), Queue("good")

    for act in (
        lambda: queue.size,
        lambda: queue.latency,
        lambda: list(queue),
        queue.clear,
        queue.delete,
        lambda: list(queue.drain()),
    ):
        with pytest.raises(
            RedisReplyError, match=r"queue wrong .* its key queue:wrong is a hash and not a list"
        ) as raised:
            act()
        assert raised.value.code == "WRONGTYPE"
    assert redis_client.hgetall("queue:wrong") == {b"a": b"b"}
    assert redis_client.sismember("queues", "wrong")
    assert good.size == 0


def test_a_reader_whose_page_was_taken_searches_no_further_than_it_was(
    pool, redis_client, payload, monkeypatch, pages_of
):
    """A search through a million jobs holds Redis up for 70 ms, and workers may take each page."""
    pages_of(5)
    monkeypatch.setattr(queues, "MOST_RETURNED", 10)
    fill(redis_client, payload, 100)
    jobs = reversed(Queue(pool=pool))
    next(jobs)
    redis_client.rpop("queue:default", 40)

    with inner_commands(redis_client) as commands:
        left = {job.jid for job in jobs}

    assert left >= set(map(str, range(40, 100)))
    searches = [words for words in commands if words[0] == "LPOS"]
    assert searches
    assert all(0 < int(words[-1]) <= 30 for words in searches)


def test_jobs_that_someone_else_has_deleted_are_not_each_searched_for(pool, redis_client, payload, monkeypatch):
    """Redis would walk over a million jobs for each; one walk in pages shows which are still there."""
    monkeypatch.setattr(queues, "_SEARCH_STEPS", 10)
    fill(redis_client, payload, 100)
    chosen = list(reversed(Queue(pool=pool)))[40:80]
    redis_client.ltrim("queue:default", 30, -1)

    with inner_commands(redis_client) as commands:
        result = Queue(pool=pool).delete_many(chosen)

    assert (result.moved, result.gone, redis_client.llen("queue:default")) == (30, 10, 40)
    # In each of the few scripts, one is a check of rights.
    assert sum(words[0] == "LPOS" for words in commands) < 10


def test_many_jobs_behind_those_that_came_back_are_found(pool, redis_client, payload, monkeypatch):
    """A dead worker had fetched a few of them."""
    monkeypatch.setattr(queues, "_SEARCH_STEPS", 10)
    fill(redis_client, payload, 60)
    chosen = list(reversed(Queue(pool=pool)))[20:40]
    redis_client.rpush("queue:default", *[payload(f"back{n}") for n in range(15)])

    result = Queue(pool=pool).move_to("low", chosen)

    assert (result.moved, result.gone) == (20, 0)
    assert redis_client.llen("queue:default") == 55


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_stop_leaves_jobs_that_would_have_to_be_searched_for(pool, redis_client, payload, monkeypatch, calls):
    """They are neither taken nor counted."""
    monkeypatch.setattr(queues, "_SEARCH_STEPS", 1)
    fill(redis_client, payload, 60)
    chosen = list(reversed(Queue(pool=pool)))[20:40]
    chosen[0].delete()
    answers = iter([False] * calls)

    result = Queue(pool=pool).delete_many(chosen, stop=lambda: next(answers, True))

    assert (result.moved, result.gone, redis_client.llen("queue:default")) == (0, 1, 59)


def test_a_walk_that_deletes_knows_where_the_next_jobs_stand(pool, redis_client, payload, monkeypatch):
    """Its own deletions shift them, and a search for one holds Redis up."""
    monkeypatch.setattr(queue_module, "_PAGE_JOBS", 50)
    fill(redis_client, payload, 600)
    queue = Queue(pool=pool)

    with inner_commands(redis_client) as commands:
        result = queue.delete_many(job for job in reversed(queue) if int(job.jid) % 2)

    assert result.moved == 300
    scripts, searches = (sum(words[0] == name for words in commands) for name in ("LREM", "LPOS"))
    # A check of rights is a search for the first job and an LREM on a set.
    assert searches * 2 == scripts


def test_jobs_that_workers_fetch_meanwhile_cost_one_search_a_script(pool, redis_client, payload, monkeypatch):
    """Each page is read at another time, and a search for each of them holds Redis up."""
    monkeypatch.setattr(queues, "_SEARCH_STEPS", 10)
    fill(redis_client, payload, 3000)
    queue = Queue(pool=pool)

    def chosen():
        for job in reversed(queue):
            if int(job.jid) > 1000 and int(job.jid) % 10 == 1:
                yield job
            if int(job.jid) % 100 == 99:
                redis_client.rpop("queue:default", 3)

    with inner_commands(redis_client) as commands:
        result = queue.delete_many(chosen())

    assert (result.moved, result.gone) == (200, 0)
    # One in each script is a check of rights.
    assert sum(words[0] == "LPOS" for words in commands) == 4


def test_some_of_the_chosen_jobs_are_gone(pool, redis_client, payload, monkeypatch):
    """Someone else deleted them: the others are not where they were, and each by another number of places."""
    monkeypatch.setattr(queues, "_SEARCH_STEPS", 10)
    fill(redis_client, payload, 100)
    chosen = list(reversed(Queue(pool=pool)))[40:80]
    for job in chosen[::2]:
        job.delete()

    with inner_commands(redis_client) as commands:
        result = Queue(pool=pool).move_to("low", chosen)

    assert (result.moved, result.gone) == (20, 20)
    assert redis_client.lrange("queue:low", 0, -1) == [job.value for job in chosen[:0:-2]]
    assert sum(words[0] == "LPOS" for words in commands) < 10


def test_few_large_jobs_are_read_by_mistake(pool, redis_client, payload, monkeypatch):
    """Redis copies what is where a job should be; a hundred jobs of 5 MB hold it up for a second."""
    monkeypatch.setattr(queues, "SLICE_BYTES", 1000)
    redis_client.lpush("queue:default", *[payload(str(n), args=["x" * 500 * (n % 2)]) for n in range(100)])
    chosen = list(reversed(Queue(pool=pool)))[::2]
    for job in chosen:
        job.delete()

    with inner_commands(redis_client) as commands:
        result = Queue(pool=pool).delete_many(chosen)

    assert (result.moved, result.gone) == (0, 50)
    # One of them is a check of rights.
    assert sum(words[0] == "LINDEX" for words in commands) < 5


def test_one_large_job_among_small_ones_takes_a_script_of_its_own(pool, redis_client, payload):
    """Each script walks over the queue to delete what it took."""
    redis_client.lpush("queue:default", *[payload(str(n), args=["x" * (n == 40) * 5_000_000]) for n in range(80)])
    queue = Queue(pool=pool)

    with inner_commands(redis_client) as commands:
        assert queue.delete_many(list(queue)).moved == 80

    # Each deletes what it took from one end.
    assert sum(words[:2] == ["LREM", "queue:default"] for words in commands) == 3


def test_a_queue_of_large_jobs_is_read_a_few_at_a_time(pool, redis_client, payload):
    """A page of them with the usual number of jobs would be a gigabyte."""
    redis_client.lpush("queue:default", *[payload(str(n), args=["x" * 500_000]) for n in range(40)])

    with inner_commands(redis_client) as commands:
        assert len(list(Queue(pool=pool))) == 40

    reads = [words for words in commands if words[0] == "LRANGE"]
    assert all(int(end) - int(start) < 20 for *_, start, end in reads)


@pytest.mark.parametrize(("chosen", "is_from_head"), [(slice(0, 5), True), (slice(25, 30), False)])
def test_what_was_taken_is_removed_from_the_nearer_end(pool, redis_client, payload, chosen, is_from_head):
    """Redis looks at each job on the way."""
    fill(redis_client, payload, 30)
    queue = Queue(pool=pool)

    with inner_commands(redis_client) as commands:
        queue.delete_many(list(queue)[chosen])

    [words] = [words for words in commands if words[:2] == ["LREM", "queue:default"]]
    assert words[2] == ("5" if is_from_head else "-5")
    assert redis_client.llen("queue:default") == 25


def test_a_job_that_was_found_again_knows_its_place(pool, redis_client, payload, monkeypatch):
    """So that deleting it takes no search through the queue."""
    monkeypatch.setattr(queue_module, "_PAGE_JOBS", 10)
    fill(redis_client, payload, 100)
    job = Queue(pool=pool).page(1, after=60, oldest_first=True).jobs[0]
    redis_client.rpop("queue:default", 40)

    assert Queue(pool=pool).find_near(job.key, 60).placed == PlacedJob(job.value, 20)


@pytest.mark.parametrize("is_chosen", [True, False])
def test_large_jobs_are_moved_a_few_at_a_time(pool, redis_client, payload, is_chosen):
    """A script that moves a hundred jobs of 5 MB holds Redis up for a second."""
    large = [payload(str(n), args=["x" * 1_500_000]) for n in range(9)]
    redis_client.lpush("queue:default", *large)
    queue = Queue(pool=pool)
    redis_client.config_resetstat()

    result = queue.move_to("low", reversed(queue) if is_chosen else None)

    assert (result.moved, redis_client.lrange("queue:low", 0, -1)) == (9, large[::-1])
    stats = redis_client.info("commandstats")
    assert sum(stats[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats) >= 3


@contextmanager
def inner_commands(client):
    """The words of each command that Redis runs in the block, also in scripts."""
    before = {name: client.config_get(name)[name] for name in ("slowlog-log-slower-than", "slowlog-max-len")}
    client.config_set("slowlog-max-len", 10_000)
    client.config_set("slowlog-log-slower-than", 0)
    client.slowlog_reset()
    found = []
    try:
        yield found
    finally:
        found += [
            entry["command"].decode(errors="replace").split(" ") for entry in reversed(client.slowlog_get(10_000))
        ]
        for name, value in before.items():
            client.config_set(name, value)
