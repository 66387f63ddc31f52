"""Jobs of many items: leaving off, going on, being cancelled; the state that Ruby reads and writes."""

import csv
import functools
import io
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.errors import Interrupted, JobDeclarationError, Shutdown
from sidekiq_py.jobs import iterable
from sidekiq_py.jobs.decorators import registry
from sidekiq_py.middleware.running import run
from sidekiq_py.testing import fake
from tests.support.time_to_live import was_given

pytestmark = pytest.mark.usefixtures("configured")

trace: list[Any] = []


class Walk(sidekiq.IterableJob):
    """Goes through so many numbers and says all that happens."""

    def build_enumerator(self, count: int, *_rest: Any, cursor: Any) -> Iterable[tuple[int, int]] | None:
        trace.append(f"from {cursor}")
        return self.array_enumerator(range(count), cursor)

    def each_iteration(self, item: int, count: int, deed: Any = None) -> None:
        trace.append(item)
        if deed is not None and item == 2:
            DEEDS[deed](self)

    def on_start(self) -> None:
        trace.append("start")

    def on_resume(self) -> None:
        trace.append("resume")

    def on_stop(self) -> None:
        trace.append("stop")

    def on_cancel(self) -> None:
        trace.append("cancel")

    def on_complete(self) -> None:
        trace.append("complete")


def fail(job: Walk) -> None:
    """An item cannot be processed."""
    raise LookupError("boom")


def leave(job: Walk) -> None:
    """An item ends the job as it would end a program."""
    sys.exit(1)


def be_cut_off(job: Walk) -> None:
    """The deadline of a stop has passed."""
    raise Shutdown


DEEDS: dict[str, Callable[[Walk], None]] = {
    "fail": fail,
    "leave": leave,
    "be_cut_off": be_cut_off,
    "abort": lambda job: job.abort(),
    "cancel": lambda job: job.cancel(),
    "look": lambda job: trace.append((job.cursor, job.current_object, job.arguments, job.jid)),
}


@pytest.fixture(autouse=True)
def _empty_trace() -> None:
    trace.clear()


def walk(*args: Any, stopping_after: int | None = None, jid: str = "j", of: str = "Walk") -> None:
    """One run, in a process that begins to stop after so many items."""
    definition = registry.find(f"tests.jobs.test_iterable.{of}")
    assert definition is not None
    payload = {"class": definition.name, "args": list(args), "jid": jid}

    def stopping() -> bool:
        return stopping_after is not None and sum(type(step) is int for step in trace) >= stopping_after

    run(definition, payload, "default", program.server_middleware, stopping)


def state(client: redis.Redis, jid: str = "j") -> dict[bytes, bytes]:
    """The job's hash."""
    found: dict[bytes, bytes] = client.hgetall(f"it-{jid}")  # type: ignore[assignment]
    return found


def test_a_run_to_the_end_leaves_nothing_behind(redis_client: redis.Redis) -> None:
    """All callbacks in Ruby's order."""
    walk(3)

    assert trace == ["from None", "start", 0, 1, 2, "stop", "complete"]
    assert state(redis_client) == {}


def test_a_job_that_leaves_off_says_where_in_ruby_s_words(redis_client: redis.Redis) -> None:
    """The cursor of the next item, how often it was begun, and how long it ran; for thirty days."""
    began = time.monotonic()
    with pytest.raises(Interrupted):
        walk(5, stopping_after=2)

    saved = state(redis_client)
    assert trace == ["from None", "start", 0, 1, "stop"]
    assert (list(saved), saved[b"ex"], saved[b"c"]) == ([b"ex", b"c", b"rt"], b"1", b"2")
    assert 0 < float(saved[b"rt"]) < 5
    assert was_given(redis_client, "it-j", 30 * 24 * 3600, since=began)


def test_it_goes_on_with_the_next_item(redis_client: redis.Redis) -> None:
    """Nothing is left out, nothing done twice."""
    with pytest.raises(Interrupted):
        walk(4, stopping_after=2)
    trace.clear()

    walk(4)

    assert trace == ["from 2", "resume", 2, 3, "stop", "complete"]
    assert state(redis_client) == {}


def test_a_testing_mode_of_another_thread_does_not_hide_the_position(redis_client: redis.Redis) -> None:
    """A worker that is embedded in a test run, for example."""
    with fake(), ThreadPoolExecutor(1) as elsewhere, pytest.raises(Interrupted):
        elsewhere.submit(walk, 5, stopping_after=2).result()

    assert state(redis_client)[b"c"] == b"2"


