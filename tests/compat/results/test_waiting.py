"""Waiting for results: by threads, by coroutines, through lost connections and forks."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery._result.base import new_promise
from sidekiq_celery.backends import listening
from sidekiq_celery.backends.listening import Listener
from sidekiq_celery.exceptions import TimeoutError
from sidekiq_celery.result import AsyncResult, ResultSet
from vine import promise

from tests.support.cutting_proxy import CuttingProxy
from tests.support.no_more_threads import without_more_threads
from tests.support.redis_server import RedisServer
from tests.support.threads_at_once import at_once
from tests.support.waiting import eventually

LONG = 30


def subscribers(redis_client: redis.Redis, task_id: str) -> int:
    """How many connections wait for a task."""
    [(_, count)] = redis_client.pubsub_numsub(f"celery-task-meta-{task_id}")
    return int(count)


def assert_no_line_follows_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Lost connections are in the log, and each only once as long as it is the same error."""
    lines = [line for line in caplog.messages if "Lost the connection for results" in line]
    assert lines
    assert all(line != before for before, line in pairwise(lines))


def when_waited_for(redis_client: redis.Redis, task_id: str, act: Callable[[], Any]) -> threading.Thread:
    """Do something once somebody waits for a task."""

    def wait_and_act() -> None:
        eventually(lambda: subscribers(redis_client, task_id))
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_a_waiter_is_woken_by_the_result(app: Celery, redis_client: redis.Redis) -> None:
    """It does not look again: an hour lies between two looks."""
    thread = when_waited_for(redis_client, "a", lambda: app.backend.mark_as_done("a", 42))

    assert app.AsyncResult("a").get(timeout=LONG, interval=3600) == 42
    thread.join()


def test_a_result_that_is_there_needs_no_listener(app: Celery) -> None:
    """One look is enough."""
    app.backend.mark_as_done("a", 42)

    assert app.AsyncResult("a").get(timeout=0) == 42
    assert app.backend._listener._waiting == {}


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_waiting_ends_with_its_time(app: Celery, timeout: float) -> None:
    """And leaves nobody in the table."""
    with pytest.raises(TimeoutError):
        app.AsyncResult("a").get(timeout=timeout)

    assert app.backend._listener._waiting == {}


