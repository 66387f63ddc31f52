"""Keys of batches to which another program has written: jobs run all the same, and other batches do not suffer."""

import json
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import telemetry
from sidekiq_py.api import Batches
from sidekiq_py.client import sync_client
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches import adding, checks, steps
from sidekiq_py.extensions.batches.audit import Audit
from sidekiq_py.extensions.batches.lifecycle_events import LifecycleEvents
from sidekiq_py.extensions.batches.ruby_runs import RubyRuns
from sidekiq_py.extensions.batches.state import BatchStatus
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.extensions.batches.conftest import Program
from tests.extensions.batches.test_json_schema import definition, violations
from tests.support.waiting import eventually

COUNTERS = ("total", "pending", "untried", "tokens", "next", "n:failed", "kids", "kids_untried", "kids_pending")
TIMES = ("created_at", "changed_at", "complete_at", "token:someone")


def looked_at(pool: Any) -> list[str]:
    """What the doctor says, after everybody else has looked at all batches."""
    Audit(quiet_seconds=-1).run(pool)
    assert [one.as_json() for one in Batches()]
    return [finding.seen for finding in checks.batches(pool)]


@pytest.mark.parametrize("field", [*COUNTERS, *TIMES])
def test_a_field_of_another_program_stops_no_job_and_no_look(app: Program, field: str) -> None:
    """It reads as 0 or None, and the doctor names it; another batch ends as ever."""
    batch, other = sidekiq.Batch(), sidekiq.Batch()
    for one in (batch, other):
        with one.jobs():
            for deed in ("ok", "fail", "ok"):
                app.deed.perform_async(deed)
    app.client.hset(steps.key(batch.bid), field, b"not \xff ours")
    pool = sync_client.current().pool

    said = looked_at(pool)
    with sidekiq.embed(concurrency=2, buffer_seconds=0.01):
        other.wait(60)
        app.wait_until_idle()

    assert any("1 batch is damaged" in text and field in text for text in said), said
    assert len(app.runs) == 6
    assert app.client.zcard("retry") == 2
    # Each step writes this one anew.
    assert field == "changed_at" or app.client.hget(steps.key(batch.bid), field) == b"not \xff ours"


@pytest.mark.parametrize(
    ("field", "event"),
    [("untried", "complete"), ("kids_untried", "complete"), ("pending", "success"), ("kids_pending", "success")],
)
def test_a_spoilt_counter_calls_nobody_back_too_soon(app: Program, field: str, event: str) -> None:
    """It is no zero."""
    batch = sidekiq.Batch().on("complete", app.callback).on("success", app.callback)
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.hset(steps.key(batch.bid), field, "not ours")

    with sidekiq.embed(concurrency=1):
        app.wait_until_idle()

    assert app.runs == [("ok",)]
    assert event not in app.events(batch.bid)


def test_a_hash_that_is_none_is_shown_as_damaged(app: Program) -> None:
    """Others can still be listed."""
    batch, other = sidekiq.Batch(), sidekiq.Batch()
    for one in (batch, other):
        with one.jobs():
            app.deed.perform_async("ok")
    app.client.set(steps.key(batch.bid), "text")

    said = looked_at(sync_client.current().pool)

    assert {one.bid: list(one.damaged) for one in Batches()} == {batch.bid: ["the hash itself"], other.bid: []}
    assert any("the hash itself" in text for text in said)


def test_the_json_for_front_ends_names_what_is_damaged(app: Program) -> None:
    """A page that shows a total of 0 can say that it is not to be trusted."""
    batch, other = sidekiq.Batch(), sidekiq.Batch()
    for one in (batch, other):
        with one.jobs():
            app.deed.perform_async("ok")
    app.client.hset(steps.key(batch.bid), mapping={"total": "many", "created_at": "yesterday"})

    told = [json.loads(one.status().as_json()) for one in (batch, other)]

    assert [(one["total"], one["damaged"]) for one in told] == [(0, ["total", "created_at"]), (1, [])]
    assert [list(violations(one, definition("status"))) for one in told] == [[], []]


def test_rows_whose_key_has_a_wrong_type_hide_no_other_batch(app: Program) -> None:
    """A list in JSON must not end at such a batch, in the middle of the document."""
    batch, other = sidekiq.Batch(track=True), sidekiq.Batch(track=True)
    for one in (batch, other):
        with one.jobs():
            app.deed.perform_async("ok")
    key = f"{steps.key(batch.bid)}:states"
    app.client.delete(key)
    app.client.set(key, "foreign")

    told = {one["bid"]: one for one in map(BatchStatus.as_dict, Batches())}

    assert (told[batch.bid]["jobs"]["enqueued"], told[batch.bid]["damaged"]) == (0, ["states"])
    assert (told[other.bid]["jobs"]["enqueued"], told[other.bid]["damaged"]) == (1, [])
    assert [list(violations(one, definition("status"))) for one in told.values()] == [[], []]


