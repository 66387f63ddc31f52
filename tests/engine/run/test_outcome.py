"""A declared job that decides itself what its end writes: in the same step, once, or not at all."""

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.outcome import Attempt, Outcome, Question
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.job_path import in_flight, settle_script
from sidekiq_py.redis_access.job_path.settle_script import Held, Join, Once, Take, Unless
from tests.engine.embedded_worker import Worker
from tests.engine.fetch.in_flight_jobs import OWNER, fetch, held, push
from tests.support.in_flight import jobs_in_flight
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually

# With a character that means something else in a pattern of Lua.
PLACEHOLDER = b"\x01seam-1\x01"


def part(number: int, text: bytes, parts: int) -> list[Any]:
    """The end of one part of a whole that has *parts*."""
    body = (("LPUSH", "queue:body", b'{"args":[[' + PLACEHOLDER + b']],"n":%d}' % number), ("SADD", "queues", "body"))
    return [("HSET", "whole", str(number), text), Join("whole", "done", parts, PLACEHOLDER, body)]


def test_what_only_the_first_may_do_is_done_once(link: Link, redis_client: redis.Redis) -> None:
    """Two jobs end with the same mark; the commands after it run for the first, those behind them for both."""
    push(redis_client, "a", "b")
    ends = [Once("marks", "failed", (("LPUSH", "told", "x"), ("LPUSH", "told", "y"))), ("INCR", "both")]

    for field, _ in fetch(link, max_jobs=2):
        assert in_flight.settle(link, OWNER, field, vital=ends)

    assert redis_client.lrange("told", 0, -1) == [b"y", b"x"]
    assert redis_client.get("both") == b"2"


@pytest.mark.parametrize(
    ("before", "is_written"),
    [(b'{"status": "SUCCESS", "n": 1}', False), (b'{"status": "FAILURE"}', True), (b'{"st', True), (None, True)],
)
def test_what_is_said_already_is_not_overwritten(
    link: Link, redis_client: redis.Redis, before: bytes | None, is_written: bool
) -> None:
    """The commands are passed over where the text begins so, and those behind them are not."""
    push(redis_client, "a")
    if before is not None:
        redis_client.set("result", before)
    [(field, _)] = fetch(link, max_jobs=1)
    write = (("SET", "result", "new"), ("LPUSH", "told", "new"))

    assert in_flight.settle(
        link, OWNER, field, vital=[Unless("result", '{"status": "SUCCESS"', write), ("INCR", "both")]
    )

    assert redis_client.get("result") == (b"new" if is_written else before)
    assert redis_client.llen("told") == int(is_written)
    assert (redis_client.get("both"), held(redis_client)) == (b"1", {})


def test_a_key_that_is_no_text_keeps_nothing_from_being_done(link: Link, redis_client: redis.Redis) -> None:
    """As SET does not mind either what was there."""
    redis_client.lpush("result", "x")

    settle_script.write(link, [Unless("result", "x", (("SET", "result", "new"),))])

    assert redis_client.get("result") == b"new"


def test_the_last_part_pushes_the_whole_in_the_order_of_the_parts(link: Link, redis_client: redis.Redis) -> None:
    """Whoever comes last pushes; the texts are put in as they are, whatever they hold."""
    push(redis_client, "a", "b", "c")
    texts = [b'"%1 %% \\n"', b"1e400", b'{"\xc3\xa9":[]}']
    fields = [field for field, _ in fetch(link, max_jobs=3)]

    for number in (2, 0, 1):
        in_flight.settle(link, OWNER, fields[number], vital=part(number, texts[number], 3))

    [body] = redis_client.lrange("queue:body", 0, -1)
    assert body == b'{"args":[[' + b",".join(texts) + b']],"n":1}'
    assert held(redis_client) == {}


def test_a_part_that_runs_again_counts_once(link: Link, redis_client: redis.Redis) -> None:
    """There is no counter that a second run could move."""
    push(redis_client, "a", "a", "b", "b")
    fields = [field for field, _ in fetch(link, max_jobs=4)]

    for field, number in zip(fields, (0, 0, 1, 1), strict=True):
        in_flight.settle(link, OWNER, field, vital=part(number, b"7", 2))

    assert redis_client.llen("queue:body") == 1