def test_each_thread_gets_its_own_result(app: Celery, redis_client: redis.Redis) -> None:
    """Forty wait over one connection, two of them for the same."""
    ids = [str(number // 2) for number in range(40)]
    with ThreadPoolExecutor(40) as threads:
        waiting = [threads.submit(app.AsyncResult(each).get, timeout=LONG) for each in ids]
        eventually(lambda: all(subscribers(redis_client, each) == 1 for each in ids))
        for each in dict.fromkeys(ids):
            app.backend.mark_as_done(each, int(each))

        assert [future.result() for future in waiting] == [int(each) for each in ids]

    assert len([client for client in redis_client.client_list() if int(client["sub"])]) <= 1


def test_a_lost_connection_loses_no_result(app: Celery, redis_client: redis.Redis) -> None:
    """What came while it was away is read when it is back."""

    def cut_and_store() -> None:
        redis_client.client_kill_filter(_type="pubsub")
        redis_client.set("celery-task-meta-a", '{"status": "SUCCESS", "result": 42, "task_id": "a"}')

    thread = when_waited_for(redis_client, "a", cut_and_store)

    assert app.AsyncResult("a").get(timeout=LONG) == 42
    thread.join()


def test_who_may_not_subscribe_polls(
    make_app: Callable[..., Celery], redis_client: redis.Redis, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """A user whose channels are none at all."""
    redis_client.acl_setuser("mute", enabled=True, nopass=True, commands=["+@all"], keys=["*"], reset_channels=True)
    request.addfinalizer(lambda: redis_client.acl_deluser("mute"))
    app = make_app()
    silent = make_app(result_backend=redis_url.replace("://", "://mute:x@", 1))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(silent.AsyncResult("a").get, timeout=LONG)
        eventually(lambda: silent.backend._listener._waiting)
        app.backend.mark_as_done("a", 42)

        assert waiting.result() == 42


def test_a_server_that_does_not_know_subscribe_is_polled(
    make_app: Callable[..., Celery], new_redis_server: Callable[..., RedisServer]
) -> None:
    """As some proxies. Otherwise waiting would end with the timeout, with nothing in the log."""
    url = new_redis_server(config={"rename-command": 'SUBSCRIBE ""'}).url
    app = make_app(result_backend=url)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.AsyncResult("a").get, timeout=LONG)
        eventually(lambda: app.backend._listener._waiting)
        app.backend.mark_as_done("a", 42)

        assert waiting.result() == 42


def test_when_nobody_waits_the_connection_is_closed(
    app: Celery, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while, as the next one may come soon; then waiting begins anew."""
    monkeypatch.setattr(listening, "LINGER_SECONDS", 0.05)
    listener = app.backend._listener
    for task_id in "ab":
        thread = when_waited_for(redis_client, task_id, lambda task_id=task_id: app.backend.mark_as_done(task_id, 1))
        app.AsyncResult(task_id).get(timeout=LONG)
        thread.join()
        eventually(lambda: not listener.is_running)

    eventually(lambda: not [client for client in redis_client.client_list() if int(client["sub"])])


def test_after_a_shortage_of_threads_results_are_waited_for_again(app: Celery) -> None:
    """Who asks meanwhile is told; who asks later gets the result."""
    listener = Listener(app.backend._listener._pool)
    delivered: list[bytes] = []
    with pytest.raises(RuntimeError, match="thread"):
        without_more_threads(lambda: listener.watch([b"celery-task-meta-a"], lambda key, text: None))
    app.backend.mark_as_done("a", 42)

    def deliver(key: bytes, text: bytes) -> None:
        delivered.append(text)

    listener.watch([b"celery-task-meta-a"], deliver)

    eventually(lambda: delivered, LONG)
    listener.unwatch([b"celery-task-meta-a"], deliver)


def test_a_second_waiter_hears_what_came_before_it(app: Celery, redis_client: redis.Redis) -> None:
    """The channel is subscribed to already, and nothing more will be published."""
    delivered: list[bytes] = []
    listener = app.backend._listener
    listener.watch([b"celery-task-meta-a"], lambda key, text: None)
    eventually(lambda: subscribers(redis_client, "a"))
    redis_client.set("celery-task-meta-a", "late")

    def deliver(key: bytes, text: bytes) -> None:
        delivered.append(text)

    listener.watch([b"celery-task-meta-a"], deliver)

    eventually(lambda: delivered)
    assert set(delivered) == {b"late"}
    listener.unwatch([b"celery-task-meta-a"], deliver)
    listener._waiting.clear()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_waits_for_itself(app: Celery, redis_client: redis.Redis) -> None:
    """Its parent's thread is not there, and its parent's connection is not touched."""
    thread = when_waited_for(redis_client, "a", lambda: app.backend.mark_as_done("a", 1))
    app.AsyncResult("a").get(timeout=LONG)
    thread.join()

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = app.AsyncResult("b").get(timeout=LONG)
        finally:
            os._exit(code)
    eventually(lambda: subscribers(redis_client, "b"))
    app.backend.mark_as_done("b", 7)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    thread = when_waited_for(redis_client, "c", lambda: app.backend.mark_as_done("c", 3))
    assert app.AsyncResult("c").get(timeout=LONG) == 3
    thread.join()


def test_progress_is_told(app: Celery, redis_client: redis.Redis) -> None:
    """Each state, in order; the value goes to the callback."""
    states: list[str] = []
    values: list[Any] = []

    def work() -> None:
        app.backend.store_result("a", {"done": 1}, "PROGRESS")
        eventually(lambda: states == ["PROGRESS"])
        app.backend.mark_as_done("a", 42)

    thread = when_waited_for(redis_client, "a", work)
    app.AsyncResult("a").get(
        timeout=LONG,
        on_message=lambda meta: states.append(meta["status"]),
        callback=lambda task_id, value: values.append((task_id, value)),
    )

    thread.join()
    assert states == ["PROGRESS", "SUCCESS"]
    assert values == [("a", 42)]


def test_a_failure_is_raised_or_returned(app: Celery) -> None:
    """As *propagate* says."""
    app.backend.mark_as_failure("a", KeyError("x"))

    with pytest.raises(KeyError):
        app.AsyncResult("a").get(timeout=LONG)
    assert repr(app.AsyncResult("a").get(timeout=LONG, propagate=False)) == "KeyError('x')"


def test_a_step_that_failed_before_is_raised_while_waiting(app: Celery, redis_client: redis.Redis) -> None:
    """The last step of a chain would be waited for in vain."""
    result = app.AsyncResult("b", parent=app.AsyncResult("a"))
    thread = when_waited_for(redis_client, "b", lambda: app.backend.mark_as_failure("a", KeyError("x")))

    with pytest.raises(KeyError):
        result.get(timeout=LONG, interval=0.01)
    thread.join()


def test_a_set_comes_in_its_order(app: Celery, redis_client: redis.Redis) -> None:
    """Whatever comes first, and however often an id is in it; sets within it as lists."""
    inner = app.GroupResult("g", [app.AsyncResult("2"), app.AsyncResult("3")])
    results = app.ResultSet([app.AsyncResult("1"), inner, app.AsyncResult("0"), app.AsyncResult("1")])

    def work() -> None:
        for number in range(4):
            app.backend.mark_as_done(str(number), number)

    thread = when_waited_for(redis_client, "2", work)

    assert results.get(timeout=LONG) == [1, [2, 3], 0, 1]
    thread.join()


def test_a_set_raises_what_one_raised(app: Celery) -> None:
    """Before the others have come."""
    app.backend.mark_as_failure("a", KeyError("x"))
    results = app.ResultSet([app.AsyncResult("never"), app.AsyncResult("a")])

    with pytest.raises(KeyError):
        results.get(timeout=LONG)
    with pytest.raises(TimeoutError):
        results.get(timeout=0.05, propagate=False)


def test_a_result_can_be_awaited(app: Celery, redis_client: redis.Redis) -> None:
    """The event loop goes on meanwhile; a failure is raised."""

    async def main() -> list[Any]:
        ticks = 0
        waiting = asyncio.gather(app.AsyncResult("a"), app.AsyncResult("b"), return_exceptions=True)
        while not (subscribers(redis_client, "a") and subscribers(redis_client, "b")):
            ticks += 1
            await asyncio.sleep(0.01)
        await asyncio.to_thread(app.backend.mark_as_done, "a", 42)
        await asyncio.to_thread(app.backend.mark_as_failure, "b", KeyError("x"))
        return [ticks > 0, *await waiting]

    went_on, value, error = asyncio.run(main())

    assert (went_on, value, repr(error)) == (True, 42, "KeyError('x')")


def test_a_result_that_comes_costs_no_look_at_the_others(
    app: Celery, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may await 10,000, and all of them are only gone through to be read again, every ten seconds."""
    looks: list[Listener] = []
    look = Listener._wanted

    def count_and_look(listener: Listener) -> list[bytes]:
        looks.append(listener)
        return look(listener)

    monkeypatch.setattr(Listener, "_wanted", count_and_look)
    monkeypatch.setattr(listening, "REREAD_SECONDS", 3600)
    names = [str(number) for number in range(20)]

    async def wait_for_all() -> list[Any]:
        waiting = [asyncio.ensure_future(app.AsyncResult(name).aget(timeout=LONG)) for name in names]
        for name, one in zip(names, waiting, strict=True):
            await asyncio.to_thread(eventually, partial(subscribers, redis_client, name))
            await asyncio.to_thread(app.backend.mark_as_done, name, name)
            await one
        return await asyncio.gather(*waiting)

    assert asyncio.run(wait_for_all()) == names
    assert looks == []
    eventually(lambda: not any(subscribers(redis_client, name) for name in names))


def test_awaiting_a_set_and_its_time(app: Celery) -> None:
    """A list in the order of the set; TimeoutError behind the time."""
    app.backend.mark_as_done("a", 1)
    app.backend.mark_as_done("b", 2)

    async def main() -> list[int]:
        with pytest.raises(TimeoutError):
            await app.AsyncResult("never").aget(timeout=0.05)
        with pytest.raises(TimeoutError):
            await app.ResultSet([app.AsyncResult("never")]).aget(timeout=0.05)
        return list(await app.ResultSet([app.AsyncResult("b"), app.AsyncResult("a")]))

    assert asyncio.run(main()) == [2, 1]


def called_by_threads(result: Any, *acts: Callable[[], Any], waiters: int = 5) -> list[int]:
    """Let threads wait for a result at once, together with others that do something. Returns who was called, sorted."""
    calls: list[int] = []

    def wait(number: int) -> None:
        result.then(lambda _: calls.append(number))

    at_once(*(partial(wait, number) for number in range(waiters)), *acts)
    eventually(lambda: len(calls) >= waiters, within_seconds=10)
    return sorted(calls)


def test_threads_that_wait_for_one_result_are_all_called_once(app: Celery) -> None:
    """Each adds its callback while the result arrives, or after that."""
    for number in range(100):
        result = app.AsyncResult(f"shared-{number}")

        called = called_by_threads(result, partial(app.backend.mark_as_done, result.id, 1))

        assert called == [0, 1, 2, 3, 4]


def test_a_callback_is_called_although_another_thread_gets_the_error_first(app: Celery) -> None:
    """The thread in which the result arrives has not called those that wait yet."""
    getting: list[threading.Thread] = []

    class Raised(AsyncResult[int]):
        def get_error(self) -> None:
            with pytest.raises(ValueError, match="no"):
                self.get(timeout=LONG)

        def _set_cache(self, d: Any) -> Any:
            kept = super()._set_cache(d)
            if not getting:
                getting.append(threading.Thread(target=self.get_error))
                getting[0].start()
                getting[0].join()
            return kept

    result = Raised("raised", app=app)
    calls: list[Any] = []
    result.then(calls.append)

    app.backend.mark_as_failure("raised", ValueError("no"))

    eventually(lambda: calls == [result], LONG)


def told_by_threads(promise: Any, end: Callable[[], Any]) -> tuple[set[int], set[bool]]:
    """Let threads add callbacks while another ends a promise. Returns who hears of an error, and who is cancelled."""
    told: set[int] = set()

    def wait(number: int) -> bool:
        callback = promise.then(print, on_error=lambda _: told.add(number))
        at_end.wait(LONG)
        return bool(callback.cancelled)

    def end_it() -> bool:
        with suppress(ValueError):
            end()
        at_end.set()
        return bool(promise.cancelled)

    at_end = threading.Event()
    cancelled = at_once(*(partial(wait, number) for number in range(5)), end_it)
    return told, set(cancelled)


def test_callbacks_that_are_added_while_a_promise_fails_are_told() -> None:
    """Before or after that."""
    for _ in range(300):
        promise = new_promise()

        assert told_by_threads(promise, partial(promise.throw, ValueError("no"))) == ({0, 1, 2, 3, 4}, {False})


def test_a_callback_that_is_added_while_a_promise_fails_is_told_once() -> None:
    """It may be added after the promise has failed, and before all others have been told."""
    told: list[BaseException] = []
    error = ValueError("no")
    shared = new_promise(on_error=lambda _: shared.then(print, on_error=told.append))

    shared.throw(error)

    assert told == [error]


def test_a_callback_that_was_called_hears_of_no_error(app: Celery) -> None:
    """A task has ended, whether with an error or not; `get` raises that error afterwards."""
    app.backend.mark_as_failure("told", ValueError("no"))
    result = app.AsyncResult("told")
    called, told = [], []
    assert result.failed()
    result.then(called.append, on_error=told.append)

    with pytest.raises(ValueError, match="no"):
        result.get(timeout=LONG)

    assert (called, told) == ([result], [])


def test_a_promise_of_the_program_is_called_once_although_its_result_is_got_again(app: Celery) -> None:
    """A promise of vine, with a function, calls that each time."""
    app.backend.mark_as_failure("its-own", ValueError("no"))
    result = app.AsyncResult("its-own")
    calls: list[Any] = []
    result.on_ready = promise(calls.append)

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            result.get(timeout=LONG)

    assert calls == [result]


def test_callbacks_that_are_added_while_a_promise_is_cancelled_are_cancelled() -> None:
    """Before or after that."""
    for _ in range(300):
        promise = new_promise()

        assert told_by_threads(promise, promise.cancel) == (set(), {True})


def test_threads_that_wait_for_one_set_are_all_called_once(app: Celery) -> None:
    """Whichever of them is the first to watch its members."""
    for number in range(50):
        members = [app.AsyncResult(f"{number}-{member}") for member in range(3)]

        called = called_by_threads(
            ResultSet(members), *(partial(app.backend.mark_as_done, one.id, 1) for one in members)
        )

        assert called == [0, 1, 2, 3, 4]


def test_a_callback_is_called_once_however_often_the_result_comes(app: Celery) -> None:
    """A `get` brings it again to a handle that has forgotten it."""
    app.backend.mark_as_done("once", 1)
    result: AsyncResult[int] = app.AsyncResult("once")
    calls: list[Any] = []
    result.get(timeout=LONG)
    result.then(calls.append)

    result._cache = None
    result.get(timeout=LONG)

    assert calls == [result]


def test_then_is_called_when_the_result_comes(app: Celery, redis_client: redis.Redis) -> None:
    """On a thread of its own, where it may wait for others; at once if it is there."""
    calls: list[Any] = []
    app.AsyncResult("a").then(lambda result: calls.append(result.get(timeout=LONG)))
    group = app.GroupResult("g", [app.AsyncResult("a"), app.AsyncResult("b")])
    group.then(lambda result: calls.append(result.get(timeout=LONG)))
    eventually(lambda: subscribers(redis_client, "a") and subscribers(redis_client, "b"))

    app.backend.mark_as_done("a", 1)
    eventually(lambda: calls == [1])
    app.backend.mark_as_done("b", 2)

    eventually(lambda: calls == [1, [1, 2]])
    ready = app.AsyncResult("a")
    ready.get(timeout=LONG)
    ready.then(lambda result: calls.append("now"))
    assert calls[-1] == "now"


def test_a_result_that_is_held_weakly_and_dropped_makes_room_for_the_next(
    app: Celery, redis_client: redis.Redis
) -> None:
    """
    The next one often is at the same place in memory. It must not be taken for the first, as its callback would never
    be called, and nobody stays subscribed to the first.
    """
    calls: list[Any] = []
    for number in range(20):
        app.AsyncResult(f"dropped-{number}").then(calls.append, weak=True)
    kept = app.AsyncResult("kept")
    kept.then(lambda result: calls.append(result.id))

    eventually(lambda: subscribers(redis_client, "kept"))
    app.backend.mark_as_done("kept", 1)

    eventually(lambda: calls == ["kept"])
    eventually(lambda: not any(subscribers(redis_client, f"dropped-{number}") for number in range(20)))


def test_then_of_a_group_is_called_although_the_error_of_a_member_was_raised(app: Celery) -> None:
    """`then` calls the callback and does not raise the error once more."""
    app.backend.mark_as_done("a", 1)
    app.backend.mark_as_failure("b", LookupError("no b"))
    group = app.GroupResult("g", [app.AsyncResult("a"), app.AsyncResult("b")])
    with pytest.raises(LookupError):
        group.join(timeout=LONG)
    calls: list[Any] = []

    group.then(calls.append)

    assert calls == [group]


def test_waiting_goes_on_when_redis_comes_back(
    make_app: Callable[..., Celery], new_redis_server: Callable[..., RedisServer], request: pytest.FixtureRequest
) -> None:
    """A listener that finds nobody tries again, and ends when nobody waits any more."""
    server = new_redis_server()
    app = make_app(result_backend=server.url)
    listener: Listener = app.backend._listener
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.AsyncResult("a").get, timeout=60)
        eventually(lambda: listener._waiting)
        client = server.client()
        request.addfinalizer(client.close)
        for _ in range(3):
            eventually(lambda: client.pubsub_numsub("celery-task-meta-a")[0][1])
            client.client_kill_filter(_type="pubsub")
        app.backend.mark_as_done("a", 42)

        assert waiting.result() == 42


def test_a_listener_whose_connection_is_cut_once_it_is_subscribed_waits_longer_each_time(
    make_app: Callable[..., Celery], redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The way through a proxy may be broken for hours: that was twenty connections and log lines a second."""
    with CuttingProxy(redis_server.port) as proxy, ThreadPoolExecutor(1) as threads:
        proxy.cut(b"SUBSCRIBE", "after reply", times=6)
        app = make_app(result_backend=proxy.url)
        begun = time.monotonic()
        waiting = threads.submit(app.AsyncResult("a").get, timeout=LONG)
        eventually(lambda: proxy.cuts["after reply"] == 6)

        assert time.monotonic() - begun >= 0.05 + 0.1 + 0.2 + 0.4 + 0.8
        app.backend.mark_as_done("a", 42)
        assert waiting.result() == 42
    # A cut can show as an end or as a reset.
    assert_no_line_follows_itself(caplog)


def test_a_listener_whose_connection_is_cut_whenever_it_is_idle_connects_again_at_once(
    app: Celery, redis_client: redis.Redis
) -> None:
    """Some proxies cut what is idle for some seconds; a result that came in a long pause would wait for its end."""
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.AsyncResult("a").get, timeout=LONG)
        for _ in range(3):
            eventually(lambda: redis_client.client_list(_type="pubsub") and app.backend._listener._has_lasted)
            redis_client.client_kill_filter(_type="pubsub")
        app.backend.mark_as_done("a", 42)
        assert waiting.result() == 42


def test_a_listener_knows_who_watches_a_key(app: Celery) -> None:
    """To forget one of 10,000 awaited results, the others need not be looked at."""
    one, other = app.AsyncResult("one"), app.AsyncResult("other")
    for result in (one, other):
        result.then(print)
    listener = app.backend._listener

    assert listener.watching(b"celery-task-meta-one") == [one._deliver]
    one.forget()
    assert listener.watching(b"celery-task-meta-one") == []
    assert listener.watching(b"celery-task-meta-other") == [other._deliver]
    other.forget()


def test_an_outage_while_something_waits_is_logged_once(
    make_app: Callable[..., Celery],
    new_redis_server: Callable[..., RedisServer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line at each try would be 45 a minute in the log of a web server whose broker is away."""
    monkeypatch.setattr(listening, "_LONGEST_PAUSE_SECONDS", 0.01)
    tries: list[None] = []
    listen = Listener._listen

    def listen_and_count(listener: Listener, waker: listening.Waker) -> None:
        tries.append(None)
        listen(listener, waker)

    monkeypatch.setattr(Listener, "_listen", listen_and_count)
    server = new_redis_server()
    app = make_app(result_backend=server.url)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.AsyncResult("a").get, timeout=60)
        eventually(lambda: app.backend._listener._waiting)
        server.stop()
        begun = len(tries)
        eventually(lambda: len(tries) > begun + 5)
        server.start()
        app.backend.mark_as_done("a", 42)
        assert waiting.result() == 42

    # The lost connection, the refused one, and perhaps one that was reset as the server went.
    assert_no_line_follows_itself(caplog)


def test_every_outage_is_logged_while_results_are_polled(
    make_app: Callable[..., Celery], new_redis_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """The second one looks like the first, but in between results have come."""
    server = new_redis_server(config={"rename-command": 'SUBSCRIBE ""'})
    app = make_app(result_backend=server.url)
    with ThreadPoolExecutor(2) as threads:
        last = threads.submit(app.AsyncResult("last").get, timeout=LONG)
        for task_id in ("before the first", "before the second", "last"):
            waiting = threads.submit(app.AsyncResult(task_id).get, timeout=LONG)
            eventually(lambda task_id=task_id: app.backend.get_key_for_task(task_id) in app.backend._listener._waiting)
            app.backend.mark_as_done(task_id, 42)
            assert waiting.result() == 42
            if task_id != "last":
                caplog.clear()
                server.stop()
                eventually(lambda: "Lost the connection for results" in caplog.text)
                server.start()
        assert last.result() == 42


def test_a_forgotten_result_is_not_listened_for_any_more(app: Celery, redis_client: redis.Redis) -> None:
    """By whichever handle it is forgotten; Redis shows the channel as long as somebody listens."""
    calls: list[Any] = []
    channel = b"celery-task-meta-forgotten"
    app.AsyncResult("forgotten").then(calls.append)
    eventually(lambda: channel in redis_client.pubsub_channels())

    app.AsyncResult("forgotten").forget()

    eventually(lambda: channel not in redis_client.pubsub_channels())
    app.backend.mark_as_done("forgotten", 1)
    assert calls == []
