"""Pushes from many threads, and from both sides of a fork."""

import ctypes
import json
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client import jids
from sidekiq_py.client.jids import new_jid, new_jids
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.client.conftest import Pushed

pytestmark = pytest.mark.usefixtures("configured")


def in_a_child(action: Callable[[], object]) -> None:
    """Run *action* in a forked child and wait for it; it must not raise."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def end_soon() -> None:
    """Let this process end in ten seconds, should it wait for ever."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)


def test_a_jid_is_24_hexadecimal_digits() -> None:
    """As Ruby's `SecureRandom.hex(12)`."""
    assert len(new_jid()) == 24
    assert int(new_jid(), 16) >= 0
    assert len(set(new_jids(1000))) == 1000


def test_threads_push_side_by_side(pushed: Pushed) -> None:
    """Every job arrives once, under a jid of its own."""
    job = sidekiq.ruby_job("A")
    given: list[str | None] = []

    def push_many(number: int) -> None:
        given.extend([job.perform_async(number, n) for n in range(100)])
        given.extend(job.perform_bulk([[number, n] for n in range(100)], batch_size=30))

    threads = [threading.Thread(target=push_many, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(given)) == 1600
    assert {json.loads(raw)["jid"] for raw in pushed.queue()} == set(given)


def test_a_client_can_be_closed_while_threads_push(configured: str) -> None:
    """They take connections that the close has just seen, as during `configure` in a program that pushes already."""

    class TakenMeanwhile(deque[Link]):
        def pop(self) -> Link:  # type: ignore[override]
            if len(self) == 1:
                super().pop().close()
            return super().pop()

    pool = Pool(RedisSettings(configured))
    pool._free = TakenMeanwhile(pool.new_link() for _ in range(2))

    pool.close()

    assert not pool._free


def test_threads_that_share_a_forked_child_start_their_ids_afresh_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One discards what another has just drawn."""

    class Discarded(deque[str]):
        def extend(self, iterable: Iterable[str]) -> None:
            super().extend(iterable)
            self.clear()

    monkeypatch.setattr(jids, "_store", Discarded())

    assert len(new_jid()) == 24


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_gives_other_jids_than_its_parent() -> None:
    """What was in store at the fork is forgotten there."""
    new_jid()
    reader, writer = os.pipe()

    in_a_child(lambda: os.write(writer, "".join(new_jid() for _ in range(100)).encode()))

    text = os.read(reader, 2400).decode()
    child = {text[start : start + 24] for start in range(0, 2400, 24)}
    assert len(child) == 100
    assert child.isdisjoint(new_jid() for _ in range(1000))
    os.close(reader)
    os.close(writer)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_while_another_thread_configures_can_be_configured(
    monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    """An extension takes its time; the server forks its workers meanwhile."""
    forked, well = [], []

    def configure_in_a_child() -> None:
        in_a_child(lambda: (end_soon(), sidekiq.configure(redis_url=redis_url)))
        well.append(True)

    def fork() -> None:
        if not forked:
            forked.append(threading.Thread(target=configure_in_a_child))
            forked[0].start()
            forked[0].join()

    monkeypatch.setattr(program, "_listeners", [fork])
    sidekiq.configure(redis_url=redis_url)

    assert well


def test_a_fork_that_python_is_not_told_of_is_noticed_too() -> None:
    """uWSGI forks so."""
    new_jid()
    reader, writer = os.pipe()

    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        os.write(writer, new_jid().encode())
        os._exit(0)
    os.waitpid(pid, 0)

    assert os.read(reader, 24).decode() != new_jid()
    os.close(reader)
    os.close(writer)


def test_threads_that_share_such_a_child_leave_the_connections_of_its_parent_alone(configured: str) -> None:
    """One must not find them while another discards them."""
    taken: list[Link] = []

    class Discarding(Pool):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "_free" and taken:
                other = threading.Thread(target=lambda: taken.append(self.acquire()))
                other.start()
                # It comes no further if it has to wait until all are discarded.
                other.join(0.3)
            super().__setattr__(name, value)

    pool = Discarding(RedisSettings(configured))
    taken.append(pool.new_link())
    pool.release(taken[0])

    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        end_soon()
        pool.acquire()
        os._exit(taken.count(taken[0]) - 1)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0


def test_a_connection_that_such_a_child_keeps_for_itself_stays_open(configured: str) -> None:
    """As the one on which it listens for results: the first push discards only what is the parent's."""
    pool = Pool(RedisSettings(configured))

    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        end_soon()
        kept = pool.new_link()
        kept.command("PING")
        pool.command("PING")
        os._exit(not kept.is_open)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_parent_and_child_push_each_on_connections_of_its_own(pushed: Pushed) -> None:
    """Replies never get mixed up, and the parent's connection outlives the child."""
    job = sidekiq.ruby_job("A")
    job.perform_async("before")

    for _ in range(3):
        in_a_child(lambda: [job.perform_async("child") for _ in range(50)])
        job.perform_async("parent")

    words = [json.loads(raw)["args"][0] for raw in pushed.queue()]
    assert (words.count("child"), words.count("parent")) == (150, 3)


def test_a_time_limit_between_two_replies_leaves_no_reply_behind(pushed: Pushed) -> None:
    """What strikes in the middle of a push closes its connection: the next one reads its own replies."""
    client = sidekiq.Client()
    client.push({"class": "A", "args": [0]})
    link = client.pool.acquire()
    receive, calls = type(link).receive, 0

    def interrupt(self: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise TimeoutError("the job's time is up")
        return receive(self)  # type: ignore[arg-type]

    client.pool.release(link)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(link), "receive", interrupt)
        with pytest.raises(TimeoutError):
            client.push({"class": "A", "args": [1]})

    assert client.pool.command("ECHO", "mine") == b"mine"
