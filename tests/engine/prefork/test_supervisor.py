"""The parent of `--processes N` and children that have yet to import their program."""

import itertools
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sidekiq_py import Client
from sidekiq_py.engine.prefork.child_starts import ChildStarts
from tests.support.process_states import children_of
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import os, pathlib, stat, time
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
        self._redis_url = redis_url
        (folder / "gated_jobs.py").write_text(PROGRAM)
        self.at_import("")
        self.processes(2)

    def processes(self, number: int) -> None:
        """How many children the parent will keep."""
        self.parent = WorkerProcess(
            "gated_jobs",
            redis_url=self._redis_url,
            arguments=["--processes", str(number), "-c", "1", "-t", "1"],
            python_path=[self._folder],
        )

    def push(self, name: str, *args: object) -> None:
        """Enqueue a job of the program."""
        Client(self._redis_url, sidekiq_version="7").push({"class": name, "args": list(args)})

    def has(self, name: str) -> bool:
        """A job has made this file."""
        return (self._folder / name).exists()

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
        return children_of(self.parent.pid)


@pytest.fixture
def family(tmp_path: Path, redis_url: str) -> Iterator[Family]:
    """Not started yet."""
    one = Family(tmp_path, redis_url)
    try:
        yield one
    finally:
        one.parent.print_log_tail()
        one.parent.stop(within_seconds=5)


def test_term_reaches_children_that_import_their_program(family: Family) -> None:
    """They end at once, and take no jobs after it."""
    family.parent.start()
    eventually(lambda: family.imports == 2, within_seconds=60)

    family.parent.send_signal(signal.SIGTERM)

    assert family.parent.wait(60) == 0
    assert "was killed by" not in family.parent.log


def test_a_family_that_is_quieted_while_it_starts_is_quiet(family: Family, redis_client: redis.Redis) -> None:
    """A process that still imports would be stopped by TSTP and ended by USR2."""
    family.parent.start()
    eventually(lambda: family.imports == 2, within_seconds=60)
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

    eventually(lambda: "the restarted program does not start" in family.parent.log, within_seconds=60)
    assert f"ended with exit code {code} before it was ready\n" in family.parent.log
    assert set(family.children) == old

    family.at_import("")
    family.parent.send_signal(signal.SIGHUP)
    eventually(lambda: len(family.children) == 2 and not old & set(family.children), within_seconds=60)


@pytest.mark.parametrize(("code", "ends_with"), [(0, 1), (3, 3)])
def test_a_family_that_cannot_start_gives_up(family: Family, code: int, ends_with: int) -> None:
    """Whoever keeps the service sees a failure, as with a worker without children."""
    family.open_gate()
    family.at_import(f"os._exit({code})")

    family.parent.start()

    assert family.parent.wait(60) == ends_with
    # There are two children, so another one may be importing when the sixth fails.
    assert family.imports in (6, 7)
    assert "a child died soon after its start; waiting 1.0 s before another one starts" in family.parent.log
    assert "no child has started in 6 tries" in family.parent.log


def test_a_parent_that_cannot_fork_for_a_while_says_so_and_goes_on(family: Family) -> None:
    """The log must not say that a child died soon after its start when none has started."""
    family.open_gate()
    family.parent.start().wait_until_ready(processes=2)
    parent, open_fds = family.parent.pid, {int(fd) for fd in os.listdir(f"/proc/{family.parent.pid}/fd")}
    before = resource.prlimit(parent, resource.RLIMIT_NOFILE)
    # A child has two pipes, so two descriptors become free below this limit when one dies, and a fork needs four.
    lowest_free = next(fd for fd in itertools.count() if fd not in open_fds)
    resource.prlimit(parent, resource.RLIMIT_NOFILE, (lowest_free, before[1]))

    os.kill(family.children[0], signal.SIGKILL)

    eventually(lambda: "a child could not be forked: [Errno 24] Too many open files; waiting" in family.parent.log)
    resource.prlimit(parent, resource.RLIMIT_NOFILE, before)
    eventually(lambda: len(family.children) == 2)


CRASH_WHEN_READY = """
import threading
time.sleep(2.1)
sidekiq.on("startup")(lambda: threading.Timer(0.5, lambda: os._exit(3)).start())
"""


def test_a_child_that_crashes_as_soon_as_it_is_ready_is_replaced_after_a_pause(family: Family) -> None:
    """However long its program takes to import: one after another started at once, and kept a core busy for nothing."""
    family.processes(1)
    family.open_gate()
    family.at_import(CRASH_WHEN_READY)

    family.parent.start()

    eventually(lambda: "a child died soon after its start; waiting 1.0 s" in family.parent.log, within_seconds=60)


EXIT_ONCE = """
@sidekiq.job(name="Leave")
def leave(code):
    path = here / "left"
    if not path.exists():
        path.touch()
        os._exit(code)
    (here / "ran").touch()
"""

BABBLE = """
@sidekiq.job(name="Babble")
def babble():
    words = b"OWNER|BEGIN|BEGIN soon me it|BEGIN nan me it|LOAD x|SETTLED|HEARD|ANSWER|SHOUT".split(b"|")
    for fd in range(3, 256):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b"\\n".join([b"\\xff\\xfe", b"", *words, b""]))
        except OSError:
            pass
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_that_ends_its_process_with_exit_code_0_stops_nobody_else(
    family: Family, redis_client: redis.Redis, processes: int
) -> None:
    """Whoever leaves says so before: the child is replaced, and its job runs again."""
    family.processes(processes)
    family.open_gate()
    family.at_import(EXIT_ONCE)
    family.parent.start().wait_until_ready(processes=processes)

    family.push("Leave", 0)

    eventually(lambda: family.has("ran"))
    eventually(lambda: len(family.children) == processes)
    # With two children, the other one may have run the job before the parent says so.
    eventually(lambda: "ended with exit code 0; its jobs go back to their queues" in family.parent.log)
    assert family.parent.is_running


def test_a_child_that_was_stopped_alone_comes_back_with_a_restart(family: Family) -> None:
    """As by a Web UI; until then there is one less."""
    family.open_gate()
    family.parent.start().wait_until_ready(processes=2)
    stopped, kept = family.children

    os.kill(stopped, signal.SIGTERM)

    eventually(lambda: family.children == [kept])
    assert f"child {stopped} was stopped and is not replaced; children left: 1" in family.parent.log

    family.parent.send_signal(signal.SIGHUP)
    eventually(lambda: len(family.children) == 2 and kept not in family.children)
    assert "Rolling restart of 1 child\n" in family.parent.log


def test_a_child_may_say_anything(family: Family, redis_client: redis.Redis) -> None:
    """A job may write to every file that is open; the parent passes over what it does not understand."""
    family.open_gate()
    family.at_import(BABBLE)
    family.parent.start().wait_until_ready(processes=2)
    children = family.children

    family.push("Babble")

    eventually(lambda: "ignoring a message from process" in family.parent.log)
    eventually(lambda: redis_client.get("stat:processed") == b"1")
    assert family.children == children
    family.parent.send_signal(signal.SIGTERM)
    assert family.parent.wait(60) == 0


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

    assert not starts.has_given_up


def test_a_child_that_worked_for_a_while_is_replaced_at_once() -> None:
    """Its death says nothing of the next one's start."""
    starts = ChildStarts(1)
    starts.note_ready()

    assert starts.note_death(was_ready=True, age_seconds=3, now=0) is None
    assert starts.next_at == 0
