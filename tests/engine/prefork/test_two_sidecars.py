"""Two sidecars that end at the same time."""

import subprocess
import sys

# The first one exits once the second is a zombie, so that its stop reaps both.
_PROGRAM = """
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
    done = subprocess.run([sys.executable, "-c", _PROGRAM], timeout=100, check=False)

    assert done.returncode == 0
