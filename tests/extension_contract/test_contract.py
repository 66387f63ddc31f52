"""What the contract promises an extension, hook by hook, against real Redis."""

import asyncio
import contextlib
import gc
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.api import BulkResult, DeadSet, Queue, RetrySet, ScheduledSet
from sidekiq_py.client.async_client import AsyncClient
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.run.attempt import Surroundings
from sidekiq_py.errors import ConfigError, Shutdown
from sidekiq_py.extension import (
    DeadLetter,
    Drop,
    Effect,
    Extension,
    FetchedJob,
    JobEnd,
    Maintenance,
    Postpone,
    PushSlice,
)
from sidekiq_py.middleware.chain import ServerMiddleware
from sidekiq_py.outcome import Outcome
from sidekiq_py.registry import Payload, registry
from sidekiq_py.testing import fake
from sidekiq_py.wire.dialect import Dialect
from tests.extension_contract.conftest import BLIND, COUNT, Tally, TallyClosed, Worker
from tests.support.waiting import eventually

# What a hook may raise by mistake; `finally` and `except BaseException` are all that see some of them.
ERRORS = [kind("no") for kind in (ValueError, SystemExit, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)]
LATER = float(int(now_seconds()) + 86_400)


def counts(redis_client: redis.Redis) -> dict[str, int]:
    """What the extension has counted, without the rounds of its maintenance."""
    found = {name.decode(): int(number) for name, number in redis_client.hgetall("tally").items()}  # type: ignore[union-attr]
    found.pop("rounds", None)
    return found