def test_members_and_errors_that_are_none_are_left_out(app: Program, redis_client: redis.Redis) -> None:
    """Those that can be read are shown."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("fail")
    with sidekiq.embed(concurrency=1):
        batch.wait(60)
        app.wait_until_idle()
    redis_client.hset(f"{steps.key(batch.bid)}:members", "x", "failed:y")
    redis_client.hset(f"{steps.key(batch.bid)}:errors", "0", b"{\xff")
    redis_client.hset(f"{steps.key(batch.bid)}:blocks", "x", "y")

    looked_at(sync_client.current().pool)

    assert [(one["number"], one["state"]) for one in batch.status().as_dict()["members"]] == [(0, "failed")]


BAD_BID = b"caf\xe9"
BAD_TEXT = BAD_BID.decode(errors="surrogateescape")
BAD_KEY = b"sidekiq_py:batch:" + BAD_BID


def list_bad_bid(client: redis.Redis) -> None:
    """List a batch, before all others, whose id is not UTF-8, and one that is gone."""
    for key in (steps.ALL, steps.RUNNING, steps.INVALID):
        client.zadd(key, {BAD_BID: 1, b"gone\xe9": 1})
    client.hset(BAD_KEY, mapping={"total": "1", "pending": "1", "created_at": "1", "changed_at": "1"})


def test_a_bid_that_is_not_utf_8_hides_no_other_batch(app: Program) -> None:
    """Lists and the doctor show both; the audit finds what others have lost, and forgets what is gone."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.delete("queue:default")
    list_bad_bid(app.client)
    pool = sync_client.current().pool

    audit = Audit(quiet_seconds=-1)
    audit.run(pool)
    audit.run(pool)

    assert {one.bid for one in Batches()} == {batch.bid, BAD_TEXT}
    assert batch.status().lost == 1
    assert "1 job of 1 batch is lost" in checks_say(pool)
    assert app.client.zscore(steps.ALL, b"gone\xe9") is None
    assert app.client.zscore(steps.ALL, BAD_BID) == 1


def checks_say(pool: Any) -> str:
    """What the doctor says of batches."""
    return "\n".join(finding.seen for finding in checks.batches(pool))


def test_a_bid_that_is_not_utf_8_and_was_invalidated_keeps_no_job_from_running(app: Program) -> None:
    """Every member asks for those that were."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    list_bad_bid(app.client)

    with sidekiq.embed(concurrency=1):
        batch.wait(5, until="success")

    assert app.runs == [("ok",)]


def test_a_bid_that_is_not_utf_8_stops_no_event(app: Program) -> None:
    """Handlers are told of both."""
    told: list[str] = []
    telemetry.attach("here", "sidekiq.batch", lambda name, measurements: told.append(measurements["bid"]))
    try:
        events, pool = LifecycleEvents(), sync_client.current().pool
        events.run(pool)
        list_bad_bid(app.client)
        app.client.hset(BAD_KEY, "complete_at", "2")
        batch = sidekiq.Batch()
        with batch.jobs():
            app.deed.perform_async("ok")
        events.run(pool)
    finally:
        telemetry.detach("here")

    assert told.count(BAD_TEXT) == 2
    assert batch.bid in told


def test_a_ruby_process_whose_name_is_not_utf_8_stops_no_other_from_being_recovered(app: Program) -> None:
    """Both ran members of batches when they died."""
    for identity in (b"caf\xe9:1:ab", b"host:1:ab"):
        app.client.sadd(steps.RUBY_PROCESSES, identity)
        app.client.hset(b"sidekiq_py:batches:ruby:" + identity, "jid/0", b"low\n" + identity)

    RubyRuns(away_seconds=0).run(sync_client.current().pool)

    assert sorted(app.client.lrange("queue:low", 0, -1)) == [b"caf\xe9:1:ab", b"host:1:ab"]
    assert not app.client.exists(steps.RUBY_PROCESSES)


def test_a_field_in_flight_of_another_program_does_not_stop_the_audit(app: Program) -> None:
    """The jobs beside it are found."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    owner = "host:1:ab:1"
    app.client.hset("sidekiq_py:owners", owner, '{"queues":["default"]}')
    job = app.client.rpop("queue:default")
    app.client.hset(
        f"sidekiq_py:inflight:{owner}", mapping={b"1.0:caf\xe9": b"x", b"ours not": b"x", b"1.1:default": job}
    )

    audit = Audit(quiet_seconds=-1)
    for _ in range(2):
        audit.run(sync_client.current().pool)

    assert batch.status().lost == 0


