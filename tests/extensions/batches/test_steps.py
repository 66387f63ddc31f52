"""The steps that change a batch, one by one: what each counts, and what it leaves alone."""

import json
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.client import sync_client
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches import adding, steps
from sidekiq_py.extensions.batches.adding import Adding, Place
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.extensions.batches.errors import BatchDoneError
from sidekiq_py.redis_access.job_path import settle_script
from tests.extensions.batches.conftest import Program

DAY = 24 * 3600


def batch_of(app: Program, count: int, **options: Any) -> Batch:
    """A batch of so many jobs that nobody runs."""
    batch = sidekiq.Batch(**options)
    with batch.jobs():
        app.deed.perform_bulk([["ok"] for _ in range(count)])
    return batch


def step(name: str, bid: str, *words: Any) -> Any:
    """Run one step."""
    return steps.call(sync_client.current().pool, name, bid, *words)


def ends(batch: Batch, state: str, number: int) -> None:
    """A member's run ends so."""
    step("ends", batch.bid, state, number, f"jid-{number}", "" if state == "succeeded" else "{}")


def sender_of(app: Program, batch: Batch) -> str:
    """The only sender of its jobs, as it is named in the last block that it has reserved."""
    [name] = [field for field in app.client.hkeys(steps.blocks_key(batch.bid)) if b"=" in field]
    return str(name.decode().partition("=")[2])


def parent_and_child(app: Program) -> tuple[Batch, Batch]:
    """A batch of one job and of one child, which has a job and a callback for `success`."""
    parent, child = sidekiq.Batch(), sidekiq.Batch()
    child.on("success", app.callback)
    with parent.jobs():
        app.deed.perform_async("ok")
        with child.jobs():
            app.deed.perform_async("ok")
    return parent, child


def test_a_childs_callback_that_has_run_completes_no_parent_whose_jobs_wait(app: Program) -> None:
    """It is one of the parent's members, but holds back nothing but `success`."""
    parent, child = parent_and_child(app)
    ends(child, "succeeded", 0)
    [callback] = [job for job in app.waiting() if job["class"] == "Callback"]

    ends(parent, "succeeded", callback["sidekiq_py_batch"][1])
    assert not parent.status().complete
    ends(parent, "succeeded", 0)

    assert parent.status().success


def test_a_success_removes_the_members_last_error(app: Program) -> None:
    """Nothing is kept of a failure that a retry has made good."""
    batch = batch_of(app, 1)
    ends(batch, "failed", 0)
    assert app.client.exists(f"{steps.key(batch.bid)}:errors")

    ends(batch, "succeeded", 0)

    assert not app.client.exists(f"{steps.key(batch.bid)}:errors")


def test_a_dead_job_that_is_deleted_was_a_death_all_the_same(app: Program) -> None:
    """Whoever tidies the dead set changes nothing about what the batch says."""
    batch = batch_of(app, 2)

    ends(batch, "dead", 0)
    ends(batch, "deleted", 0)

    assert batch.status().dead == 1


def test_a_run_that_is_cut_off_after_its_success_elsewhere_changes_no_row(app: Program) -> None:
    """The job was recovered from a frozen process, which wakes up and stops."""
    batch = batch_of(app, 1, track=True)

    ends(batch, "succeeded", 0)
    ends(batch, "attempt", 0)

    assert {state: count for state, count in batch.rows.counts().items() if count} == {"finished": 1}


def test_a_sender_leaves_one_mark_however_often_it_pushes(app: Program) -> None:
    """A batch may be filled for days, with one block of numbers after another."""
    batch = sidekiq.Batch()
    with batch.jobs():
        for _ in range(60):
            app.deed.perform_async("ok")

    fields = app.client.hkeys(steps.blocks_key(batch.bid))
    assert [field.partition(b":")[0] for field in fields if b"+" in field] == [b"48+12"]
    assert sorted(field.partition(b"=")[0] for field in fields if b"=" in field) == [b"0", b"16", b"48"]