class TestPush:
    def test_a_pushed_job_bears_the_key_behind_all_others(self, redis_client, redis_url, tally: Tally):
        """The bytes are those of Sidekiq, and the extension's key is the last."""
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})

        raw = redis_client.lindex("queue:default", 0)
        assert raw.endswith(b',"tally":1}')
        assert list(json.loads(raw))[-1] == "tally"
        assert counts(redis_client) == {"pushed": 1}

    def test_a_bulk_push_counts_its_slices(self, redis_client, redis_url, tally: Tally):
        """Each slice is one script; those that the extension stops have no jid in the answer."""
        jids = Client(redis_url, sidekiq_version="7.3.2").push_bulk(
            {"class": "run", "args": [[n] for n in range(5)]}, batch_size=2
        )

        assert len({*jids}) == 5
        assert redis_client.llen("queue:default") == 5
        assert counts(redis_client) == {"pushed": 5}

    def test_a_stopped_job_is_not_pushed_and_has_no_jid(self, redis_client, redis_url, tally: Tally):
        """`stop` lets the others of the push go on."""
        tally.stops = {"b" * 24}
        client = Client(redis_url, sidekiq_version="7.3.2")

        assert client.push({"class": "run", "args": [1], "jid": "b" * 24}) is None
        assert redis_client.llen("queue:default") == 0

    def test_a_push_of_which_no_job_is_left_writes_nothing(self, redis_client, redis_url, tally: Tally):
        """The commands of extensions belong to the jobs: they would count a job that nobody has enqueued."""
        tally.stops = {"b" * 24}

        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1], "jid": "b" * 24})

        assert counts(redis_client) == {}

    def test_a_scheduled_push_passes_once(self, redis_client, redis_url, tally: Tally, worker: Worker):
        """The move from `schedule` to the queue is no push."""
        client = Client(redis_url, sidekiq_version="7.3.2")
        client.push({"class": "run", "args": [1], "at": 1_700_000_000.0 + 10**9})
        [member] = redis_client.zrange("schedule", 0, -1)
        redis_client.zadd("schedule", {member: 1.0})
        worker.start()

        eventually(lambda: worker.ran == [1])
        assert counts(redis_client)["pushed"] == 1

    def test_a_refusal_by_a_verb_is_what_the_extension_says(self, redis_client, redis_url, tally: Tally):
        """Nothing is written, and the caller is raised the extension's own error."""
        redis_client.hset("tally", "closed", 1)

        with pytest.raises(TallyClosed, match="takes no more jobs"):
            Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})

        assert redis_client.exists("queue:default", "queues") == 0

    def test_an_error_in_the_hook_reaches_the_caller(self, redis_client, redis_url, tally: Tally, monkeypatch):
        """Nothing is pushed."""
        monkeypatch.setattr(tally, "push", lambda jobs: 1 / 0)

        with pytest.raises(ZeroDivisionError):
            Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})

        assert redis_client.keys("*") == []

    async def _apush(self, redis_url: str) -> list[Any]:
        async with AsyncClient(redis_url, sidekiq_version="7.3.2") as client:
            one = await client.push({"class": "run", "args": [0]})
            return [one, *await client.push_bulk({"class": "run", "args": [[1], [2]]})]

    def test_awaited_pushes_pass_the_hook_too(self, redis_client, redis_url, tally: Tally):
        """Single and bulk."""
        import asyncio

        jids = asyncio.run(self._apush(redis_url))

        assert len({*jids}) == 3
        assert counts(redis_client) == {"pushed": 3}
        assert all(b'"tally"' in raw for raw in redis_client.lrange("queue:default", 0, -1))

    def test_the_fake_mode_sees_what_the_hook_leaves(self, tally: Tally):
        """No Redis is asked."""
        with fake() as enqueued:
            Client().push({"class": "run", "args": [1]})

        [job] = enqueued.jobs("run")
        assert job.payload["tally"] == 1

    def test_a_push_that_is_not_wanted_goes_the_plain_way(self, redis_client, redis_url, tally: Tally):
        """Its bytes have no key."""
        tally.is_on = False

        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})

        assert b"tally" not in redis_client.lindex("queue:default", 0)

    def test_pushes_of_jobs_without_its_options_pass_it_by(self, redis_client, redis_url, tally: Tally, monkeypatch):
        """One by one, awaited or many at once: they are plain commands, and no script."""
        import asyncio

        monkeypatch.setattr(Tally, "push_options", ("tallied",))
        sidekiq.use(tally)
        redis_client.config_resetstat()

        client = Client(redis_url, sidekiq_version="7.3.2")
        client.push({"class": "run", "args": [1]})
        client.push_bulk({"class": "run", "args": [[2], [3]]})
        asyncio.run(self._apush(redis_url))

        assert not {"cmdstat_eval", "cmdstat_evalsha"} & redis_client.info("commandstats").keys()
        assert (tally.pushed, redis_client.llen("queue:default")) == (0, 6)

    def test_pushes_of_jobs_with_one_of_its_options_do_not(self, redis_client, redis_url, tally: Tally, monkeypatch):
        """The declared job says so."""
        monkeypatch.setattr(Tally, "push_options", ("tallied",))
        sidekiq.use(tally)
        declared = sidekiq.job(name="Tallied", custom={"tallied": True})(lambda number: None)

        try:
            Client(redis_url, sidekiq_version="7.3.2").push({"class": declared, "args": [1]})
        finally:
            registry.remove("Tallied")

        assert tally.pushed == 1

    def test_an_extension_that_does_not_want_a_push_is_not_asked_beside_one_that_does(
        self, redis_client, redis_url, tally: Tally
    ):
        """Its hook may rely on what it was asked before."""

        class Idle(Extension):
            name = "idle"
            payload_keys: ClassVar[Mapping[str, str]] = {"idle": "nothing"}

            def wants_pushes(self) -> bool:
                return False

            def push(self, jobs: PushSlice) -> None:
                raise AssertionError("this push is none of its own")

        program.use(Idle())

        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})

        assert counts(redis_client) == {"pushed": 1}

    def test_a_push_that_waits_for_a_commit_is_announced_to_all_that_want_pushes(
        self, redis_client, redis_url, tally: Tally, monkeypatch
    ):
        """Whatever options their jobs have: those are looked at when the push is made."""
        around = contextlib.ExitStack()
        around.callback(redis_client.set, "made", 1)
        monkeypatch.setattr(Tally, "push_options", ("tallied",))
        monkeypatch.setattr(tally, "deferred", lambda: around, raising=False)
        sidekiq.use(tally)
        waiting: list[Callable[[], None]] = []
        program.push_after_commit(lambda push: waiting.append(push) is None)

        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        assert not redis_client.exists("made")
        waiting.pop()()

        assert redis_client.exists("made")
        assert redis_client.llen("queue:default") == 1

    def test_an_extension_may_set_its_mark_twice(self, redis_client, redis_url, tally: Tally, monkeypatch):
        """Only another mark is another extension's."""

        def mark(jobs: PushSlice) -> None:
            for _ in range(2):
                jobs.push_once("marks", "one")

        monkeypatch.setattr(tally, "push", mark)

        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})

        assert redis_client.hkeys("marks") == [b"one"]