def test_a_member_in_a_queue_whose_name_is_not_utf_8_is_not_lost(app: Program) -> None:
    """The audit looks there, too."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.sadd("queues", b"caf\xe9")
    app.client.rename("queue:default", b"queue:caf\xe9")

    audit = Audit(quiet_seconds=-1)
    for _ in range(2):
        audit.run(sync_client.current().pool)

    assert batch.status().lost == 0


def lose_job(app: Program) -> sidekiq.Batch:
    """A batch whose job is nowhere."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.delete("queue:default")
    return batch


@pytest.mark.parametrize("part", ["", ":succeeded", ":members", ":callbacks", ":children"])
def test_a_batch_whose_key_has_a_wrong_type_can_be_deleted(app: Program, part: str) -> None:
    """As the doctor advises; only then can its jobs end."""
    batch, parent = sidekiq.Batch(), sidekiq.Batch()
    with parent.jobs(), batch.jobs():
        for deed in ("ok", "fail"):
            app.deed.perform_async(deed)
    key = steps.key(batch.bid) + part
    app.client.delete(key)
    app.client.zadd(key, {"of another program": 1})

    with sidekiq.embed(concurrency=2, buffer_seconds=0.01):
        eventually(lambda: len(app.runs) == 2)
        batch.delete()
        app.wait_until_idle()

    assert not app.client.keys(f"{steps.key(batch.bid)}*")
    assert app.client.zcard(steps.ALL) == 1