def test_it_goes_on_where_ruby_left_off(redis_client: redis.Redis) -> None:
    """The hash of Sidekiq 7.3, as Ruby writes it."""
    redis_client.hset("it-j", mapping={"ex": "3", "c": "1", "rt": "12.5"})

    with pytest.raises(Interrupted):
        walk(4, stopping_after=1)

    saved = state(redis_client)
    assert trace == ["from 1", "resume", 1, "stop"]
    assert (saved[b"ex"], saved[b"c"], float(saved[b"rt"]) > 12.5) == (b"4", b"2", True)


def test_each_save_counts_the_thirty_days_anew_before_sidekiq_8(redis_client: redis.Redis) -> None:
    """Sidekiq 7.3 does so."""
    redis_client.hset("it-j", mapping={"ex": "1", "c": "1", "rt": "1"})
    redis_client.expire("it-j", 50)

    with pytest.raises(Interrupted):
        walk(4, stopping_after=0)

    assert redis_client.ttl("it-j") > 50


def test_for_sidekiq_8_the_first_thirty_days_stand(redis_client: redis.Redis, redis_url: str) -> None:
    """As there."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8")
    redis_client.hset("it-j", mapping={"ex": "1", "c": "1", "rt": "1"})
    redis_client.expire("it-j", 50)

    with pytest.raises(Interrupted):
        walk(4, stopping_after=0)

    assert 0 < redis_client.ttl("it-j") <= 50


@pytest.mark.parametrize(("deed", "error"), [("fail", LookupError), ("be_cut_off", Shutdown), ("leave", SystemExit)])
def test_an_item_that_raises_is_where_the_next_run_begins(
    deed: str, error: type[BaseException], redis_client: redis.Redis
) -> None:
    """The state is saved before the error goes on, whatever it is. Source: Sidekiq 8.1.7, `rescue Exception`."""
    with pytest.raises(error):
        walk(5, deed)

    assert (trace[-1], state(redis_client)[b"c"]) == (2, b"2")


def test_abort_ends_the_job_as_if_it_were_through(redis_client: redis.Redis) -> None:
    """With its last callbacks."""
    walk(5, "abort")

    assert trace[-3:] == [2, "stop", "complete"]
    assert state(redis_client) == {}


class Quit(Walk):
    """Ends itself behind its last number, and when it is cancelled."""

    def build_enumerator(self, count: int, *_rest: Any, cursor: Any) -> Iterator[tuple[int, int]]:
        yield from self.array_enumerator(range(count), cursor)
        self.abort()

    def on_cancel(self) -> None:
        super().on_cancel()
        self.abort()


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_abort_ends_the_job_from_its_enumerator_and_from_on_cancel_too(
    is_cancelled: bool, redis_client: redis.Redis
) -> None:
    """Source: Sidekiq 8.1.7, job/iterable.rb: `catch(:abort)` is around the whole iteration."""
    if is_cancelled:
        sidekiq.cancel("j")

    walk(2, of="Quit")

    assert trace == ["start", *(["cancel"] if is_cancelled else [0, 1]), "stop", "complete"]
    assert state(redis_client) == {}


def test_a_job_cancelled_before_its_first_run_sees_it(redis_client: redis.Redis) -> None:
    """Its cursor is that of a first run, as Ruby fails where there is none."""
    when = sidekiq.cancel("j")

    assert state(redis_client) == {b"cancelled": str(when).encode(), b"c": b"null"}
    walk(5)
    assert trace == ["from None", "start", "cancel", "stop", "complete"]
    assert state(redis_client) == {}


@pytest.mark.parametrize("jid", [None, ""])
def test_what_is_no_id_cancels_nothing(redis_client: redis.Redis, jid: Any) -> None:
    """A push that a middleware stopped returns None."""
    with pytest.raises(TypeError, match=r"jid is (None|''); give the id of a job"):
        sidekiq.cancel(jid)
    assert redis_client.keys() == []


def test_a_job_that_ruby_cancelled_before_its_first_run_sees_it(redis_client: redis.Redis) -> None:
    """Ruby leaves no cursor behind."""
    redis_client.hset("it-j", "cancelled", 1700000000)

    walk(5)

    assert trace == ["from None", "start", "cancel", "stop", "complete"]


def test_a_cancel_leaves_the_cursor_of_a_job_that_ran(redis_client: redis.Redis) -> None:
    """Only where there is none it is added."""
    redis_client.hset("it-j", "c", "7")

    sidekiq.cancel("j")

    assert redis_client.hget("it-j", "c") == b"7"


def test_a_second_cancel_changes_nothing(redis_client: redis.Redis) -> None:
    """The first one's time stands."""
    redis_client.hset("it-j", "cancelled", 1700000000)

    assert sidekiq.cancel("j") == 1700000000
    assert redis_client.ttl("it-j") > 0