def test_a_bulk_push_leaves_two_marks_however_often_it_is_repeated(app: Program) -> None:
    """Its last slice is prepared while the one before it waits for its reply, and so may still need its mark."""
    batch = sidekiq.Batch()
    with batch.jobs():
        for _ in range(5):
            app.deed.perform_bulk([["ok"]] * 40, batch_size=10)

    assert len([field for field in app.client.hkeys(steps.blocks_key(batch.bid)) if b"+" in field]) == 2


def test_a_batch_outlives_the_latest_of_its_scheduled_jobs(app: Program) -> None:
    """Though one that is due sooner was pushed after it."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_in(100 * DAY, "ok")
        app.deed.perform_in(50 * DAY, "ok")

    assert app.client.ttl(steps.key(batch.bid)) > 100 * DAY


def test_a_job_that_is_a_member_already_joins_no_other_batch(app: Program) -> None:
    """It would have one key twice, and one of the batches would wait for it for ever."""
    batch = batch_of(app, 1)
    job = json.dumps({"class": "Deed", "args": [], "sidekiq_py_batch": ["another", 0]}, separators=(",", ":"))

    step("join", batch.bid, "queue", "steps", job)

    assert app.client.lrange("queue:steps", 0, -1) == [job.encode()]
    assert batch.status().total == 1


def test_a_batch_that_has_succeeded_takes_no_child(app: Program) -> None:
    """Its callbacks have gone out, and would not come again."""
    parent = batch_of(app, 1)
    ends(parent, "succeeded", 0)

    with pytest.raises(BatchDoneError):
        step("open", "child", "token", "-", "somebody", "1", parent.bid, 0)

    assert not app.client.exists(steps.key("child"))


def test_a_dead_member_is_never_lost_as_well(app: Program) -> None:
    """It may have died between the audit's look and its verdict."""
    batch = batch_of(app, 1)
    ends(batch, "dead", 0)
    changed_at = app.client.hget(steps.key(batch.bid), "changed_at")

    assert step("lose", batch.bid, changed_at, 0) == 0

    assert batch.status().dead == 1


def test_a_lost_member_adds_no_more(app: Program) -> None:
    """What it held open when it vanished would else stay open."""
    batch = batch_of(app, 2)
    for number in (0, 1):
        step("open", batch.bid, f"jid-{number}", number, "Deed", "0", "", 0)
    changed_at = app.client.hget(steps.key(batch.bid), "changed_at")

    assert step("lose", batch.bid, changed_at, 0) == 1

    assert [opener.token for opener in batch.status().openers] == ["jid-1"]


def test_a_look_at_children_that_are_all_there_is_no_change(app: Program) -> None:
    """The audit waits until a batch has not changed for long: its own looks must not put that off for ever."""
    parent, _ = parent_and_child(app)
    app.client.hset(steps.key(parent.bid), "changed_at", 1)

    assert step("count_children", parent.bid) == 0

    assert app.client.hget(steps.key(parent.bid), "changed_at") == b"1"


def test_a_member_that_has_failed_is_removed_from_what_has_not_run_no_more(app: Program) -> None:
    """`complete` still waits for the other one."""
    batch = batch_of(app, 2)
    ends(batch, "failed", 0)

    assert step("remove", batch.bid, 0) == 1
    assert not batch.status().complete
    ends(batch, "succeeded", 1)

    assert batch.status().success


def test_a_child_that_has_expired_is_not_invalidated(app: Program) -> None:
    """Its hash would come into being again, without anything that a batch has."""
    parent, child = parent_and_child(app)
    app.client.delete(steps.key(child.bid))

    assert parent.invalidate() == 1

    assert not app.client.exists(steps.key(child.bid))


def test_a_batch_of_many_children_is_invalidated_in_many_short_scripts(app: Program) -> None:
    """Redis does nothing else while a script runs: for 30,000 children, one script took more than a second."""
    parent = sidekiq.Batch()
    with parent.jobs():
        app.deed.perform_async("ok")
    for number in range(1000):
        bid = f"child{number}"
        app.client.hset(steps.key(bid), mapping={"next": 0, "parent": parent.bid})
        app.client.sadd(f"{steps.key(parent.bid)}:children", bid)
    app.client.config_resetstat()

    assert parent.invalidate() == 1001

    scripts = app.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert 5 <= scripts <= 20
    assert app.client.zcard(steps.INVALID) == 1001
    assert parent.invalidate() == 0