def test_a_whole_that_has_grown_waits_for_what_was_added(link: Link, redis_client: redis.Redis) -> None:
    """Its field `more` counts parts that nobody knew of at first; the script itself reads it."""
    push(redis_client, "a", "b")
    fields = [field for field, _ in fetch(link, max_jobs=2)]
    redis_client.hset("whole", "more", 1)

    in_flight.settle(link, OWNER, fields[0], vital=part(0, b"7", 1))
    assert redis_client.llen("queue:body") == 0
    in_flight.settle(link, OWNER, fields[1], vital=part(1, b"8", 1))

    assert redis_client.lrange("queue:body", 0, -1) == [b'{"args":[[7,8]],"n":1}']


def test_a_part_costs_the_same_however_many_are_there(link: Link, redis_client: redis.Redis) -> None:
    """Each asks whether it is the last one; to go through those that are there would hold Redis up for long."""
    for number in range(300):
        settle_script.write(link, part(number, b"1", 301))
    redis_client.config_resetstat()

    settle_script.write(link, part(0, b"1", 301))

    asked = redis_client.info("commandstats")
    assert sum(asked.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("hexists", "hget", "hlen")) < 20


def test_a_job_that_is_not_in_flight_any_more_joins_nothing(link: Link, redis_client: redis.Redis) -> None:
    """Neither its part nor the whole is written."""
    assert not in_flight.settle(link, OWNER, b"1.1:default", vital=part(0, b"7", 1))

    assert redis_client.keys() == []


def test_a_job_that_is_in_flight_nowhere_writes_all_the_same(link: Link, redis_client: redis.Redis) -> None:
    """For fetchers that keep none, and for jobs that were acknowledged before they started."""
    settle_script.write(link, part(0, b"7", 1))

    assert redis_client.lrange("queue:body", 0, -1) == [b'{"args":[[7]],"n":0}']


def test_an_end_that_is_sent_again_adds_nothing_twice(link: Link, redis_client: redis.Redis) -> None:
    """The reply was lost, and nothing in flight says that the end of a job that runs at most once was written."""
    adds_up = (
        ("RPUSH", "list", "x"), ("LPUSH", "list", "x"), ("INCR", "n"), ("INCRBY", "n", 1), ("APPEND", "text", "x"),
        ("HINCRBY", "hash", "n", 1), ("ZINCRBY", "zset", 1, "x"),
    )  # fmt: skip
    end = settle_script.repeatable([*adds_up, ("SET", "result", "x")], "marks")

    for _ in range(2):
        settle_script.write(link, end)

    assert (redis_client.llen("list"), redis_client.mget("n", "text", "result")) == (2, [b"2", b"x", b"x"])
    assert (redis_client.hget("hash", "n"), redis_client.zscore("zset", "x")) == (b"1", 1.0)
    assert 0 < redis_client.ttl("marks") <= 24 * 3600


def test_a_success_writes_what_its_job_wants(redis_client: redis.Redis, worker: Worker) -> None:
    """The result is handed to `decide_outcome`, and what it returns rides in the script that ends the job."""
    calls: list[str] = []

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        vital = (("SET", "result", json.dumps(attempt.result)),)
        return Outcome("done", attempt.payload, vital=vital, afterwards=lambda: calls.append("after"))

    worker.declare("answer", lambda _: 42).decide_outcome = decide_outcome
    worker.start()
    push_jobs(redis_client, [job_text(1, "answer")])

    eventually(lambda: calls == ["after"])
    assert redis_client.get("result") == b"42"
    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert (redis_client.get("stat:failed"), redis_client.zcard("retry")) == (None, 0)