class TestEnd:
    @pytest.mark.parametrize("kind", ["run", "arun"])
    def test_a_success_is_written_with_the_end_of_the_job(
        self, kind, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """In threads and on the event loop."""
        Client(redis_url, sidekiq_version="7.3.2").push({"class": kind, "args": [7]})
        worker.start()

        eventually(lambda: counts(redis_client) == {"pushed": 1, "success": 1})
        assert worker.ran == [7]
        assert [end.kind for end in tally.ends] == ["success"]
        assert len(tally.wrapped) == 1

    def test_each_job_is_wrapped_once_and_those_without_the_key_never(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """The chain of one job leaves nothing behind for the next ones."""
        client = Client(redis_url, sidekiq_version="7.3.2")
        jids = [client.push({"class": "run", "args": [number]}) for number in range(3)]
        tally.is_on = False
        client.push({"class": "run", "args": [3]})
        worker.start()

        eventually(lambda: len(worker.ran) == 4)
        assert sorted(tally.wrapped) == sorted(jids)

    def test_the_extension_that_a_push_reaches_first_wraps_the_others(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """One that decides, such as a limit, must not let those that count begin with a job that it holds back."""
        entered: list[str] = []

        class Decider(Extension):
            name = "decider"
            phase = "decide"
            payload_keys: ClassVar[Mapping[str, str]] = {"decided": "nobody decides"}

            def around(self) -> ServerMiddleware:
                def wrap(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
                    entered.append(f"decider before {len(tally.wrapped)}")
                    return call_next()

                return wrap

        program.use(Decider())
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1], "decided": True})
        worker.start()

        eventually(lambda: worker.ran == [1])
        assert (entered, len(tally.wrapped)) == (["decider before 0"], 1)

    def test_the_extension_that_a_push_reaches_first_sees_the_end_last(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """A limit gives its place to the next job when all the others have written what they have to."""

        class Limit(Extension):
            name = "limit"
            phase = "decide"
            payload_keys: ClassVar[Mapping[str, str]] = {"limited": "there is no limit"}

            def end(self, end: JobEnd) -> Iterable[Effect]:
                return [("RPUSH", "ends", self.name)]

        program.use(Limit())
        tally.at_end = lambda end: [("RPUSH", "ends", "tally")]
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1], "limited": True})
        worker.start()

        eventually(lambda: redis_client.lrange("ends", 0, -1) == [b"tally", b"limit"])

    def test_a_job_without_the_key_passes_no_hook(self, redis_client, redis_url, tally: Tally, worker: Worker):
        """As if the extension were not there."""
        tally.is_on = False
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [7]})
        worker.start()

        eventually(lambda: worker.ran == [7])
        worker.stop()
        assert (tally.ends, tally.wrapped) == ([], [])

    @pytest.mark.parametrize(
        ("options", "kind"), [({}, "retry"), ({"retry": 0}, "dead"), ({"retry": False}, "dropped")]
    )
    def test_a_failure_says_what_became_of_the_job(
        self, options, kind, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """Retry, dead and dropped."""
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "fail", "args": [1], **options})
        worker.start()

        eventually(lambda: counts(redis_client) == {"pushed": 1, kind: 1})
        [end] = tally.ends
        assert isinstance(end.error, RuntimeError)
        assert end.is_final is (kind != "retry")
        member = {"retry": "retry", "dead": "dead"}.get(kind)
        assert end.member == (redis_client.zrange(member, 0, -1)[0] if member else None)

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_an_error_after_a_success_makes_the_attempt_fail(
        self, redis_client, redis_url, tally: Tally, worker: Worker, error: BaseException
    ):
        """The job waits for a retry, whose end is counted."""
        raises = iter([True])

        def at_end(end: JobEnd) -> list[Any]:
            if next(raises, False):
                raise error
            return [("HINCRBY", "tally", end.kind, 1)]

        tally.at_end = at_end
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        # The error is reported once the end is written.
        eventually(lambda: counts(redis_client) == {"pushed": 1, "retry": 1} and bool(worker.reported))
        assert f"the extension 'tally' failed in end: {type(error).__name__}: no" in str(worker.reported[0][0])

    def test_an_error_after_a_failure_buries_the_job_as_it_is(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """Its bytes are those that were pushed."""

        def at_end(end: JobEnd) -> list[Any]:
            raise ValueError("no")

        tally.at_end = at_end
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "fail", "args": [1]})
        raw = redis_client.lindex("queue:default", 0)
        worker.start()

        eventually(lambda: redis_client.zrange("dead", 0, -1) == [raw])

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_an_error_about_what_a_job_pushes_at_its_end_keeps_the_job_in_dead(
        self, redis_client, redis_url, tally: Tally, worker: Worker, error: BaseException, monkeypatch
    ):
        """The extension's records would not fit what was pushed, so nothing is, and the error names the extension."""

        def fail(self: Tally, end: JobEnd, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
            raise error

        monkeypatch.setattr(Tally, "followed", fail)
        worker.after_fail = lambda attempt: Outcome("done", attempt.payload, vital=(("SADD", "next", "step"),))
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "fail", "args": [1]})
        raw = redis_client.lindex("queue:default", 0)
        worker.start()

        eventually(lambda: redis_client.zrange("dead", 0, -1) == [raw] and bool(worker.reported))
        assert f"the extension 'tally' failed in followed: {type(error).__name__}: no" in str(worker.reported[0][0])
        assert not redis_client.exists("next")

    def test_a_job_that_pushes_nothing_at_its_end_is_followed_by_nothing(
        self, redis_client, redis_url, tally: Tally, worker: Worker, monkeypatch
    ):
        """The hook can count on commands."""
        seen: list[tuple[Effect, ...]] = []

        def follow(self: Tally, end: JobEnd, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
            seen.append(effects)
            return effects

        monkeypatch.setattr(Tally, "followed", follow)
        outcomes = iter([(), (("SADD", "next", "step"),)])
        worker.after_fail = lambda attempt: Outcome("done", attempt.payload, vital=next(outcomes))
        client = Client(redis_url, sidekiq_version="7.3.2")
        for number in range(2):
            client.push({"class": "fail", "args": [number]})
        worker.start()

        eventually(lambda: len(tally.ends) == 2 and redis_client.exists("next"))
        assert seen == [(("SADD", "next", "step"),)]

    def test_an_error_that_the_job_itself_takes_for_its_end_is_told(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """As an `async def` task of Celery's does that is revoked while it runs."""
        worker.after_fail = lambda attempt: Outcome("done", attempt.payload, end="invalidated")
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "fail", "args": [1]})
        worker.start()

        eventually(lambda: counts(redis_client) == {"pushed": 1, "invalidated": 1})
        [end] = tally.ends
        assert isinstance(end.error, RuntimeError)

    def test_what_a_middleware_stops_when_it_comes_due_has_ended(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """The end is in the script that takes it out of the set."""
        client = Client(redis_url, sidekiq_version="7.3.2")
        client.push({"class": "run", "args": [1], "at": LATER})
        [member] = redis_client.zrange("schedule", 0, -1)
        redis_client.zadd("schedule", {member: 1.0})
        worker.client.middleware = sidekiq.client_middleware.copy()
        worker.client.middleware.add(lambda job, payload, queue, call_next: None)
        worker.start()

        eventually(lambda: counts(redis_client) == {"pushed": 1, "stopped": 1})
        assert redis_client.zcard("schedule") == 0

    def test_a_verb_that_fails_as_it_writes_keeps_a_paused_job_from_its_queue(
        self, redis_client, redis_url, tally: Tally, worker: Worker, caplog
    ):
        """An iterable job that goes on later; in its queue as well, it would run twice at the same time."""
        tally.at_end = lambda end: [(BLIND.name, "blind", end.kind)]
        redis_client.set("blind", "no hash")
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "pause", "args": []})
        worker.start()

        eventually(lambda: "stay in flight until this error is fixed" in caplog.text)
        assert redis_client.llen("queue:default") == 0

    def test_a_verb_that_fails_as_it_writes_leaves_the_job_in_one_place(
        self, redis_client, redis_url, tally: Tally, worker: Worker, caplog
    ):
        """It has not looked first; the job stays in flight until the key is repaired, and is nowhere else."""
        tally.at_end = lambda end: [(BLIND.name, "blind", end.kind)]
        redis_client.set("blind", "no hash")
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "fail", "args": [1]})
        worker.start()

        eventually(lambda: "stay in flight until this error is fixed" in caplog.text)
        assert redis_client.zcard("retry") == 0
        redis_client.delete("blind")
        eventually(lambda: redis_client.zcard("retry") == 1)
        assert redis_client.hgetall("blind") == {b"retry": b"1"}

    def test_what_cannot_be_pushed_when_it_comes_due_has_ended(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """No payload can carry its argument, so it goes to the dead set; the end is in the script that does it."""
        raw = b'{"class":"run","args":[1e400],"jid":"77","queue":"default","tally":1}'
        redis_client.zadd("schedule", {raw: 1.0})
        worker.start()

        eventually(lambda: redis_client.zrange("dead", 0, -1) == [raw])
        assert counts(redis_client) == {"dead": 1}
        [end] = tally.ends
        assert end.member == raw

    def test_an_iterable_job_that_a_middleware_stops_on_its_way_back_has_ended(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """It was interrupted and will not go on, so its end is a final one."""
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "pause", "args": []})
        worker.client.middleware = sidekiq.client_middleware.copy()
        worker.client.middleware.add(lambda job, payload, queue, call_next: None)
        worker.start()

        eventually(lambda: counts(redis_client) == {"pushed": 1, "stopped": 1})
        [end] = tally.ends
        assert end.is_final
        assert redis_client.llen("queue:default") == 0

    def test_what_a_person_deletes_or_kills_has_ended(self, redis_client, redis_url, tally: Tally):
        """By the data API: out of a queue, a set, and into the dead set."""
        client = Client(redis_url, sidekiq_version="7.3.2")
        client.push({"class": "run", "args": [1]})
        client.push({"class": "run", "args": [2], "at": LATER})
        client.push({"class": "run", "args": [3], "at": LATER + 1})

        assert next(iter(Queue("default", client=client))).delete()
        killed, deleted = ScheduledSet(client=client)
        assert killed.kill()
        assert deleted.delete()
        assert not deleted.delete()

        assert counts(redis_client) == {"pushed": 3, "deleted": 2, "dead": 1}
        assert (len(DeadSet(client=client)), len(RetrySet(client=client))) == (1, 0)

    @pytest.mark.parametrize("act", [ScheduledSet.kill_many, ScheduledSet.delete_many])
    def test_a_verb_that_fails_as_it_writes_keeps_a_job_where_it_is(
        self, redis_client, redis_url, tally: Tally, act: Callable[..., BulkResult]
    ):
        """Whoever kills or deletes it is told. In the dead set as well, it could run twice."""
        tally.at_end = lambda end: [(BLIND.name, "blind", end.kind)]
        redis_client.set("blind", "no hash")
        client = Client(redis_url, sidekiq_version="7.3.2")
        client.push({"class": "run", "args": [1], "at": LATER})
        waiting = ScheduledSet(client=client)

        result = act(waiting, waiting)

        assert (result.moved, result.gone, result.refused) == (0, 0, 1)
        assert "WRONGTYPE" in str(result.errors[0][1])
        assert (len(waiting), len(DeadSet(client=client))) == (1, 0)

    def test_a_job_that_is_too_large_has_ended(self, redis_client, redis_url, tally: Tally, worker: Worker):
        """It is dead, unread."""
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": ["x" * 5000]})
        worker.start(max_job_bytes=1000)

        eventually(lambda: counts(redis_client) == {"pushed": 1, "dead": 1})


