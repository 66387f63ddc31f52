"""A node of remote control, in a thread of its own."""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sidekiq_celery.utils.collections import AttributeDict
from sidekiq_py.extension import monotonic
from sidekiq_py.worker import wake_pipe


class Node:
    """
    Listens on kombu's pidbox, and carries out commands one after the other.

    Args:
        hostname: Its name.
        thread_name: The name of its thread.

    Attributes:
        state: The first argument of every command.
        handlers: The commands by name.
        connection: The current connection; set by `listen`.
        has_tried: Set once it listens, or has failed to for the first time.
        is_stopping: Set once it should end.
        wake_fd: Becomes readable then.
    """

    state: AttributeDict
    handlers: Mapping[str, Callable[..., Any]]
    stop_seconds = 3.0

    def __init__(self, app: Any, hostname: str, thread_name: str) -> None:
        self.app = app
        self.hostname = hostname
        self.connection: Any = None
        self.has_tried = threading.Event()
        self.is_stopping = threading.Event()
        self.wake_fd, self._wake_write = wake_pipe(self)
        self._thread = threading.Thread(target=self.run, name=thread_name, daemon=True)

    def start(self) -> None:
        """Start to listen. Does not wait for Redis."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, and wait `stop_seconds` for that at most. Stopping twice is fine."""
        if self.is_stopping.is_set() or not self._thread.is_alive():
            return
        self.is_stopping.set()
        os.write(self._wake_write, b".")
        deadline = monotonic() + self.stop_seconds
        # It may be in the middle of a long command, or wait for a Redis that hangs.
        self._thread.join(self.stop_seconds / 2)
        # In a thread of its own, because the last event waits for Redis, too.
        last = threading.Thread(target=self.has_stopped, name=f"{self._thread.name}.last", daemon=True)
        last.start()
        for thread in (last, self._thread):
            thread.join(deadline - monotonic())

    # ---- for subclasses

    def run(self) -> None:
        """Called in the thread; calls `listener.listen`, which imports kombu."""
        raise NotImplementedError

    def has_stopped(self) -> None:
        """Called at the end, in a thread of its own, even if a command is still running or Redis hangs."""

    def tick(self) -> None:
        """Called about once a second."""

    def answers(self, method: str) -> bool:
        """Whether to carry out a command that is addressed to this node."""
        return True

    def note_deadline(self, expires: Any) -> None:
        """Note how long the next command's client waits: *expires* is seconds since the epoch, 0 if unknown."""

    def stop_by_command(self, reason: str) -> None:
        """A command raised `SystemExit`."""
