"""The parent of `--processes N` and children that have yet to import their program."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from sidekiq_py.engine.child_starts import ChildStarts
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import os, pathlib, time
import sidekiq_py as sidekiq

here = pathlib.Path(__file__).parent
(here / f"importing-{os.getpid()}").touch()
while not (here / "gate").exists():
    time.sleep(0.01)
exec((here / "at_import").read_text())

@sidekiq.job(name="Nothing")
def nothing():
    pass
"""


class Family:
    """A parent and its children, whose program waits at a gate while it is imported."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self._folder = folder
        (folder / "gated_jobs.py").write_text(PROGRAM)
        self.at_import("")
        self.parent = WorkerProcess(
            "gated_jobs",
            redis_url=redis_url,
            arguments=["--processes", "2", "-c", "1", "-t", "1"],
            python_path=[folder],
        )

    def at_import(self, code: str) -> None:
        """What the program does when it is imported from now on."""
        (self._folder / "at_import").write_text(code)

    def open_gate(self) -> None:
        """Let imports go on."""
        (self._folder / "gate").touch()

    @property
    def imports(self) -> int:
        """How many processes have begun to import the program."""
        return len(list(self._folder.glob("importing-*")))

    @property
    def children(self) -> list[int]:
        """Of the parent, from /proc."""
        pid = self.parent.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def family(tmp_path: Path, redis_url: str) -> Iterator[Family]:
    """Not started yet."""
    one = Family(tmp_path, redis_url)
    with at_the_end(one.parent):
        yield one


@contextmanager
def at_the_end(worker: WorkerProcess) -> Iterator[None]:
    """Shows the log, and stops the worker."""
    try:
        yield
    finally:
        worker.print_log_tail()
        worker.stop(within_seconds=5)


def test_term_reaches_children_that_import_their_program(family: Family) -> None:
    """They end at once, and take no jobs after it."""
    family.parent.start()
    eventually(lambda: family.imports == 2, within_seconds=15)

    family.parent.send_signal(signal.SIGTERM)

    assert family.parent.wait(5) == 0
    assert "was killed by" not in family.parent.log


def test_a_family_that_is_quieted_while_it_starts_is_quiet(family: Family, redis_client: redis.Redis) -> None:
    """A process that still imports would be stopped by TSTP and ended by USR2."""
    family.parent.start()
    eventually(lambda: family.imports == 2, within_seconds=15)
    children = family.children

    for number in (signal.SIGTSTP, signal.SIGUSR2, signal.SIGTTIN):
        family.parent.send_signal(number)
    family.open_gate()

    family.parent.wait_until_ready(processes=2)
    assert family.children == children
    eventually(lambda: [redis_client.hget(name, "quiet") for name in family.parent.identities()] == [b"true"] * 2)


@pytest.mark.parametrize("code", [0, 3])
def test_a_restarted_program_that_ends_while_it_is_imported_changes_nothing(family: Family, code: int) -> None:
    """The family stays as it is, and the next restart works."""
    family.open_gate()
    family.parent.start()
    family.parent.wait_until_ready(processes=2)
    old = set(family.children)
    family.at_import(f"os._exit({code})")

    family.parent.send_signal(signal.SIGHUP)

    eventually(lambda: "the restarted program does not start" in family.parent.log, within_seconds=15)
    assert f"ended with exit code {code} before it was ready" in family.parent.log
    assert set(family.children) == old

    family.at_import("")
    family.parent.send_signal(signal.SIGHUP)
    eventually(lambda: len(family.children) == 2 and not old & set(family.children), within_seconds=15)


@pytest.mark.parametrize(("code", "ends_with"), [(0, 1), (3, 3)])
def test_a_family_that_cannot_start_gives_up(family: Family, code: int, ends_with: int) -> None:
    """Whoever keeps the service sees a failure, as with a worker without children."""
    family.open_gate()
    family.at_import(f"os._exit({code})")

    family.parent.start()

    assert family.parent.wait(25) == ends_with
    assert family.imports == 6
    assert "no child has started in 6 tries" in family.parent.log


def test_a_pause_stays_within_bounds_after_thousands_of_deaths() -> None:
    """Redis may be away for a day."""
    starts = ChildStarts(2)

    pauses = [starts.note_death(was_ready=False, age_seconds=1, now=0) for _ in range(5000)]

    assert pauses[:5] == [1, 2, 4, 8, 10]
    assert pauses[-1] == 10
    assert starts.next_at == 10


def test_a_family_that_has_once_started_does_not_give_up() -> None:
    """Its children may wait for a Redis that comes back."""
    starts = ChildStarts(1)
    starts.note_ready()

    for _ in range(100):
        starts.note_death(was_ready=False, age_seconds=1, now=0)

    assert not starts.are_hopeless


def test_a_child_that_worked_for_a_while_is_replaced_at_once() -> None:
    """Its death says nothing of the next one's start."""
    starts = ChildStarts(1)
    starts.note_ready()

    assert starts.note_death(was_ready=True, age_seconds=3, now=0) is None
    assert starts.next_at == 0
