"""Two sidecars that end at the same time."""

import subprocess
import sys

# The first one exits after the second has ended, so that its stop reaps both.
_PROGRAM = """
import os, signal, time
from sidekiq_py.engine.prefork.forks import Forks
from sidekiq_py.engine.prefork.sidecar import Role, Sidecar

go_read, go_write = os.pipe()
end_read, end_write = os.pipe()

def first(parent):
    os.close(end_write)
    signal.sigwait({signal.SIGTERM})
    os.write(go_write, b".")
    os.read(end_read, 1)
    time.sleep(0.2)
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
os.close(end_write)
for sidecar in sidecars:
    sidecar.stop()
"""


def test_a_sidecar_that_ends_while_another_is_stopped_holds_up_nobody() -> None:
    """A process manager may send TERM to all of them at once."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], timeout=10, check=False)

    assert done.returncode == 0
