"""
A parent of two children and a sidecar, without Redis; run as `python -m tests.engine.prefork.prefork_program
<folder>`.

The sidecar says what files named `say-…` in the folder hold and appends what it hears to `heard`; children answer
what they are asked, and note what they are told in `told`.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from sidekiq_py.config import Config
from sidekiq_py.engine.prefork.pipes import Message, Parent
from sidekiq_py.engine.prefork.sidecar import Role
from sidekiq_py.engine.prefork.supervisor import Supervisor
from sidekiq_py.redis_access.connection.settings import RedisSettings


def append(path: Path, line: str) -> None:
    """One write, so that lines of several processes do not mix."""
    with path.open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def be_child(folder: Path, parent: Parent) -> int:
    """Answer until told to stop, and then for as long as the file `busy` exists."""
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())

    def handle_message(message: Message) -> None:
        if message.word == "TELL":
            append(folder / "told", f"{os.getpid()} {' '.join(message.details)}")
        elif message.word == "ASK":
            number, text = message.details[0], " ".join(message.details[1:])
            parent.say("ANSWER", number, "x" * 1_000_000 if text == "much" else f"<{text}>")

    parent.listen(handle_message, on_end=is_over.set)
    parent.say("READY")
    parent.say("SAY", "I am here")
    is_over.wait()
    append(folder / "stopping", str(os.getpid()))
    while (folder / "busy").exists():
        time.sleep(0.01)
    return 0


def be_sidecar(folder: Path, parent: Parent) -> int:
    """Say what files say."""
    if (folder / "deaf").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    append(folder / "sidecars", str(os.getpid()))
    parent.listen(
        lambda message: append(folder / "heard", " ".join((message.word, *message.details))),
        on_end=lambda: os._exit(0),
    )
    while True:
        for path in sorted(folder.glob("say-*")):
            for line in path.read_text(errors="surrogateescape").splitlines():
                parent.say(*line.split(" "))
            path.unlink()
        time.sleep(0.01)


def main() -> int:
    """Run the family until TERM."""
    folder = Path(sys.argv[1])

    def obey(text: str) -> str:
        append(folder / "obeyed", text)
        if text == "fail":
            raise RuntimeError("on purpose")
        return f"[{text}]"

    role = Role(run=lambda parent: be_sidecar(folder, parent), handle=obey)
    config = Config(redis=RedisSettings("redis://127.0.0.1:1/0"), shutdown_timeout_seconds=20)

    def fail_at_hup(name: str) -> None:
        if name == "HUP":
            raise RuntimeError("on purpose")

    return Supervisor(
        config, 2, lambda parent: be_child(folder, parent), None, on_signal=fail_at_hup, sidecar=role
    ).run()


if __name__ == "__main__":
    sys.exit(main())