def test_what_a_success_trims_is_trimmed_after_what_it_writes(redis_client: redis.Redis, worker: Worker) -> None:
    """A job that keeps a list short relies on it: nothing else would ever shorten it."""
    worker.declare("note", lambda _: None).decide_outcome = lambda attempt: Outcome(
        "done",
        attempt.payload,
        vital=(("RPUSH", "notes", attempt.payload["jid"]),),
        trims=(("LTRIM", "notes", -2, -1),),
    )
    worker.start()
    push_jobs(redis_client, [job_text(number, "note") for number in range(5)])

    eventually(lambda: redis_client.get("stat:processed") == b"5")
    assert redis_client.llen("notes") == 2


def test_each_death_trims_the_dead_set(redis_client: redis.Redis, worker: Worker) -> None:
    """Also where the death is announced to handlers: the dead set of a busy worker must not grow without end."""
    told: list[str] = []

    def fail(_: int) -> None:
        raise ValueError("boom")

    worker.declare("fail", fail)
    worker.hooks.on_death(lambda job, error: told.append(job["jid"]))
    worker.start(max_retries=0, dead_max_jobs=3)
    push_jobs(redis_client, [job_text(number, "fail") for number in range(6)])

    eventually(lambda: len(told) == 6)
    # As in Ruby, one less than the limit stays.
    assert redis_client.zcard("dead") == 2


def test_what_follows_an_end_may_be_refused(
    redis_client: redis.Redis, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """The job has ended all the same, and the log does not say otherwise."""

    def refuse() -> None:
        raise RedisReplyError("NOPERM not for you")

    worker.declare("answer", lambda _: 42).decide_outcome = lambda attempt: Outcome(
        "done", attempt.payload, vital=(("SET", "result", "42"),), afterwards=refuse
    )
    worker.start()
    push_jobs(redis_client, [job_text(1, "answer"), job_text(2, "run")])

    eventually(lambda: worker.ran == [2])
    assert redis_client.get("result") == b"42"
    [said] = [record.getMessage() for record in caplog.records if "NOPERM" in record.getMessage()]
    assert said == "a job has ended, but its follow-up work failed: NOPERM not for you"


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3)])
def test_a_failure_goes_where_its_job_wants(redis_client: redis.Redis, worker: Worker, error: BaseException) -> None:
    """Sidekiq's own rules, by which it would wait in the retry set, are not asked."""

    def fail(_: int) -> None:
        raise error

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        return Outcome("dead", attempt.payload, vital=(("SET", "failure", repr(attempt.error)),))

    worker.declare("fail", fail).decide_outcome = decide_outcome
    worker.start()
    push_jobs(redis_client, [job_text(1, "fail")])

    eventually(lambda: redis_client.get("stat:failed") == b"1")
    assert redis_client.get("failure") == repr(error).encode()
    assert redis_client.zcard("retry") == 0


def test_a_job_that_wants_nothing_is_acknowledged_like_any_other(redis_client: redis.Redis, worker: Worker) -> None:
    """In batches: a task whose result nobody keeps costs what a native job costs."""
    ran: list[int] = []
    worker.declare("plain", ran.append).decide_outcome = lambda attempt: None
    worker.start()
    push_jobs(redis_client, [job_text(number, "plain") for number in range(100)])

    eventually(lambda: redis_client.get("stat:processed") == b"100")
    assert sorted(ran) == list(range(100))