class TestAdmit:
    def test_a_postponed_job_waits_and_is_not_counted(self, redis_client, redis_url, tally: Tally, worker: Worker):
        """Its bytes stand in `schedule` as they were."""
        tally.admits = lambda job: Postpone(LATER, "the limit is reached")
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        raw = redis_client.lindex("queue:default", 0)
        worker.start()

        eventually(lambda: redis_client.zrange("schedule", 0, -1, withscores=True) == [(raw, LATER)])
        worker.stop()
        assert (worker.ran, tally.ends, redis_client.get("stat:processed")) == ([], [], None)

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_a_job_that_postpones_itself_waits_whatever_the_extension_makes_of_it(
        self, redis_client, redis_url, tally: Tally, worker: Worker, error: BaseException, monkeypatch, caplog
    ):
        """As a task over its rate limit does, after the extension has admitted it."""

        def fail(self: Tally, payload: Payload) -> None:
            raise error

        monkeypatch.setattr(Tally, "forget_run", fail)
        worker.admit_run = lambda payload, dialect: (b"later", LATER)
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        eventually(lambda: redis_client.zrange("schedule", 0, -1) == [b"later"])
        worker.stop()
        assert (worker.ran, tally.ends) == ([], [])
        assert "the extension tally failed in forget_run" in caplog.text

    def test_a_dropped_job_ends_without_a_run(self, redis_client, redis_url, tally: Tally, worker: Worker):
        """Its end is `invalidated`."""
        tally.admits = lambda job: Drop("its batch was invalidated")
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        eventually(lambda: counts(redis_client) == {"pushed": 1, "invalidated": 1})
        assert worker.ran == []

    def test_a_buried_job_is_dead(self, redis_client, redis_url, tally: Tally, worker: Worker):
        """With its bytes and the reason in the report."""
        tally.admits = lambda job: DeadLetter("it has expired")
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        eventually(lambda: counts(redis_client) == {"pushed": 1, "dead": 1} and bool(worker.reported))
        assert "it has expired" in str(worker.reported[0][0])

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_where_the_hook_raises_the_job_waits(
        self, redis_client, redis_url, tally: Tally, worker: Worker, error: BaseException
    ):
        """It is tried again later, and the report names the extension."""

        def admits(job: FetchedJob) -> None:
            raise error

        tally.admits = admits
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        eventually(lambda: redis_client.zcard("schedule") == 1 and worker.reported)
        assert f"the extension 'tally' failed in admit: {type(error).__name__}: no" in str(worker.reported[0][0])

    def test_a_hook_that_returns_true_makes_the_job_wait(self, redis_client, redis_url, tally: Tally, worker: Worker):
        """True may mean either. Waiting uses up no attempt, and the error says what the hook returned."""
        tally.admits = lambda job: True  # type: ignore[assignment, return-value]
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        eventually(lambda: redis_client.zcard("schedule") == 1 and worker.reported)
        assert "the extension 'tally' failed in admit: TypeError: it returned True" in str(worker.reported[0][0])

    def test_a_command_that_is_not_in_a_list_is_the_extension_s_mistake(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """It would be taken apart into words; the report says which extension it comes from."""
        tally.at_end = lambda end: ("HINCRBY", "tally", end.kind, 1)  # type: ignore[return-value]
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        eventually(lambda: bool(worker.reported))
        assert "the extension 'tally' failed in end: TypeError: it returned 'HINCRBY' alone" in str(
            worker.reported[0][0]
        )

    @pytest.mark.parametrize("told", [Shutdown, KeyboardInterrupt])
    def test_what_is_meant_for_the_thread_passes_through_the_hook(self, redis_client, redis_url, tally: Tally, told):
        """A worker that stops and Ctrl-C in the main thread are no mistake of the extension."""

        def admits(job: FetchedJob) -> None:
            raise told

        tally.admits = admits
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        raw = redis_client.lindex("queue:default", 0)

        with pytest.raises(told):
            program.extensions.admission(FetchedJob(json.loads(raw), raw, "default", 0.0, Dialect.pinned("7.3.2")))

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_where_it_cannot_be_told_whether_a_job_may_wait_it_is_asked(
        self, redis_client, redis_url, tally: Tally, worker: Worker, error: BaseException, monkeypatch
    ):
        """And so for what a success writes alone."""

        def fail(self: Tally, payload: Payload) -> None:
            raise error

        asked: list[FetchedJob] = []
        tally.admits = asked.append
        monkeypatch.setattr(Tally, "may_hold_up", fail)
        monkeypatch.setattr(Tally, "end_of_success", fail)
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        eventually(lambda: counts(redis_client) == {"pushed": 1, "success": 1})
        assert (len(asked), worker.ran) == (1, [1])

    def test_each_extension_of_a_job_may_hold_it_up(self, redis_client, redis_url, tally: Tally, worker: Worker):
        """That the first one never does says nothing of the others."""

        class Counter(Extension):
            name = "a counter"
            phase = "count"
            payload_keys: ClassVar[Mapping[str, str]] = {"counted": "it is not counted"}

        program.use(Counter())
        tally.admits = lambda job: Postpone(job.now + 100, "the limit is reached")
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1], "counted": True})
        worker.start()

        eventually(lambda: redis_client.zcard("schedule") == 1)
        assert worker.ran == []