@pytest.mark.parametrize("part", ["blocks", "succeeded", "members", "callbacks"])
def test_a_key_of_one_batch_that_has_a_wrong_type_stops_no_audit_of_others(
    app: Program, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """The loss of a job of another batch is found, and the damage is logged once."""
    bad, good = lose_job(app), lose_job(app)
    key = f"{steps.key(bad.bid)}:{part}"
    app.client.delete(key)
    app.client.rpush(key, "a list")

    audit = Audit(quiet_seconds=-1)
    for _ in range(4):
        audit.run(sync_client.current().pool)

    assert good.status().lost == 1
    assert app.client.lrange(key, 0, -1) == [b"a list"]
    assert len([line for line in caplog.records if "cannot be checked" in line.getMessage()]) <= 1


@pytest.mark.parametrize("place", ["queue:odd", "sidekiq_py:inflight:host:1:ab:1", "host:1:ab:work", "host:1:ab"])
def test_a_key_of_a_wrong_type_among_the_places_of_jobs_stops_no_audit(app: Program, place: str) -> None:
    """A queue's, an owner's, a process's."""
    good = lose_job(app)
    app.client.sadd("queues", "odd")
    app.client.sadd("processes", "host:1:ab")
    app.client.hset("host:1:ab", "info", "{}")
    app.client.hset("sidekiq_py:owners", "host:1:ab:1", '{"queues":[]}')
    app.client.sadd(steps.RUBY_PROCESSES, "ruby:1:ab")
    app.client.set("sidekiq_py:batches:ruby:ruby:1:ab", "a string")
    app.client.delete(place)
    app.client.set(place, "a string")

    audit = Audit(quiet_seconds=-1)
    for _ in range(2):
        audit.run(sync_client.current().pool)

    assert good.status().lost == 1


@pytest.mark.parametrize("digits", [15, 400, 5000])
def test_numbers_that_no_batch_gave_out_stop_no_audit(app: Program, digits: int) -> None:
    """A block of a billion members would be counted one by one."""
    bad, good = lose_job(app), lose_job(app)
    number = "9" * digits
    app.client.hset(f"{steps.key(bad.bid)}:blocks", mapping={"0": number, number: "1"})
    app.client.hset(f"{steps.key(bad.bid)}:members", number, "failed:x")

    audit = Audit(quiet_seconds=-1)
    for _ in range(2):
        audit.run(sync_client.current().pool)

    assert good.status().lost == 1


@pytest.mark.parametrize("value", ["9" * 400, "1e999", "nan", "-1e300"])
@pytest.mark.parametrize("field", ["pending", "total", "created_at", "changed_at", "token:someone"])
def test_a_number_of_a_batch_that_is_none_reads_as_damage(app: Program, field: str, value: str) -> None:
    """As a text does; and what shows the batch can calculate with it."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.hset(steps.key(batch.bid), field, value)

    status = batch.status()

    assert (status.damaged, status.progress) == ([field], 0.0 if field == "total" else status.progress)
    json.dumps(status.as_dict(), allow_nan=False)


def test_what_a_dead_ruby_process_ran_comes_back_beside_what_another_program_wrote(
    app: Program, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot come back stays, and is logged once; nothing is pushed twice."""
    key = "sidekiq_py:batches:ruby:host:1:ab"
    for identity in ("a:1:ab", "host:1:ab", "z:1:ab"):
        app.client.sadd(steps.RUBY_PROCESSES, identity)
    app.client.set("sidekiq_py:batches:ruby:a:1:ab", "a string")
    app.client.set("queue:odd", "a string")
    app.client.hset(key, mapping={"a/0": "low\na", "b/0": "no line", "c/0": "odd\nc", "d/0": "low\nd"})
    app.client.hset("sidekiq_py:batches:ruby:z:1:ab", "e/0", "low\ne")

    runs = RubyRuns(away_seconds=0)
    for _ in range(3):
        runs.run(sync_client.current().pool)

    assert sorted(app.client.lrange("queue:low", 0, -1)) == [b"a", b"d", b"e"]
    assert app.client.hgetall(key) == {b"b/0": b"no line", b"c/0": b"odd\nc"}
    assert len([line for line in caplog.records if "pushed again" in line.getMessage() and "not all" in line.msg]) == 2


def test_a_queue_that_may_not_be_used_keeps_no_other_job_of_a_dead_ruby_process(app: Program, redis_url: str) -> None:
    """Its own job stays, for a worker that may."""
    key = "sidekiq_py:batches:ruby:host:1:ab"
    app.client.sadd(steps.RUBY_PROCESSES, "host:1:ab")
    app.client.hset(key, mapping={"a/0": "billing\na", "b/0": "low\nb"})
    may = ("~sidekiq_py:*", "~queue:low", "~queues", "~host:*")
    app.client.execute_command("ACL", "SETUSER", "clerk", "on", ">pw", "+@all", "resetkeys", *may)
    restricted = Pool(RedisSettings(redis_url.replace("redis://", "redis://clerk:pw@")))
    try:
        runs = RubyRuns(away_seconds=0)
        for _ in range(2):
            runs.run(restricted)
    finally:
        restricted.close()
        app.client.acl_deluser("clerk")

    assert app.client.lrange("queue:low", 0, -1) == [b"b"]
    assert app.client.hgetall(key) == {b"a/0": b"billing\na"}


@pytest.mark.parametrize("value", ["1" + "0" * 17, "1e300", "9" * 5000, "x", "-1"])
def test_a_page_of_rows_ends_though_the_number_of_jobs_was_overwritten(app: Program, value: str) -> None:
    """It does not look for the rows of a billion jobs."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.hset(steps.key(batch.bid), "next", value)

    page = batch.rows.page()

    assert [row.number for row in page.rows] == [0]


@pytest.mark.parametrize("score", [float("inf"), 1e300, -5.0])
def test_a_row_whose_state_was_overwritten_hides_no_other(app: Program, score: float) -> None:
    """It is left out."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        for _ in range(2):
            app.deed.perform_async("ok")
    key = f"{steps.key(batch.bid)}:states"
    app.client.zadd(key, {"0": score})
    app.client.zadd(key, {"no number": 1})
    app.client.hset(f"{steps.key(batch.bid)}:jobs", "1", "[" * 5000)

    assert [row.number for row in batch.rows.page().rows] == [1]
    assert {row.number for row in batch.rows.page("enqueued").rows} <= {1}


@pytest.mark.parametrize("cycle", [1, 2])
def test_a_batch_that_is_its_own_ancestor_ends_as_ever(app: Program, cycle: int) -> None:
    """A batch keeps its parent alive, and its parent's parent; that must not go round in a circle."""
    batches = [sidekiq.Batch(track=True).on("complete", app.callback) for _ in range(cycle)]
    for batch, parent in zip(batches, [*batches[1:], batches[0]], strict=True):
        with batch.jobs():
            for deed in ("ok", "fail"):
                app.deed.perform_async(deed)
        app.client.hset(steps.key(batch.bid), "parent", parent.bid)
        app.client.sadd(f"{steps.key(parent.bid)}:children", batch.bid)

    with sidekiq.embed(concurrency=2, buffer_seconds=0.01):
        for batch in batches:
            batch.wait(60)
        app.wait_until_idle()

    assert len(app.runs) == 2 * cycle
    assert [app.events(batch.bid) for batch in batches] == [["complete"]] * cycle
    looked_at(sync_client.current().pool)
    assert batches[0].invalidate() == cycle
    with batches[0].jobs():
        app.deed.perform_async("ok")
    for batch in batches:
        batch.close()
        batch.delete()
    assert not app.client.keys("sidekiq_py:batch:*")


def test_a_batch_whose_parent_was_overwritten_goes_on(app: Program) -> None:
    """Its members end, others can join, and it calls back."""
    parent, child = sidekiq.Batch(), sidekiq.Batch().on("success", app.callback)
    with parent.jobs(), child.jobs():
        app.deed.perform_async("ok")
    app.client.set(f"sidekiq_py:batch:{parent.bid}", "foreign")

    with child.jobs():
        app.deed.perform_async("ok")
    with sidekiq.embed(concurrency=1):
        eventually(lambda: app.events(child.bid) == ["success"])

    assert app.runs == [("ok",), ("ok",)]


def test_a_callback_that_was_overwritten_stops_neither_the_others_nor_the_parent(
    app: Program, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays as it is, for somebody to look at. If it made the script fail, the parent would wait for ever."""
    parent = sidekiq.Batch().on("success", app.callback)
    with parent.jobs():
        child = sidekiq.Batch().on("complete", app.callback).on("complete", app.callback).on("success", app.callback)
        with child.jobs():
            app.deed.perform_async("ok")
    callbacks = f"{steps.key(child.bid)}:callbacks"
    app.client.hset(callbacks, mapping={"complete:1": "foreign", "late:foreign": "foreign"})
    app.client.hset(f"{steps.key(parent.bid)}:callbacks", "late:foreign", "foreign")

    with sidekiq.embed(concurrency=1):
        parent.wait(10, until="success")
        app.wait_until_idle()
    looked_at(sync_client.current().pool)

    assert sorted(app.events(child.bid)) == ["complete", "success"]
    assert app.events(parent.bid) == ["success"]
    assert app.client.hmget(callbacks, "complete:1", "late:foreign") == [b"foreign", b"foreign"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("name", ["sidekiq_py:batches", "sidekiq_py:batches:running"])
def test_a_list_of_batches_that_was_overwritten_leaves_no_parent_waiting(app: Program, name: str) -> None:
    """A script that failed at the list would end the child and not tell the parent. Batches can be deleted, too."""
    parent = sidekiq.Batch().on("success", app.callback)
    with parent.jobs():
        child = sidekiq.Batch()
        with child.jobs():
            app.deed.perform_async("ok")
    app.client.delete(name)
    app.client.set(name, "foreign")

    with sidekiq.embed(concurrency=1):
        parent.wait(10, until="success")
        app.wait_until_idle()

    assert app.events(parent.bid) == ["success"]
    child.delete()
    assert not app.client.exists(steps.key(child.bid))


def test_a_batch_can_be_invalidated_once_the_list_of_those_is_whole_again(app: Program) -> None:
    """It counted as invalidated after the failed call, but was not in the list that workers read: its jobs ran."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
    app.client.set(steps.INVALID, "foreign")
    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        batch.invalidate()
    assert batch.status().is_valid
    app.client.delete(steps.INVALID)

    assert batch.invalidate() == 1
    assert app.client.zrange(steps.INVALID, 0, -1) == [batch.bid.encode()]


def test_a_slice_of_ruby_s_that_was_not_added_can_be_pushed_again(app: Program) -> None:
    """It would count as pushed, and its jobs would be lost."""
    script = Script.of_text("ruby_push", steps.LIBRARY + (steps.FOLDER / "ruby_push.lua").read_text("utf-8"))
    pool = sync_client.current().pool
    batch = sidekiq.Batch()
    with batch.jobs():
        adds = adding.current()
        assert adds is not None
        place = adds.place(1)
        names = [steps.key(batch.bid), "queues", "queue:default"]
        added = [place.block, place.used, 1, 0, "0", adds.token, "", place.end, place.sender, place.mark, 0]
        words = [*added, 3, "SADD", 2, "default", 3, "LPUSH", 3, "{}"]
        pushes = f"{steps.key(batch.bid)}:pushes:{adds.token}"
        app.client.delete(pushes)
        app.client.set(pushes, "of another program")
        with pytest.raises(RedisReplyError, match="WRONGTYPE"):
            pool.run(lambda link: script.run(link, names, words))
        app.client.delete(pushes)

        pushed = [pool.run(lambda link: script.run(link, names, words)) for _ in range(2)]

    assert pushed == [1, 0]
    assert (app.client.llen("queue:default"), batch.status().total) == (1, 1)
