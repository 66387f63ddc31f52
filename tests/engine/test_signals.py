"""A signal is heard whichever thread the system hands it to."""

import subprocess
import sys

WAITS_FOR_A_SIGNAL_OF_ANOTHER_THREAD = """
import os, pathlib, signal, threading
from sidekiq_py.engine.signals import SignalInbox

inbox = SignalInbox()
inbox.watch()

def send():
    # The third field of stat is S once the main thread sleeps in its wait.
    while pathlib.Path(f"/proc/self/task/{os.getpid()}/stat").read_text().rsplit(")", 1)[1].split()[0] != "S":
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Event().wait()

threading.Thread(target=send, daemon=True).start()
print(inbox.next(), flush=True)
os._exit(0)
"""


def test_a_signal_that_another_thread_took_wakes_the_main_thread() -> None:
    """After SIGSTOP and SIGCONT the kernel hands a waiting SIGTERM to any thread."""
    ran = subprocess.run(
        [sys.executable, "-c", WAITS_FOR_A_SIGNAL_OF_ANOTHER_THREAD],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )

    assert ran.stdout == "TERM\n"