class TestRegistration:
    def test_maintenance_runs_while_a_worker_does(self, redis_client, tally: Tally, worker: Worker):
        """A round may ask for the next one sooner."""
        worker.start()

        eventually(lambda: int(redis_client.hget("tally", "rounds") or 0) >= 3)

    def test_a_worker_with_extensions_starts_on_a_redis_that_is_full(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """It is there to empty it."""
        tally.is_on = False
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        redis_client.config_set("maxmemory", 1)
        try:
            worker.start()
            eventually(lambda: worker.ran == [1])
        finally:
            redis_client.config_set("maxmemory", 0)

    def test_an_extension_that_redis_refuses_for_a_while_starts_later(
        self, redis_client, monkeypatch: pytest.MonkeyPatch, tally: Tally, worker: Worker
    ):
        """Otherwise a worker that starts during a failover would never write its periodic jobs."""
        monkeypatch.setattr(tally, "start", lambda pool, config: pool.command("HINCRBY", "tally", "starts", 1))
        redis_client.config_set("min-replicas-to-write", 1)
        try:
            worker.start()
        finally:
            redis_client.config_set("min-replicas-to-write", 0)

        eventually(lambda: redis_client.hget("tally", "starts"))
        assert worker.launcher is not None
        worker.launcher.parts.heartbeat.beat()
        assert redis_client.hget("tally", "starts") == b"1"
        assert "the extension 'tally' failed in start" in str(worker.reported[0][0])

    def test_a_worker_without_the_extension_leaves_its_jobs_alone(
        self, redis_client, redis_url, tally: Tally, worker: Worker
    ):
        """A process that has it has told which keys it owns."""
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()
        eventually(lambda: worker.ran == [1])
        worker.stop()
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [2]})
        program.extensions.clear()
        other_worker = Worker(redis_url)
        other_worker.start()

        eventually(lambda: bool(redis_client.llen("queue:default")) and "default" not in _served(redis_client))
        other_worker.stop()
        assert other_worker.ran == []

    def test_two_extensions_cannot_own_one_key(self, tally: Tally):
        """The error names both."""

        class Other(Extension):
            name = "other"
            payload_keys = {"tally": "nothing"}

        with pytest.raises(ConfigError, match="'tally' and 'other' both own the payload key 'tally'"):
            sidekiq.use(Other())

    @pytest.mark.parametrize(
        ("attributes", "reason"),
        [
            ({}, "has no name"),
            ({"name": "x", "contract": 2}, "contract 2"),
            ({"name": "x", "phase": "late"}, "phase"),
            ({"name": "x", "payload_keys": ["x"]}, "payload_keys of the extension 'x' is .'x'.; use a dict"),
            ({"name": "x", "verbs": COUNT}, "verbs of the extension 'x' must be a tuple"),
        ],
    )
    def test_what_is_no_extension_of_this_contract_is_refused(self, attributes, reason):
        """With what to do about it."""
        with pytest.raises(ConfigError, match=reason):
            sidekiq.use(type("Odd", (Extension,), attributes)())

    def test_a_class_in_place_of_an_extension_is_named(self):
        """The message says what is missing."""
        with pytest.raises(ConfigError, match=r"Tally is the class of an extension; give an object of it: Tally\(\)"):
            sidekiq.use(Tally)  # type: ignore[arg-type]

    def test_an_extension_that_keeps_a_worker_from_starting_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tally: Tally, worker: Worker
    ):
        """The traceback may show only what the hook called, in another package."""
        monkeypatch.setattr(Tally, "start", lambda *args: 1 / 0)

        with pytest.raises(ZeroDivisionError) as caught:
            worker.start()

        assert caught.value.__notes__ == ["start of the extension 'tally' raised this."]

    @pytest.mark.filterwarnings("always::ResourceWarning")
    def test_a_worker_that_cannot_start_leaves_no_event_loop_open(
        self, monkeypatch: pytest.MonkeyPatch, tally: Tally, worker: Worker, recwarn: pytest.WarningsRecorder
    ):
        """A program that tries again until Redis is back would otherwise have three more open files after each try."""
        monkeypatch.setattr(Tally, "start", lambda *args: 1 / 0)

        with contextlib.suppress(ZeroDivisionError):
            worker.start()
        worker.launcher = None
        gc.collect()

        assert [str(warning.message) for warning in recwarn if "event loop" in str(warning.message)] == []

    def test_maintenance_is_returned_in_a_list(self, monkeypatch: pytest.MonkeyPatch, tally: Tally):
        """One alone is a tuple, too: its name would be taken for the first of three. The error names the extension."""
        monkeypatch.setattr(Tally, "maintain", lambda self: Maintenance("rounds", 60, lambda pool: None))

        with pytest.raises(TypeError, match="'rounds' alone, not in a list") as caught:
            program.extensions.maintenance()

        assert caught.value.__notes__ == ["maintain of the extension 'tally' raised this."]

    def test_names_come_from_extensions(self, tally: Tally, monkeypatch):
        """In the package, in the data API, on the current job and on Ruby's jobs."""
        monkeypatch.setattr(Tally, "public_names", {"TallyClosed": "tests.extension_contract.conftest"})
        monkeypatch.setattr(Tally, "job_attributes", {"tally_number": lambda job: job.payload["tally"]})

        assert sidekiq.TallyClosed is TallyClosed  # type: ignore[attr-defined]
        job = sidekiq.CurrentJob({"jid": "1", "tally": 5}, "default", None)
        assert job.tally_number == 5
        with pytest.raises(AttributeError, match="no attribute 'other'"):
            _ = job.other
        monkeypatch.setattr(Tally, "ruby_job_attributes", {"tally_name": lambda job: job.definition.name})
        ruby = sidekiq.ruby_job("Billing::Emailer")
        assert ruby.tally_name == "Billing::Emailer"
        with pytest.raises(AttributeError, match="no attribute 'other'"):
            _ = ruby.other
        del sidekiq.TallyClosed