def test_for_sidekiq_8_a_second_cancel_leaves_the_thirty_days(redis_client: redis.Redis, redis_url: str) -> None:
    """They count from the first."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8")
    sidekiq.cancel("j")
    lasts = redis_client.ttl("it-j")
    redis_client.expire("it-j", 50)

    sidekiq.cancel("j")

    assert lasts > 29 * 24 * 3600
    assert 0 < redis_client.ttl("it-j") <= 50


def test_a_running_job_finds_at_its_next_save_that_it_was_cancelled(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every five seconds of its own clock."""
    seconds = iter(range(0, 1000, 3))
    monkeypatch.setattr(Walk, "_now", lambda self: float(next(seconds)))

    walk(9, "cancel")

    assert trace[-3:] == ["cancel", "stop", "complete"]
    assert 8 not in trace
    assert state(redis_client) == {}


def test_a_redis_that_refuses_writes_for_a_while_has_no_item_done_twice(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a save on the way nor the last command, which forgets where the job was, fails a job that goes well."""
    seconds = iter(range(0, 1000, 3))
    monkeypatch.setattr(Walk, "_now", lambda self: float(next(seconds)))
    redis_client.config_set("min-replicas-to-write", 1)
    try:
        walk(6)
    finally:
        redis_client.config_set("min-replicas-to-write", 0)

    assert trace == ["from None", "start", *range(6), "stop", "complete"]


def test_a_job_that_leaves_off_while_redis_refuses_writes_goes_on_from_its_last_save(redis_client: redis.Redis) -> None:
    """If it failed, a job without retries (`retry=False`) would never process its other items."""
    with pytest.raises(Interrupted):
        walk(5, stopping_after=2)
    redis_client.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(Interrupted):
            walk(5, stopping_after=3)
    finally:
        redis_client.config_set("min-replicas-to-write", 0)
    trace.clear()

    walk(5)

    assert trace == ["from 2", "resume", 2, 3, 4, "stop", "complete"]


def test_a_position_that_another_program_overwrites_skips_no_item(
    monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
) -> None:
    """The refusal must not be taken for a cancellation, which would end the job as if it had processed all items."""
    monkeypatch.setattr(iterable, "FLUSH_SECONDS", 0)
    monkeypatch.setitem(
        DEEDS, "overwrite", lambda job: redis_client.delete("it-j") and redis_client.set("it-j", "text")
    )

    walk(5, "overwrite")

    assert trace == ["from None", "start", 0, 1, 2, 3, 4, "stop", "complete"]


@pytest.mark.parametrize("limit", [3.0, timedelta(seconds=3)])
def test_a_run_may_be_limited_in_time(
    monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis, limit: float | timedelta
) -> None:
    """It then leaves off as at a stop."""
    seconds = iter(range(1000))
    monkeypatch.setattr(Walk, "_now", lambda self: float(next(seconds)))
    monkeypatch.setattr(Walk, "max_iteration_runtime", limit)

    with pytest.raises(Interrupted):
        walk(9)

    assert state(redis_client)[b"c"] == b"3"


def test_a_limit_that_is_no_time_is_refused_at_the_declaration() -> None:
    """Each run would fail after its first item."""
    with pytest.raises(JobDeclarationError, match="max_iteration_runtime='5 m'; give seconds above 0, or a timedelta"):

        class Late(sidekiq.IterableJob, name="Late"):
            max_iteration_runtime = "5 m"  # type: ignore[assignment]


def test_a_class_may_have_no_limit_where_its_worker_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Infinity is a limit of its own, and never reached."""

    class Endless(Walk, name="Endless"):
        max_iteration_runtime = math.inf

    seconds = iter(range(1000))
    monkeypatch.setattr(Endless, "_now", lambda self: float(next(seconds)))
    monkeypatch.setattr(program, "iteration_limits", program.IterationLimits(run_seconds=3.0))

    Endless.perform_inline(9)

    assert trace[-1] == "complete"


def test_a_worker_s_limit_holds_for_classes_without_one_of_their_own(
    monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
) -> None:
    """`max_iteration_runtime` in sidekiq.yml, as in Sidekiq 8.0.8 and later."""
    seconds = iter(range(1000))
    monkeypatch.setattr(Walk, "_now", lambda self: float(next(seconds)))
    monkeypatch.setattr(program, "iteration_limits", program.IterationLimits(run_seconds=3.0))

    with pytest.raises(Interrupted):
        walk(9, jid="limited")
    monkeypatch.setattr(Walk, "max_iteration_runtime", 5.0)
    with pytest.raises(Interrupted):
        walk(9, jid="by itself")

    assert (state(redis_client, "limited")[b"c"], state(redis_client, "by itself")[b"c"]) == (b"3", b"5")


def test_the_job_sees_where_it_is() -> None:
    """Cursor, item, arguments and jid."""
    walk(3, "look")

    assert (2, 2, (3, "look"), "j") in trace


def test_a_context_manager_goes_around_each_item() -> None:
    """As a transaction would."""

    class Around(sidekiq.IterableJob, name="Around"):
        def build_enumerator(self, *, cursor: Any) -> Iterable[tuple[int, int]]:
            return self.array_enumerator([7], cursor)

        def each_iteration(self, item: int) -> None:
            trace.append(item)

        @contextmanager
        def around_iteration(self) -> Iterator[None]:
            trace.append("in")
            yield
            trace.append("out")

    Around.perform_inline()

    assert trace == ["in", 7, "out"]


@pytest.mark.parametrize(
    ("enumerator", "said"),
    [(5, "returned 5"), ([1, 2], "yields 1"), (range(3), "yields 0"), ([(1, 2, 3)], "yields (1, 2, 3)")],
)
def test_an_enumerator_yields_pairs(enumerator: Any, said: str) -> None:
    """The items alone are the usual slip."""

    class Items(sidekiq.IterableJob, name="Items"):
        def build_enumerator(self, *, cursor: Any) -> Any:
            return enumerator

        def each_iteration(self, item: Any) -> None: ...

    with pytest.raises(
        TypeError, match=rf"build_enumerator of Items {re.escape(said)}; it must yield pairs of an item"
    ):
        Items.perform_inline()


def test_without_an_enumerator_the_job_does_nothing() -> None:
    """As in Ruby: None means that there is nothing to do."""

    class Nothing(sidekiq.IterableJob, name="Nothing"):
        def build_enumerator(self, *, cursor: Any) -> None:
            return None

        def each_iteration(self, item: int) -> None:
            trace.append(item)

        def on_complete(self) -> None:
            trace.append("complete")

    assert Nothing.perform_inline() is True
    assert trace == []


def test_rows_and_batches_of_a_csv_file_go_on_by_number() -> None:
    """As Ruby's enumerators of these names."""
    job = Walk()
    text = "a\nb\nc\nd\ne\n"

    def rows() -> Any:
        return csv.reader(io.StringIO(text))

    assert list(job.csv_enumerator(rows(), 3)) == [(["d"], 3), (["e"], 4)]
    assert list(job.csv_batches_enumerator(rows(), 1, batch_size=2)) == [([["c"], ["d"]], 1), ([["e"]], 2)]
    assert list(job.array_enumerator(["x", "y"], None)) == [("x", 0), ("y", 1)]


def test_the_arguments_must_fit_each_iteration() -> None:
    """Without self and the item."""
    with pytest.raises(TypeError, match="takes"):
        Walk.perform_async(1, None, 3)


def test_an_iterable_job_defines_no_perform() -> None:
    """Ruby refuses that as well."""
    with pytest.raises(JobDeclarationError, match="each_iteration"):

        class Both(sidekiq.IterableJob, name="Both"):
            def perform(self) -> None: ...


def test_an_iterable_job_is_no_async_def() -> None:
    """It would never be awaited."""
    with pytest.raises(JobDeclarationError, match="async"):

        class Async(sidekiq.IterableJob, name="Async"):
            def build_enumerator(self, *, cursor: Any) -> None: ...

            async def each_iteration(self, item: int) -> None: ...  # type: ignore[override]


def test_a_hook_of_an_iterable_job_is_no_async_def() -> None:
    """Nothing would await it."""
    with pytest.raises(JobDeclarationError, match="Late is iterable, and its on_complete an `async def`"):

        class Late(sidekiq.IterableJob, name="Late"):
            def build_enumerator(self, *, cursor: Any) -> Any: ...

            def each_iteration(self, item: int) -> None: ...

            async def on_complete(self) -> None: ...  # type: ignore[override]

    async def later(_self: Any) -> None: ...

    with pytest.raises(JobDeclarationError, match="Later is iterable, and its on_start an `async def`"):

        class Later(sidekiq.IterableJob, name="Later"):
            on_start = functools.partial(later, None)  # type: ignore[assignment]

            def build_enumerator(self, *, cursor: Any) -> Any: ...

            def each_iteration(self, item: int) -> None: ...


def test_a_base_without_items_is_no_job() -> None:
    """It may be the base of some."""

    class Base(sidekiq.IterableJob):
        pass

    assert not hasattr(Base, "__sidekiq_job__")
    assert iterable.Interrupted is Interrupted