def test_an_invalidation_that_was_cut_off_is_completed_by_the_next(app: Program) -> None:
    """Its process may be killed after any of the scripts; the grandchildren of a batch are concerned, too."""
    parent, child, grandchild = sidekiq.Batch(), sidekiq.Batch(), sidekiq.Batch()
    with parent.jobs(), child.jobs(), grandchild.jobs():
        app.deed.perform_async("ok")
    step("invalidate", parent.bid, "0")
    assert [one.is_valid for one in (parent, child, grandchild)] == [False, False, True]

    assert parent.invalidate() == 1

    assert not grandchild.is_valid


def test_a_batch_that_is_its_own_ancestor_is_invalidated_once(app: Program) -> None:
    """Another program has written to its children."""
    parent, child = parent_and_child(app)
    app.client.sadd(f"{steps.key(child.bid)}:children", parent.bid)

    assert parent.invalidate() == 2


def test_a_child_that_is_deleted_was_waited_for_once(app: Program) -> None:
    """One that had completed, with a job that failed, held back `success` alone: another child is still waited for."""
    parent, first, second = sidekiq.Batch(), sidekiq.Batch(), sidekiq.Batch()
    with parent.jobs():
        for child in (first, second):
            with child.jobs():
                app.deed.perform_async("ok")
    ends(first, "failed", 0)

    step("delete", first.bid)
    assert not parent.status().complete
    ends(second, "succeeded", 0)

    assert parent.status().success


def test_deleting_the_last_child_ends_its_parent(app: Program) -> None:
    """There is nothing else to wait for, and nothing else that would look."""
    parent, child = parent_and_child(app)
    ends(parent, "succeeded", 0)

    step("delete", child.bid)

    assert parent.status().success


def test_a_childs_end_is_a_change_of_its_parent(app: Program) -> None:
    """The audit leaves a batch alone that has just changed: what was pushed meanwhile may be on its way."""
    parent, child = parent_and_child(app)
    app.client.hset(steps.key(parent.bid), "changed_at", 1)

    ends(child, "succeeded", 0)

    assert int(app.client.hget(steps.key(parent.bid), "changed_at")) > 1


def test_a_member_that_runs_a_second_time_may_add_to_a_batch_that_has_succeeded(app: Program) -> None:
    """Its first run, in a process that froze meanwhile, has ended the batch: that is no error of the second one."""
    batch = batch_of(app, 1)
    ends(batch, "succeeded", 0)

    step("open", batch.bid, "jid-0", 0, "Deed", "0", "", 0)

    assert [opener.number for opener in batch.status().openers] == [0]


def test_no_transaction_fills_a_batch_in_its_last_second(app: Program) -> None:
    """The key that permits it would end with the batch or after it, and bring a batch back that is gone."""
    batch = batch_of(app, 1)
    step("open", batch.bid, "token", "-", "somebody", "0", "", 0)
    app.client.hset(steps.key(batch.bid), "expires_in", 1)
    app.client.persist(steps.key(batch.bid))

    assert step("may_push", batch.bid, "default", "0", "token", 0, 1, sender_of(app, batch)) == 0

    assert not app.client.exists(steps.pushes_key(batch.bid, "token"))


def test_a_job_that_a_dying_ruby_process_returned_is_not_pushed_again(app: Program) -> None:
    """It was killed before it could take away the note that it ran the job."""
    app.client.sadd(steps.RUBY_PROCESSES, "host:1:ab")
    app.client.hset(steps.ruby_runs_key("host:1:ab"), mapping={"a/0": "low\na", "b/0": "low\nb"})
    app.client.rpush("queue:low", "a")

    assert steps.recover_ruby(sync_client.current().pool, "host:1:ab") == (1, 0)

    assert app.client.lrange("queue:low", 0, -1) == [b"a", b"b"]