def _served(redis_client: redis.Redis) -> set[str]:
    names = set()
    for identity in redis_client.smembers("processes"):  # type: ignore[union-attr]
        info = json.loads(redis_client.hget(identity, "info") or "{}")  # type: ignore[arg-type]
        names |= set(info.get("queues", []))
    return names


class TestTrouble:
    @pytest.mark.parametrize(("faults", "kind"), [((), "retry"), (("after_failure",), "dead")])
    def test_a_job_beside_which_something_went_wrong_has_an_end(
        self, redis_client, redis_url, tally: Tally, worker: Worker, monkeypatch, faults, kind
    ):
        """It never got as far as its run; where even its failure cannot be written, its bytes are in `dead`."""
        monkeypatch.setattr(JobContext, "enter", lambda *args: 1 / 0)
        for name in faults:
            monkeypatch.setattr(Surroundings, name, lambda *args: 1 / 0)
        Client(redis_url, sidekiq_version="7.3.2").push({"class": "run", "args": [1]})
        worker.start()

        eventually(lambda: redis_client.zcard(kind) == 1)
        [end] = tally.ends
        assert (end.kind, end.payload["args"], type(end.error)) == (kind, [1], ZeroDivisionError)
        assert counts(redis_client) == {"pushed": 1, kind: 1}
