"""Starting programs that never outlive the test run, even when it is killed."""

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

LOG_TAIL_LINES = 40


def tied_to_this_process(command: Sequence[str]) -> list[str]:
    """
    *command*, wrapped so that the kernel kills it when this process dies, where util-linux's `setpriv` is there.

    The wrapper execs, so the process id stays that of the program. The kernel watches the thread that forked, not the
    process; a command started from any thread but the main one is therefore left as it is.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return list(command)
    return [setpriv, "--pdeathsig", "KILL", "--", *command]


def tail(log_path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log, for the message of a failure."""
    if not log_path.exists():
        return "(no log was written)"
    return "\n".join(log_path.read_text(errors="replace").splitlines()[-lines:]) or "(the log is empty)"
