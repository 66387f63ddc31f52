"""Who is told that an owner has died, and what happens when nobody hears it."""

import os
from collections.abc import Iterator

import pytest

from sidekiq_py.engine.prefork.child_process import ChildProcess, Limit, Reason, State
from sidekiq_py.engine.prefork.dead_owners import DeadOwners
from sidekiq_py.engine.prefork.pipes import LinePipe, Outbox, readable
from tests.support.waiting import eventually

OWNER = "host:1:a"


class Siblings:
    """Children that are nothing but pipes; the test reads what they are told."""

    def __init__(self) -> None:
        self.children: list[ChildProcess] = []
        self.fds: list[int] = []
        self._downs: dict[int, LinePipe] = {}
        self.news = DeadOwners(self)

    @property
    def staying(self) -> list[ChildProcess]:
        """Those that are counted on."""
        return [child for child in self.children if child.is_staying]

    @property
    def ready(self) -> list[ChildProcess]:
        """Those that read what they are told."""
        return [child for child in self.children if child.is_ready]

    def start(self) -> ChildProcess:
        """One more, which still starts."""
        up, down = os.pipe(), os.pipe()
        self.fds += [*up, *down]
        child = ChildProcess(len(self.children) + 1, LinePipe(up[0]), Outbox(down[1]), 0.0)
        self._downs[child.pid] = LinePipe(down[0])
        self.children.append(child)
        return child

    def add(self) -> ChildProcess:
        """One that is ready."""
        child = self.start()
        child.note_ready()
        return child

    def stop(self, child: ChildProcess, reason: Reason) -> None:
        """Nobody is stopped here."""

    def was_asked(self, child: ChildProcess) -> bool:
        """It was told of the owner since this was called before."""
        self.news.step()
        down = self._downs[child.pid]
        messages = (readable([down.fd], 0) and down.read()) or ()
        return [(message.word, message.details) for message in messages] == [("DEAD", (OWNER,))]


@pytest.fixture
def siblings() -> Iterator[Siblings]:
    """Nobody yet."""
    one = Siblings()
    yield one
    for fd in one.fds:
        os.close(fd)


def test_the_next_child_is_told_where_one_does_not_confirm(siblings: Siblings) -> None:
    """Its job may hold the interpreter lock for hours."""
    deaf, other = siblings.add(), siblings.add()

    siblings.news.add(OWNER)

    assert siblings.was_asked(deaf)
    assert not siblings.was_asked(other)
    eventually(lambda: siblings.was_asked(other))


def test_nobody_else_is_told_once_a_child_has_confirmed(siblings: Siblings) -> None:
    """Its jobs are brought back once."""
    asked, _ = siblings.add(), siblings.add()
    siblings.news.add(OWNER)
    siblings.news.step()

    siblings.news.note_confirmed(OWNER, asked)

    assert siblings.news.next_at() is None


def test_the_next_child_is_told_where_one_dies_that_had_confirmed(siblings: Siblings) -> None:
    """Killed along with the first one it brings nothing back, and the jobs would wait ten seconds to be found."""
    asked, other = siblings.add(), siblings.add()
    siblings.news.add(OWNER)
    assert siblings.was_asked(asked)
    siblings.news.note_confirmed(OWNER, asked)
    siblings.children.remove(asked)

    siblings.news.note_end(asked)

    assert siblings.was_asked(other)


def test_a_child_whose_job_may_be_frozen_is_told_last(siblings: Siblings) -> None:
    """Its hard limit may be due."""
    limited, free = siblings.add(), siblings.add()
    limited.limit = Limit("1.0", "host:2:b", "1.0:a queue", 0.0)

    siblings.news.add(OWNER)

    assert siblings.was_asked(free)


def test_news_waits_for_a_child_that_can_hear_it(siblings: Siblings) -> None:
    """One that starts hears it when it is ready; one that leaves is not told."""
    leaving, starting = siblings.add(), siblings.start()
    leaving.note_leaving(kill_at=60.0)
    siblings.news.add(OWNER)
    assert not siblings.was_asked(leaving)
    assert siblings.news.next_at() is None

    starting.note_ready()

    assert siblings.was_asked(starting)
    assert starting.state is State.READY


def test_a_child_that_ends_is_told_where_none_stays(siblings: Siblings) -> None:
    """In a stop. If none were told, a job of a killed child would stay in flight after the worker's end."""
    ending, next_one = siblings.add(), siblings.add()
    for child in (ending, next_one):
        child.note_leaving(kill_at=60.0)

    siblings.news.add(OWNER)

    assert siblings.was_asked(ending)
    siblings.news.note_confirmed(OWNER, ending)
    ending.state = State.DEAD
    siblings.news.note_end(ending)
    assert siblings.was_asked(next_one)
