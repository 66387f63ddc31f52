"""Sidecars that end: two at the same time, one again and again, and one while a child ends."""

import subprocess
import sys

import pytest

# The first one exits once the second is a zombie, so that its stop reaps both.
_TWO_THAT_END_TOGETHER = """
import os, signal, time
from pathlib import Path
from sidekiq_py.engine.prefork.forks import Forks
from sidekiq_py.engine.prefork.sidecar import Role, Sidecar

go_read, go_write = os.pipe()
pid_read, pid_write = os.pipe()

def first(parent):
    pid = int(os.read(pid_read, 100))
    signal.sigwait({signal.SIGTERM})
    os.write(go_write, b".")
    # Its parent reaps it only with this one, unless it is that fast.
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    return 0

def second(parent):
    os.read(go_read, 1)
    return 0

class Nobody:
    children = ()

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
forks = Forks()
sidecars = [Sidecar(Role(run, str), forks, Nobody()) for run in (first, second)]
for sidecar in sidecars:
    sidecar.keep()
os.write(pid_write, str(sidecars[1].process.pid).encode())
for sidecar in sidecars:
    sidecar.stop()
"""


def test_a_sidecar_that_ends_while_another_is_stopped_holds_up_nobody() -> None:
    """A process manager may send TERM to all of them at once."""
    done = subprocess.run([sys.executable, "-c", _TWO_THAT_END_TOGETHER], timeout=100, check=False)

    assert done.returncode == 0


# Its arguments: how old each sidecar is when it ends, in seconds.
_ONE_THAT_ENDS_AGAIN_AND_AGAIN = """
import sys, time
from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.forks import Forks
from sidekiq_py.engine.prefork.sidecar import Role, Sidecar

forks = Forks()
sidecar = Sidecar(Role(lambda parent: 1, str), forks, None)
for age in sys.argv[1:]:
    sidecar._starts.next_at = 0.0
    sidecar.keep()
    sidecar.process.born_at -= float(age)
    while not list(forks.reap()):
        time.sleep(0.001)
    sidecar.note_end(1, is_stopping=False)
    print(round(max(0.0, sidecar.next_start_at - monotonic())))
"""


@pytest.mark.parametrize(
    ("ages", "pauses"),
    [((5, 5, 5, 5, 5, 5), (1, 2, 4, 8, 10, 10)), ((60, 60), (0, 0)), ((5, 5, 60, 5), (1, 2, 0, 1))],
    ids=["never starts", "starts", "starts at last"],
)
def test_a_sidecar_that_always_ends_soon_is_started_ever_more_rarely(
    ages: tuple[int, ...], pauses: tuple[int, ...]
) -> None:
    """Also one that takes seconds to fail, as while Redis gives no answer: each start takes CPU and a log line."""
    program = [sys.executable, "-c", _ONE_THAT_ENDS_AGAIN_AND_AGAIN, *map(str, ages)]
    done = subprocess.run(program, timeout=100, check=True, capture_output=True, text=True)

    assert tuple(map(int, done.stdout.split())) == pauses


_ONE_THAT_MISSES_A_CHILD = """
import os, signal, threading
from types import SimpleNamespace
from sidekiq_py.engine.prefork.forks import Forks
from sidekiq_py.engine.prefork.sidecar import Role, Sidecar

def run(parent):
    def hear(message):
        print(message.word, *message.details, flush=True)
        if message.word == "GONE":
            os._exit(0)

    parent.listen(hear, on_end=lambda: os._exit(1))
    threading.Event().wait()

forks = Forks()
sidecar = Sidecar(Role(run, str), forks, None)
child = SimpleNamespace(pid=7)
sidecar.keep()
sidecar.process.send_signal(signal.SIGKILL)
os.waitid(os.P_PID, sidecar.process.pid, os.WEXITED | os.WNOWAIT)
[ended] = forks.reap()
sidecar.note_end(ended.exit_code, is_stopping=False)
sidecar.pass_on(child, ("metrics", "1"))
sidecar.note_gone(child)
sidecar._starts.next_at = 0.0
sidecar.keep()
os.waitid(os.P_PID, sidecar.process.pid, os.WEXITED | os.WNOWAIT)
"""


def test_the_next_sidecar_hears_the_last_words_of_a_child_that_ended_without_one() -> None:
    """They are its counts for `/metrics`, which would fall."""
    program = [sys.executable, "-c", _ONE_THAT_MISSES_A_CHILD]
    done = subprocess.run(program, timeout=100, check=True, stdout=subprocess.PIPE, text=True)

    assert done.stdout.splitlines() == ["SAID 7 metrics 1", "GONE 7"]