def test_what_a_dead_ruby_process_ran_comes_back_once_its_queue_is_whole_again(app: Program) -> None:
    """Until then the process stays on the list of those that are looked at."""
    pool = sync_client.current().pool
    app.client.sadd(steps.RUBY_PROCESSES, "host:1:ab")
    app.client.hset(steps.ruby_runs_key("host:1:ab"), "a/0", "low\na")
    app.client.set("queue:low", "text")

    assert steps.recover_ruby(pool, "host:1:ab") == (0, 1)
    assert app.client.smembers(steps.RUBY_PROCESSES) == {b"host:1:ab"}
    app.client.delete("queue:low")
    assert steps.recover_ruby(pool, "host:1:ab") == (1, 0)

    assert app.client.lrange("queue:low", 0, -1) == [b"a"]
    assert not app.client.exists(steps.RUBY_PROCESSES)


@pytest.mark.parametrize("name", ["working", "postponed", "said", "enqueued_again"])
def test_what_is_noted_about_a_row_may_come_after_its_batch_is_gone(app: Program, name: str) -> None:
    """A job runs on if its batch was deleted, and what it says of itself is no error."""
    assert step(name, "gone", 0, "-", "-") == 0

    assert app.client.keys("sidekiq_py:batch:*") == []


def test_a_full_redis_permits_no_transactions(app: Program) -> None:
    """They would be refused one by one; other steps may still write, so that members can end."""
    batch = batch_of(app, 1)
    step("open", batch.bid, "token", "-", "somebody", "0", "", 0)
    app.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisReplyError, match="OOM"):
            step("may_push", batch.bid, "default", "0", "token", 0, 1, sender_of(app, batch))
        ends(batch, "failed", 0)
    finally:
        app.client.config_set("maxmemory", 0)

    assert batch.status().failures == 1
    assert not app.client.exists(steps.pushes_key(batch.bid, "token"))


def added(adds: Adding, place: Place) -> tuple[Any, ...]:
    """The step that adds one job, as a command of the script that pushes."""
    words = (place.block, place.used, 1, 0, "0", adds.token, "", place.end, place.sender)
    return steps.command("add", adds.bid, *words)


def test_what_a_step_has_read_is_read_again_once_another_has_written(app: Program) -> None:
    """Both look before either writes, so the second would write the counters as if the first had added nothing."""
    batch = sidekiq.Batch()
    with batch.jobs():
        adds = adding.current()
        assert adds is not None
        both = [added(adds, adds.place(1)) for _ in range(2)]
        sync_client.current().pool.run(lambda link: settle_script.write(link, both, pushes=True))

    status = batch.status()
    assert (status.total, status.pending) == (2, 2)
    assert app.client.hget(steps.blocks_key(batch.bid), "0") == b"2"


def test_a_counter_of_another_program_is_left_alone_by_a_push(app: Program) -> None:
    """Its text stays for the doctor to show, and the other counters go on."""
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
        for text in ("not ours", "1e3", "0x10", "inf", " 1"):
            app.client.hset(steps.key(batch.bid), "pending", text)
            app.deed.perform_async("ok")
            assert app.client.hget(steps.key(batch.bid), "pending") == text.encode()

    assert app.client.hmget(steps.key(batch.bid), "total", "untried") == [b"6", b"6"]


def test_a_push_of_one_job_sends_few_commands_in_redis(app: Program) -> None:
    """Each takes Redis as long as much of a plain push. With a look at every key it was 37, and took twice as long."""
    with sidekiq.Batch().jobs():
        app.deed.perform_async("ok")
        app.client.config_resetstat()
        app.deed.perform_async("ok")
        stats = app.client.info("commandstats")

    calls = {name: stat["calls"] for name, stat in stats.items() if name not in ("cmdstat_evalsha", "cmdstat_info")}
    calls.pop("cmdstat_config|resetstat", None)
    assert sum(calls.values()) <= 17, calls
