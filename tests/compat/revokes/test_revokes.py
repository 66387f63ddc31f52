"""Tasks that are revoked before they start."""

import json
import time
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, chain, chord, group, signals
from sidekiq_celery._admission import revokes
from sidekiq_celery.exceptions import ChordError, OperationalError, TaskRevokedError
from sidekiq_celery.worker import state

from sidekiq_py.engine.fetch import reliable
from sidekiq_py.redis_access.extension.revoked import MOST_KEPT
from tests.compat.tasks.worker import TaskWorker
from tests.support.waiting import eventually

WAIT_SECONDS = 60


def declare(app: Celery, ran: list[Any]) -> Any:
    """A task that notes with what it ran."""

    @app.task(name="proj.note")
    def note(what: Any = None) -> Any:
        ran.append(what)
        return what

    return note


def test_a_revoke_needs_no_worker(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """It holds for a worker that starts later; the one behind it runs."""
    ran: list[Any] = []
    note = declare(app, ran)
    bad, good = note.delay("bad"), note.delay("good")

    revokes.revoke(app, bad.id)
    worker.start()

    assert good.get(timeout=WAIT_SECONDS) == "good"
    with pytest.raises(TaskRevokedError):
        bad.get(timeout=WAIT_SECONDS)
    assert ran == ["good"]
    assert bad.state == "REVOKED"


def test_a_task_that_is_to_run_at_most_once_is_revoked(app: Celery, worker: TaskWorker) -> None:
    """It has left Redis when it is met."""
    ran: list[int] = []

    @app.task(name="proj.once", acks_late=False)
    def once() -> None:
        ran.append(1)

    result = once.delay()
    result.revoke()
    worker.start()

    with pytest.raises(TaskRevokedError):
        result.get(timeout=WAIT_SECONDS)
    assert ran == []


def test_programs_read_and_change_what_is_revoked(app: Celery, worker: TaskWorker) -> None:
    """`celery.worker.state.revoked`, in a task as well: a long one looks there for its own id."""
    app.set_current()
    # For the worker's threads.
    app.set_default()

    @app.task(name="proj.asking", bind=True)
    def asking(self: Any, other: str) -> tuple[bool, bool]:
        return self.request.id in state.revoked, other in state.revoked

    app.control.revoke("gone")
    state.revoked.add("added")
    state.revoked.update(["one"], ["two"])
    state.revoked.discard("two")
    worker.start()

    assert asking.delay("gone").get(timeout=WAIT_SECONDS) == [False, True]
    assert set(state.revoked) == {"gone", "added", "one"}
    assert len(state.revoked) == 3
    assert state.revoked & {"gone", "two"} == {"gone"}
    with pytest.raises(TaskRevokedError):
        asking.apply_async(("",), task_id="added").get(timeout=WAIT_SECONDS)


def test_a_running_worker_heeds_it(app: Celery, worker: TaskWorker) -> None:
    """Whether it fetches the task with others, or waits for it."""
    ran: list[Any] = []
    note = declare(app, ran)
    worker.start()
    assert note.delay("first").get(timeout=WAIT_SECONDS) == "first"

    revokes.revoke(app, ["a", "b"])
    one = note.apply_async(("a",), task_id="a")
    with pytest.raises(TaskRevokedError):
        one.get(timeout=WAIT_SECONDS)
    results = [note.apply_async((name,), task_id=name) for name in ("c", "b", "d")]

    assert results[2].get(timeout=WAIT_SECONDS) == "d"
    with pytest.raises(TaskRevokedError):
        results[1].get(timeout=WAIT_SECONDS)
    assert sorted(ran) == ["c", "d", "first"]


def test_an_id_among_the_arguments_revokes_nothing(app: Celery, worker: TaskWorker) -> None:
    """Only the job's own counts."""
    ran: list[Any] = []
    note = declare(app, ran)
    revokes.revoke(app, "other")

    result = note.delay({"jid": "other"})
    worker.start()

    assert result.get(timeout=WAIT_SECONDS) == {"jid": "other"}


def test_a_refused_question_revokes_nothing(
    app: Celery, redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    As by a Redis that is busy with a script when a task that has waited in the worker is about to start. If the task
    were discarded, its chord would wait for ever.
    """
    monkeypatch.setattr(reliable, "_FRESH_SECONDS", -1)
    redis_client.execute_command("ACL", "SETUSER", "few", "on", ">x", "~*", "&*", "+@all", "-zscore")
    limited_url = redis_url.replace("://", "://few:x@")
    app.conf.broker_url = limited_url
    worker = TaskWorker(app, limited_url)
    note = declare(app, [])
    try:
        worker.start()
        assert note.delay("kept").get(timeout=WAIT_SECONDS) == "kept"
    finally:
        worker.stop()
        redis_client.execute_command("ACL", "DELUSER", "few")


def test_the_signal_and_the_end_of_a_revoked_task(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """It is told as in Celery, the job is gone, and no failure is counted."""
    calls: list[Any] = []

    def listen(sender: Any, request: Any, terminated: bool, signum: Any, expired: bool, **_: Any) -> None:
        calls.append((sender.name, request.id, terminated, signum, expired))

    result = declare(app, []).delay()
    revokes.revoke(app, result.id)
    signals.task_revoked.connect(listen)
    try:
        worker.start()
        # In the process that runs it, the state is seen before the signal is sent.
        eventually(lambda: calls)
        eventually(lambda: result.state == "REVOKED")
    finally:
        signals.task_revoked.disconnect(listen)

    assert calls == [("proj.note", result.id, False, None, False)]
    assert (redis_client.zcard("dead"), redis_client.get("stat:failed")) == (0, None)


def test_a_revoke_is_stored_where_only_errors_are(app: Celery, worker: TaskWorker) -> None:
    """`store_errors_even_if_ignored` counts for revokes, too, as in Celery."""

    @app.task(name="proj.only_errors", ignore_result=True, store_errors_even_if_ignored=True)
    def only_errors() -> None:
        """Does nothing."""

    result = only_errors.delay()
    revokes.revoke(app, result.id)
    worker.start()

    eventually(lambda: app.AsyncResult(result.id).state == "REVOKED")


def test_a_scheduled_task_is_called_up(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """Nobody's page shows it until tomorrow; others stay."""
    ran: list[Any] = []
    note = declare(app, ran)
    bad, good = (note.apply_async((name,), countdown=3600) for name in ("bad", "good"))
    worker.start()

    revokes.revoke(app, bad.id)

    with pytest.raises(TaskRevokedError):
        bad.get(timeout=WAIT_SECONDS)
    [left] = redis_client.zrange("schedule", 0, -1)
    assert json.loads(left)["jid"] == good.id
    assert ran == []


def test_a_job_of_ruby_stays_where_it_is(app: Celery, redis_client: redis.Redis) -> None:
    """Called up it would run, as Ruby knows no revokes."""
    redis_client.zadd("schedule", {'{"class":"HardWorker","queue":"default","jid":"x","args":[]}': time.time() + 99})

    revokes.revoke(app, "x")

    assert redis_client.zcard("schedule") == 1
    assert redis_client.keys("queue:*") == []


def test_a_task_that_waits_for_its_retry_does_not_run_again(app: Celery, worker: TaskWorker) -> None:
    """It has the same id."""
    ran: list[int] = []

    @app.task(name="proj.again", bind=True)
    def again(self: Any) -> None:
        ran.append(self.request.retries)
        raise self.retry(countdown=3600)

    result = again.delay()
    worker.start()
    eventually(lambda: result.state == "RETRY")

    revokes.revoke(app, result.id)

    with pytest.raises(TaskRevokedError):
        result.get(timeout=WAIT_SECONDS)
    assert ran == [0]


def test_a_task_that_is_revoked_before_its_retry_is_written_ends_at_once(app: Celery, worker: TaskWorker) -> None:
    """As in Celery, where the worker that receives the next try sees it."""

    @app.task(name="proj.again", bind=True)
    def again(self: Any) -> None:
        revokes.revoke(app, self.request.id)
        raise self.retry(countdown=3600)

    result = again.delay()
    worker.start()

    with pytest.raises(TaskRevokedError):
        result.get(timeout=WAIT_SECONDS)


def test_chords_and_chains_hear_of_it(app: Celery, worker: TaskWorker) -> None:
    """Who waits for a revoked part or step has an end, too."""
    note = declare(app, [])
    body = chord([note.s(1), note.s(2).set(task_id="part")], note.s()).apply_async()
    last = chain(note.s(1).set(task_id="step"), note.s()).apply_async()

    revokes.revoke(app, ["part", "step"])
    worker.start()

    with pytest.raises(ChordError):
        body.get(timeout=WAIT_SECONDS, follow_parents=False)
    with pytest.raises(TaskRevokedError):
        last.get(timeout=WAIT_SECONDS)


def test_stamps_revoke_all_that_bear_them(app: Celery, worker: TaskWorker, caplog: pytest.LogCaptureFixture) -> None:
    """Those that run later, too; the others run. The log says which stamp it was, as Celery's does."""
    caplog.set_level("INFO", "celery.app.trace")
    ran: list[Any] = []
    note = declare(app, ran)
    worker.start()
    assert note.delay("first").get(timeout=WAIT_SECONDS) == "first"

    revokes.revoke_stamped(app, {"customer": ["4", 5], "odd": "x"})
    results = {
        name: note.apply_async((name,), stamped_headers=["customer"], customer=value)
        for name, value in (("four", "4"), ("five", [9, 5]), ("six", "6"))
    }

    assert results["six"].get(timeout=WAIT_SECONDS) == "six"
    for name in ("four", "five"):
        with pytest.raises(TaskRevokedError):
            results[name].get(timeout=WAIT_SECONDS)
    assert ran == ["first", "six"]
    assert {record.message.partition(" (")[2] for record in caplog.records if "Discarding" in record.message} == {
        "revoked by header: {'customer': '4'})",
        "revoked by header: {'customer': 5})",
    }


def test_a_record_lasts_until_its_task_was_met(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """At least a week, and beyond the last job that waits; some hours when it has done its part."""
    note = declare(app, [])
    now = time.time()
    month = 30 * 24 * 3600
    note.apply_async(countdown=month)
    result = note.delay()

    revokes.revoke(app, result.id)
    before = redis_client.zscore("sidekiq_py:revoked", result.id)
    worker.start()
    eventually(lambda: result.state == "REVOKED")

    assert before is not None
    assert before >= now + month
    assert redis_client.ttl("sidekiq_py:revoked") >= month - 60
    assert revokes.revoked_ids(app) == [result.id]
    after = redis_client.zscore("sidekiq_py:revoked", result.id)
    assert after is not None
    assert after < time.time() + revokes.MET_SECONDS + 60


def test_a_record_that_has_run_out_revokes_nothing(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """Also before it is swept away."""
    redis_client.zadd("sidekiq_py:revoked", {"late": time.time() - 1})
    ran: list[Any] = []

    result = declare(app, ran).apply_async(("late",), task_id="late")
    worker.start()

    assert result.get(timeout=WAIT_SECONDS) == "late"
    assert revokes.revoked_ids(app) == []


@pytest.mark.parametrize("kept_seconds", [60, 30 * 24 * 3600])
def test_no_more_than_fifty_thousand_are_kept(
    app: Celery, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, kept_seconds: float
) -> None:
    """The oldest leave, never those that are revoked now, however long the others were to be kept; it is logged."""
    until = time.time() + kept_seconds
    redis_client.zadd("sidekiq_py:revoked", {f"old{number:06}": until + number for number in range(MOST_KEPT)})

    revokes.revoke(app, [f"new{number}" for number in range(1500)])

    assert redis_client.zcard("sidekiq_py:revoked") == MOST_KEPT
    kept = {member.decode() for member in redis_client.zrange("sidekiq_py:revoked", 0, -1)}
    assert {f"new{number}" for number in range(1500)} <= kept
    assert {f"old{number:06}" for number in range(1500, MOST_KEPT)} <= kept
    assert sum(int(line.getMessage().split()[0]) for line in caplog.records if "dropped" in line.getMessage()) == 1500
    assert len(revokes.revoked_ids(app)) == revokes.MOST_LISTED
    assert "new1" in revokes.revoked_ids(app)


def test_no_more_stamps_than_that_are_kept(app: Celery, redis_client: redis.Redis) -> None:
    """Each worker has a copy of them."""
    until = time.time() + 60
    redis_client.zadd(revokes.STAMPS_KEY, {f"old{number}": until + number for number in range(MOST_KEPT)})

    revokes.revoke_stamped(app, {"customer": ["4", "5"]}, waits=False)

    assert redis_client.zcard(revokes.STAMPS_KEY) == MOST_KEPT
    assert redis_client.zscore(revokes.STAMPS_KEY, '["customer", "5"]') is not None
    assert redis_client.zscore(revokes.STAMPS_KEY, "old1") is None


def test_ids_that_a_payload_spells_differently_are_refused(app: Celery) -> None:
    """Rather than run in spite of it."""
    with pytest.raises(ValueError, match="give tasks that are to be revoked ids without them"):
        revokes.revoke(app, 'a"b')


def test_a_revoke_that_does_not_reach_redis_says_so() -> None:
    """As Celery's."""
    lost = Celery("lost", broker="redis://127.0.0.1:1/0", set_as_current=False, fixups=[])

    with pytest.raises(OperationalError):
        revokes.revoke(lost, "a")


def test_nothing_revoked_runs_among_thousands(app: Celery, worker: TaskWorker, redis_client: redis.Redis) -> None:
    """Also of those that the worker has fetched ahead: who had not started when the revoke returned never does."""
    started: dict[str, float] = {}

    @app.task(name="proj.mark", bind=True, ignore_result=True)
    def mark(self: Any) -> None:
        started[self.request.id] = time.monotonic()

    ids = [mark.apply_async(task_id=f"t{number}").id for number in range(4000)]
    worker.start()
    revoked_at: dict[str, float] = {}
    for task_id in ids[500::200]:
        revokes.revoke(app, task_id)
        revoked_at[task_id] = time.monotonic()

    eventually(lambda: int(redis_client.get("stat:processed") or 0) == len(ids))
    assert [one for one, moment in revoked_at.items() if started.get(one, 0.0) > moment] == []
    assert len(started) >= len(ids) - len(revoked_at)


def test_handles_revoke_without_a_worker(app: Celery, worker: TaskWorker) -> None:
    """A result's, a group's, and the app's; nobody has to reply."""
    ran: list[Any] = []
    note = declare(app, ran)
    one, other = note.delay(), note.delay()
    members = group(note.s(number) for number in range(3)).apply_async()

    one.revoke()
    assert not other.revoke(wait=True, timeout=0.1)
    members.revoke()
    worker.start()

    for result in (one, other, *members):
        with pytest.raises(TaskRevokedError):
            result.get(timeout=WAIT_SECONDS)
    assert ran == []


def test_handles_revoke_stamps_without_a_worker(app: Celery, worker: TaskWorker) -> None:
    """Tasks that are sent later, too."""
    note = declare(app, [])
    app.AsyncResult("any").revoke_by_stamped_headers({"order": "7"})

    result = note.apply_async(stamped_headers=["order"], order="7")
    worker.start()

    with pytest.raises(TaskRevokedError):
        result.get(timeout=WAIT_SECONDS)