def test_a_failure_that_its_job_leaves_to_sidekiq_is_retried(redis_client: redis.Redis, worker: Worker) -> None:
    """`None` stands for the usual rules."""

    def fail(_: int) -> None:
        raise ValueError("boom")

    worker.declare("fail", fail).decide_outcome = lambda attempt: None
    worker.start()
    push_jobs(redis_client, [job_text(1, "fail")])

    eventually(lambda: redis_client.zcard("retry") == 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_whose_decision_fails_is_not_lost(redis_client: redis.Redis, worker: Worker, is_async: bool) -> None:
    """It waits in the retry set with the error of the decision."""

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        raise RuntimeError("undecided")

    async def answer(_: int) -> int:
        return 42

    function: Callable[..., Any] = answer if is_async else lambda _: 42
    worker.declare("answer", function, is_async=is_async).decide_outcome = decide_outcome
    worker.start()
    push_jobs(redis_client, [job_text(1, "answer")])

    [member] = eventually(lambda: redis_client.zrange("retry", 0, -1))
    assert json.loads(member)["error_message"] == "undecided"


def test_an_async_job_decides_too(redis_client: redis.Redis, worker: Worker) -> None:
    """Its script is sent beside the loop, which goes on meanwhile."""

    async def answer(_: int) -> int:
        return 42

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        return Outcome("done", attempt.payload, vital=(("SET", "result", str(attempt.result)),))

    worker.declare("answer", answer, is_async=True).decide_outcome = decide_outcome
    worker.start()
    push_jobs(redis_client, [job_text(1, "answer")])

    eventually(lambda: redis_client.get("result") == b"42")
    eventually(lambda: redis_client.get("stat:processed") == b"1")


def test_ends_that_wait_for_others_are_written_in_batches(redis_client: redis.Redis, worker: Worker) -> None:
    """As acknowledgements are; each is a script of its own, which a server that has forgotten it is told again."""

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        return Outcome("done", attempt.payload, vital=(("HINCRBY", "ended", str(attempt.payload["jid"]), 1),))

    worker.declare("plain", lambda _: None).decide_outcome = decide_outcome
    worker.start()
    for start in range(0, 300, 100):
        redis_client.script_flush()
        push_jobs(redis_client, [job_text(number, "plain") for number in range(start, start + 100)])
        eventually(lambda start=start: redis_client.get("stat:processed") == str(start + 100).encode())

    assert set(redis_client.hvals("ended")) == {b"1"}
    eventually(lambda: jobs_in_flight(redis_client) == [])


def test_what_an_end_pushes_is_fetched_before_others_are_served(redis_client: redis.Redis, worker: Worker) -> None:
    """A chain stays where it runs: another process that waits on the queue is woken for what is left over."""
    ran: list[int] = []
    is_awaited = threading.Event()

    def step(number: int) -> None:
        assert is_awaited.wait(60)
        ran.append(number)

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        number = attempt.payload["args"][0]
        push = ("LPUSH", "queue:default", job_text(number + 1, "step"))
        return Outcome("done", attempt.payload, vital=(push,) if number < 20 else ())

    worker.declare("step", step).decide_outcome = decide_outcome
    launcher = worker.start()
    # From then on the server knows the scripts.
    is_awaited.set()
    push_jobs(redis_client, [job_text(19, "step")])
    eventually(lambda: ran == [19, 20])
    is_awaited.clear()
    push_jobs(redis_client, [job_text(1, "step")])
    eventually(lambda: len(launcher.state.running) == 1)
    waiter = redis.Redis.from_url(worker.url, socket_timeout=None)
    waits = threading.Thread(target=waiter.blmove, args=("queue:default", "theirs", 60, "RIGHT", "LEFT"), daemon=True)
    waits.start()
    eventually(lambda: redis_client.info("clients")["blocked_clients"] == 1)

    is_awaited.set()

    eventually(lambda: ran[2:] == list(range(1, 21)))
    assert waits.is_alive()
    push_jobs(redis_client, [job_text(0, "run")] * 2)
    waits.join(60)
    waiter.close()


def test_what_a_success_asks_is_answered_with_the_next_fetch(redis_client: redis.Redis, worker: Worker) -> None:
    """Whoever runs what it has pushed knows it by then; a refusal is no answer."""
    answers: list[Any] = []
    ran: list[tuple[int, int]] = []

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        number = attempt.payload["args"][0]
        push = ("LPUSH", "queue:default", job_text(number + 1, "step"))
        question = Question(("HGET", "texts", str(number)), answers.append)
        return Outcome("done", attempt.payload, vital=(push,) if number < 9 else (), question=question)

    worker.declare("step", lambda number: ran.append((number, len(answers)))).decide_outcome = decide_outcome
    redis_client.hset("texts", mapping={str(number): f"text {number}" for number in range(10)})
    worker.start()
    push_jobs(redis_client, [job_text(0, "step")])
    eventually(lambda: len(answers) == 10)

    assert ran == [(number, number) for number in range(10)]
    assert answers == [b"text %d" % number for number in range(10)]
    redis_client.delete("texts")
    redis_client.set("texts", "no hash")
    push_jobs(redis_client, [job_text(9, "step")])
    eventually(lambda: len(ran) == 11)
    eventually(lambda: jobs_in_flight(redis_client) == [])
    assert len(answers) == 10


def test_an_end_that_redis_refuses_holds_up_no_other(redis_client: redis.Redis, worker: Worker) -> None:
    """Its job stays in flight until what is wrong has been repaired."""
    redis_client.set("counts", "no hash")

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        key = "counts" if attempt.payload["args"] == [7] else "fine"
        return Outcome("done", attempt.payload, vital=(("HINCRBY", key, "ended", 1),))

    worker.declare("plain", lambda _: None).decide_outcome = decide_outcome
    worker.start()
    push_jobs(redis_client, [job_text(number, "plain") for number in range(20)])

    eventually(lambda: redis_client.hget("fine", "ended") == b"19")
    assert len(eventually(lambda: jobs_in_flight(redis_client))) == 1
    redis_client.delete("counts")
    eventually(lambda: redis_client.hget("counts", "ended") == b"1")


def test_a_failure_that_is_logged_elsewhere_is_not_logged_twice(
    redis_client: redis.Redis, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nobody handles errors, the engine logs them; not what has been told of."""

    def fail(_: int) -> None:
        raise ValueError("boom")

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        return Outcome("discarded", attempt.payload, is_logged=attempt.payload["args"] == [1])

    worker.declare("fail", fail).decide_outcome = decide_outcome
    worker.start()
    push_jobs(redis_client, [job_text(1, "fail"), job_text(2, "fail")])

    eventually(lambda: sum("Job raised exception" in line for line in caplog.messages) == 1)
    assert redis_client.get("stat:failed") == b"2"


@pytest.mark.parametrize(
    ("retry", "follows"), [(True, r", next try in (1\d|2\d) s"), (0, ", kept in dead"), (False, "")]
)
def test_the_log_says_whether_a_failed_job_is_tried_again(
    redis_client: redis.Redis, worker: Worker, caplog: pytest.LogCaptureFixture, retry: Any, follows: str
) -> None:
    """Operators look for it there; error handlers get the same context as in Ruby."""
    contexts: list[str] = []

    def fail(_: int) -> None:
        raise ValueError("boom")

    worker.hooks.on_error(lambda error, context: contexts.append(context["context"]))
    worker.declare("fail", fail)
    worker.start()
    push_jobs(redis_client, [job_text(1, "fail", retry=retry)])

    eventually(lambda: contexts == ["Job raised exception"])
    [line] = [line for line in caplog.messages if "boom" in line]
    assert re.fullmatch(f"Job raised exception{follows}: ValueError: boom", line)


# ---- what Redis refuses


@pytest.mark.parametrize("kind", ["once", "join"])
def test_a_mark_says_nothing_that_was_not_done(link: Link, redis_client: redis.Redis, kind: str) -> None:
    """Whoever tries again after a refusal does what hangs on it; a mark set before would have it lost."""
    push(redis_client, "a")
    [(field, _)] = fetch(link, max_jobs=1)
    then = (("SADD", "queues", "body"), ("LPUSH", "queue:body", b"[" + PLACEHOLDER + b"]"))
    condition = Once("whole", "done", then) if kind == "once" else Join("whole", "done", 1, PLACEHOLDER, then)
    end = [("HSET", "whole", "0", "7"), condition]
    redis_client.set("queue:body", "oops")

    with pytest.raises(RedisReplyError, match="WRONGTYPE queue:body is a string"):
        in_flight.settle(link, OWNER, field, vital=end)
    assert redis_client.keys("whole") == []
    redis_client.delete("queue:body")
    assert in_flight.settle(link, OWNER, field, vital=end)

    assert redis_client.llen("queue:body") == 1
    assert redis_client.hexists("whole", "done")


def test_a_mark_is_taken_back_where_a_command_fails_for_another_reason(link: Link, redis_client: redis.Redis) -> None:
    """Not all can be seen beforehand."""
    push(redis_client, "a")
    [(field, _)] = fetch(link, max_jobs=1)

    with pytest.raises(RedisReplyError):
        in_flight.settle(link, OWNER, field, vital=[Once("m", "done", (("SET", "x", "1"), ("LSET", "y", "0", "z")))])

    assert redis_client.exists("m") == 0
    assert held(redis_client) == {field: b"a"}


def test_a_mark_stays_where_a_command_behind_it_fails(link: Link, redis_client: redis.Redis) -> None:
    """What hangs on it is done, and must not be done again when the end is sent again."""
    end = [Once("marks", "done", (("INCR", "told"),)), ("LSET", "nothing", "0", "x")]

    for _ in range(2):
        with pytest.raises(RedisReplyError):
            settle_script.write(link, end)

    assert redis_client.get("told") == b"1"


def test_an_end_with_a_command_too_long_for_a_script_is_not_begun(link: Link, redis_client: redis.Redis) -> None:
    """It would fail after what comes before it, and each try would write that once more."""
    long = ("ZADD", "zset", *(number for number in range(5_000) for _ in range(2)))

    with pytest.raises(RedisReplyError, match="too long for a script"):
        settle_script.write(link, [("INCR", "count"), long])

    assert redis_client.exists("count") == 0


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (("LPUSH", "odd", "x"), "WRONGTYPE odd"),
        (("RPUSH", "odd", "x"), "WRONGTYPE odd"),
        (("SADD", "odd", "x"), "WRONGTYPE odd"),
        (("SREM", "odd", "x"), "WRONGTYPE odd"),
        (("ZADD", "odd", "1", "x"), "WRONGTYPE odd"),
        (("ZREM", "odd", "x"), "WRONGTYPE odd"),
        (("HSET", "odd", "f", "x"), "WRONGTYPE odd"),
        (("HDEL", "odd", "f"), "WRONGTYPE odd"),
        (("APPEND", "numbers", "x"), "WRONGTYPE numbers"),
        (("INCRBY", "odd", "1"), "odd holds no integer"),
        (("HINCRBY", "numbers", "f", "1"), "numbers holds no integer"),
        (Once("odd", "done", (("SET", "x", "1"),)), "WRONGTYPE odd"),
    ],
)
def test_an_end_that_cannot_be_written_whole_is_not_begun(
    link: Link, redis_client: redis.Redis, command: Any, word: str
) -> None:
    """Sent again once a second, each try would push what comes before the refused command once more."""
    push(redis_client, "a")
    [(field, _)] = fetch(link, max_jobs=1)
    redis_client.set("odd", "text")
    redis_client.hset("numbers", "f", "text")

    for _ in range(3):
        with pytest.raises(RedisReplyError, match=word):
            in_flight.settle(link, OWNER, field, vital=[("SADD", "queues", "a"), ("LPUSH", "queue:a", "1"), command])

    assert redis_client.llen("queue:a") == 0
    assert held(redis_client) == {field: b"a"}


NEXT = Take("queue:next", b"next", b"2.0:next", OWNER, ("queue:next",))


@pytest.mark.parametrize(
    ("last", "command", "verb"),
    [(Once("marks", "done", (("SET", "x", "1"),)), "hsetnx", "ONCE"), (NEXT, "lpush", "TAKE")],
)
def test_an_end_of_which_the_user_may_not_write_the_last_is_not_begun(
    link: Link, redis_client: redis.Redis, last: Any, command: str, verb: str
) -> None:
    """Each try would count what comes before it once more."""
    if redis_client.info("server")["redis_version"].startswith("6."):
        pytest.skip("scripts can ask for permissions since Redis 7.0")
    push(redis_client, "a")
    [(field, _)] = fetch(link, max_jobs=1)
    redis_client.execute_command("ACL", "SETUSER", "default", f"-{command}")
    try:
        with pytest.raises(RedisReplyError, match=f"this user may not use {verb}"):
            in_flight.settle(link, OWNER, field, vital=[("INCR", "count"), last])
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", f"+{command}")

    assert redis_client.exists("count") == 0
    assert held(redis_client) == {field: b"a"}


@pytest.mark.parametrize(("first", "kind"), [(("SET", "key", "text"), "string"), (("SADD", "key", "x"), "set")])
def test_a_key_that_the_end_itself_makes_can_be_no_list(
    link: Link, redis_client: redis.Redis, first: Any, kind: str
) -> None:
    """This is seen before anything is written."""
    with pytest.raises(RedisReplyError, match=f"WRONGTYPE key is a {kind}"):
        settle_script.write(link, [("SADD", "set", "x"), first, ("LPUSH", "key", "x")])

    assert redis_client.keys("*") == []


@pytest.mark.parametrize(
    "end",
    [
        [("SET", "result", "new"), Unless("result", "done", (("LPUSH", "odd", "x"),))],
        [("DEL", "marks"), Once("marks", "done", (("LPUSH", "odd", "x"),))],
    ],
)
def test_what_the_end_itself_overwrites_does_not_hide_what_follows_it(
    link: Link, redis_client: redis.Redis, end: Any
) -> None:
    """The commands behind the condition will run, so they are looked at before anything is written."""
    redis_client.mset({"result": "done", "odd": "text"})
    redis_client.hset("marks", "done", "1")

    with pytest.raises(RedisReplyError, match="WRONGTYPE odd is a string"):
        settle_script.write(link, end)

    assert (redis_client.get("result"), redis_client.hget("marks", "done")) == (b"done", b"1")


def test_parts_that_one_command_writes_are_all_counted(link: Link, redis_client: redis.Redis) -> None:
    """They complete the whole, so what it pushes is looked at before anything is written."""
    redis_client.set("odd", "text")
    whole = Join("whole", "done", 2, PLACEHOLDER, (("LPUSH", "odd", "x"),))

    with pytest.raises(RedisReplyError, match="WRONGTYPE odd is a string"):
        settle_script.write(link, [("HSET", "whole", "0", "7", "1", "8"), whole])

    assert redis_client.exists("whole") == 0


def test_a_counter_that_fails_altogether_has_no_end_written_again(link: Link, redis_client: redis.Redis) -> None:
    """The job has left before the counters begin."""
    push(redis_client, "a")
    [(field, _)] = fetch(link, max_jobs=1)

    def settle() -> bool:
        counters = [Once("marks", "told", (("INCR", "told"),))]
        return in_flight.settle(link, OWNER, field, vital=[("INCR", "ended")], counters=counters)

    redis_client.execute_command("ACL", "SETUSER", "default", "-hsetnx")
    try:
        with pytest.raises(RedisReplyError):
            settle()
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", "+hsetnx")

    assert not settle()
    assert redis_client.get("ended") == b"1"


def test_a_counter_may_be_below_zero(link: Link, redis_client: redis.Redis) -> None:
    """It is a number all the same."""
    redis_client.set("left", -3)
    redis_client.hset("numbers", "left", -3)

    settle_script.write(link, [("INCRBY", "left", 1), ("HINCRBY", "numbers", "left", 1)])

    assert (redis_client.get("left"), redis_client.hget("numbers", "left")) == (b"-2", b"-2")


def test_what_is_passed_over_need_not_be_possible(link: Link, redis_client: redis.Redis) -> None:
    """Only what is to be done is looked at: not a whole that misses parts, nor what is marked
    or said already, nor what a lock of another keeps back."""
    redis_client.set("odd", "text")
    redis_client.hset("marks", "done", "1")
    impossible = (("LPUSH", "odd", "x"),)

    settle_script.write(
        link,
        [
            ("HSET", "whole", "0", "7"),
            Join("whole", "done", 2, PLACEHOLDER, impossible),
            Once("marks", "done", impossible),
            Unless("odd", "te", impossible),
            Held("odd", "the text of another", impossible),
        ],
    )

    assert redis_client.hgetall("whole") == {b"0": b"7"}


def test_a_key_may_be_removed_and_become_another(link: Link, redis_client: redis.Redis) -> None:
    """What counts is its type when the command's turn has come."""
    redis_client.set("key", "text")

    settle_script.write(link, [("DEL", "key"), ("HSET", "key", "done", "1"), ("EXPIRE", "key", 60)])

    assert redis_client.hgetall("key") == {b"done": b"1"}


def test_a_condition_of_a_wrong_type_among_the_counters_costs_no_other(link: Link, redis_client: redis.Redis) -> None:
    """The job has left by then: what is not counted now never is."""
    push(redis_client, "a")
    [(field, _)] = fetch(link, max_jobs=1)
    redis_client.set("odd", "text")
    then = (("INCR", "never"),)

    assert in_flight.settle(
        link,
        OWNER,
        field,
        vital=(),
        counters=[Once("odd", "m", then), Join("odd", "m", 1, PLACEHOLDER, then), ("INCR", "stat")],
    )

    assert redis_client.mget("stat", "never") == [b"1", None]


def test_an_end_of_many_values_and_keys_is_written(link: Link, redis_client: redis.Redis) -> None:
    """Lua hands some 8,000 values to a command: long ones are cut, also those that hang on a condition."""
    values = [str(number) for number in range(9_001)]
    pairs = [word for value in values for word in (value, value)]

    settle_script.write(
        link,
        [
            Once("marks", "done", (("RPUSH", "list", *values), ("SADD", "set", *values))),
            ("HSET", "hash", *pairs),
            *[("LPUSH", f"queue:{number}", "x") for number in range(3_000)],
        ],
    )

    assert redis_client.lrange("list", 0, -1) == [value.encode() for value in values]
    assert (redis_client.scard("set"), redis_client.hlen("hash")) == (9_001, 9_001)
    assert len(redis_client.keys("queue:*")) == 3_000


def test_every_placeholder_is_filled_and_a_foreign_field_counts_nothing(link: Link, redis_client: redis.Redis) -> None:
    """A text that holds the placeholder itself stays as it is, as does a command that does not hang on the whole."""
    redis_client.hset("whole", mapping={"0": b"<" + PLACEHOLDER + b">", "more": "x"})

    settle_script.write(
        link,
        [
            Join("whole", "done", 1, PLACEHOLDER, (("LPUSH", "body", PLACEHOLDER + b"|" + PLACEHOLDER),)),
            ("SET", "behind", PLACEHOLDER),
        ],
    )

    assert redis_client.lrange("body", 0, -1) == [b"<" + PLACEHOLDER + b">|<" + PLACEHOLDER + b">"]
    assert redis_client.get("behind") == PLACEHOLDER


def test_an_end_that_is_too_long_loses_no_thread(redis_client: redis.Redis, worker: Worker) -> None:
    """Lua's own errors do not pass; the job stays in flight, and the only thread goes on."""

    def fail(_: int) -> None:
        raise ValueError("boom")

    worker.declare("big", fail).decide_outcome = lambda attempt: Outcome(
        "dead", attempt.payload, vital=(("ZADD", "big", *(number for n in range(5_000) for number in (n, n))),)
    )
    worker.start()
    push_jobs(redis_client, [job_text(1, "big"), job_text(2, "run")])

    eventually(lambda: worker.ran == [2])
    eventually(lambda: redis_client.get("stat:processed") == b"1")
    eventually(lambda: len(jobs_in_flight(redis_client)) == 1)


def test_one_spell_of_refused_writes_is_told_once(
    redis_client: redis.Redis, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """Not once a job, and not as something to be repaired."""
    gate = threading.Event()
    begun = threading.Event()

    def plain(_: int) -> None:
        begun.set()
        gate.wait(30)

    def decide_outcome(attempt: Attempt) -> Outcome | None:
        return Outcome("done", attempt.payload, vital=(("HINCRBY", "ended", "n", 1),))

    worker.declare("plain", plain).decide_outcome = decide_outcome
    worker.start()
    push_jobs(redis_client, [job_text(number, "plain") for number in range(10)])
    assert begun.wait(30)
    try:
        redis_client.replicaof("127.0.0.1", 1)
        gate.set()
        eventually(lambda: any("Redis accepts writes again" in line for line in caplog.messages))
    finally:
        redis_client.replicaof("no", "one")
    eventually(lambda: redis_client.hget("ended", "n") == b"10")

    assert not [line for line in caplog.messages if "is fixed" in line]
