"""A signal is heard whichever thread the system hands it to."""

import subprocess
import sys

import pytest

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


HAS_A_HANDLER_OF_ITS_OWN = """
import os, signal
from sidekiq_py.engine.signals import SignalInbox

inbox = SignalInbox()
inbox.call_at("HUP", lambda: inbox.put("quit"))
inbox.watch(["WINCH"], beside_jobs={beside_jobs})
signal.signal(signal.SIGTERM, lambda *_: print("the program's"))
for name in ("TERM", "WINCH", "HUP"):
    os.kill(os.getpid(), signal.Signals["SIG" + name])
print(inbox.has("QUIT"), [inbox.next(0), inbox.next(0), inbox.next(0)])
"""


@pytest.mark.parametrize(
    ("beside_jobs", "heard"), [(False, ["WINCH", "QUIT", None]), (True, ["TERM", "WINCH", "QUIT"])]
)
def test_a_function_of_the_program_has_its_signal_and_one_of_a_job_does_not(
    beside_jobs: bool, heard: list[str | None]
) -> None:
    """In a process that runs jobs in its main thread, none may make it deaf."""
    ran = subprocess.run(
        [sys.executable, "-c", HAS_A_HANDLER_OF_ITS_OWN.format(beside_jobs=beside_jobs)],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )

    assert ran.stdout == f"the program's\nTrue {heard}\n"


OWN_HANDLERS = """
import os, signal
from sidekiq_py.engine.signals import SignalInbox

inbox = SignalInbox()
inbox.call_at("HUP", lambda: print("called"))
inbox.watch(beside_jobs={beside_jobs})
before = signal.getsignal(signal.SIGTERM)
{what}
print(inbox.next(1), inbox.next(0))
"""


@pytest.mark.parametrize("beside_jobs", [False, True])
@pytest.mark.parametrize(
    ("what", "heard"),
    [
        ("signal.signal(signal.SIGTERM, before); os.kill(os.getpid(), signal.SIGTERM)", "TERM None\n"),
        (
            "signal.signal(signal.SIGTERM, lambda *given: before(*given)); os.kill(os.getpid(), signal.SIGTERM)",
            "TERM None\n",
        ),
        ("os.kill(os.getpid(), signal.SIGTERM); signal.signal(signal.SIGTERM, lambda *_: None)", "TERM None\n"),
        ("inbox.put('hup')", "HUP None\n"),
        ("os.kill(os.getpid(), signal.SIGHUP)", "called\nNone None\n"),
    ],
    ids=["ours", "one that calls ours", "one that came later", "left in Redis", "a function of ours"],
)
def test_each_signal_is_heard_once_by_whom_it_was_sent_to(beside_jobs: bool, what: str, heard: str) -> None:
    """Whatever a program puts in our place, before or behind."""
    ran = subprocess.run(
        [sys.executable, "-c", OWN_HANDLERS.format(beside_jobs=beside_jobs, what=what)],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )

    assert ran.stdout == heard


LEFT_A_CLOSED_DESCRIPTOR = """
import os, signal
from sidekiq_py.engine.signals import SignalInbox

inbox = SignalInbox()
inbox.watch(beside_jobs=True)
read_fd, write_fd = os.pipe()
os.set_blocking(write_fd, False)
signal.set_wakeup_fd(write_fd)
os.close(write_fd)
for name in ("TERM", "TSTP"):
    os.kill(os.getpid(), signal.Signals["SIG" + name])
print([inbox.next(0), inbox.next(0), inbox.next(0)])
"""


def test_a_signal_is_heard_though_a_job_has_closed_the_descriptor_for_the_numbers() -> None:
    """Once each, and nothing is raised in the code that the signal interrupts."""
    ran = subprocess.run(
        [sys.executable, "-c", LEFT_A_CLOSED_DESCRIPTOR], capture_output=True, text=True, check=True, timeout=20
    )

    assert ran.stdout == "['TERM', 'TSTP', None]\n"


LEFT_ANOTHER_FILE_IN_ITS_PLACE = """
import os, signal, socket, time
from sidekiq_py.engine.signals import SignalInbox

inbox = SignalInbox()
inbox.watch(beside_jobs={beside_jobs})
connection, peer = socket.socketpair()
connection.settimeout(5)
null = os.open(os.devnull, os.O_RDWR)
{what}
inbox.watch_again()
before = time.monotonic()
nothing = inbox.next(0.02)
has_waited = time.monotonic() - before >= 0.02
for name in ("TERM", "TSTP"):
    os.kill(os.getpid(), signal.Signals["SIG" + name])
inbox.put("TTIN")
print([nothing, has_waited], [inbox.next(0) for _ in range(4)])
connection.close()
for end in (inbox.fd, inbox._write_fd):
    try:
        os.close(end)
    except OSError:
        pass
print(peer.recv(100))
"""


@pytest.mark.parametrize("beside_jobs", [False, True])
@pytest.mark.parametrize("end", ["fd", "_write_fd"])
@pytest.mark.parametrize(
    "what",
    ["os.close(inbox.{end})", "os.dup2(null, inbox.{end})", "os.dup2(connection.fileno(), inbox.{end})"],
    ids=["nothing", "a file", "a connection"],
)
def test_a_signal_is_heard_though_a_job_has_closed_a_descriptor_that_was_not_its_own(
    what: str, end: str, beside_jobs: bool
) -> None:
    """
    A file or connection that is closed twice takes the worker's own pipe along; the next one gets its number.

    The worker still waits without using the CPU, and writes nothing into the job's connection.
    """
    program = LEFT_ANOTHER_FILE_IN_ITS_PLACE.format(beside_jobs=beside_jobs, what=what.format(end=end))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20)

    assert ran.stdout == "[None, True] ['TERM', 'TSTP', 'TTIN', None]\nb''\n"
