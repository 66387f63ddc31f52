"""Forks the processes of `--processes N`, with two pipes each, reads their messages, and reaps them."""

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess
from sidekiq_py.engine.prefork.pipes import LinePipe, Message, Outbox, Parent, readable
from sidekiq_py.engine.upkeep.process_end import end_process
from sidekiq_py.logs import log

# The exit code of a process that other code has waited for, so that the real one is lost.
_UNKNOWN_CODE = 255

Run = Callable[[Parent], int]


class Ended(NamedTuple):
    """
    A process that has ended.

    Args:
        exit_code: Its exit code. A negative number is the signal that ended it.
        last_words: The messages that it sent and that were still unread.
    """

    process: ChildProcess
    exit_code: int
    last_words: tuple[Message, ...]


class Forks:
    """The forked processes. Used only by the parent's single thread."""

    def __init__(self) -> None:
        self._by_pid: dict[int, ChildProcess] = {}

    def fork(self, run: Run) -> ChildProcess:
        """
        Fork a process that calls *run* and exits with the code that it returns.

        Raises:
            OSError: The system cannot create another process.
        """
        fds: list[int] = []
        try:
            fds += os.pipe()
            fds += os.pipe()
            pid = os.fork()
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        up_read, up_write, down_read, down_write = fds
        if pid == 0:
            self._become_child(run, Parent(LinePipe(up_write), LinePipe(down_read)), up_read, down_write)
        os.close(up_write)
        os.close(down_read)
        process = ChildProcess(pid, LinePipe(up_read), Outbox(down_write), monotonic())
        self._by_pid[pid] = process
        return process

    def _become_child(self, run: Run, parent: Parent, *not_ours: int) -> None:
        code = 70
        try:
            for sibling in self._by_pid.values():
                # If a sibling's pipe stayed open here, the sibling would not notice that the parent is gone.
                sibling.up.close()
                sibling.down.close()
            for fd in not_ours:
                os.close(fd)
            code = run(parent)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001 — no error may let a child continue as a second parent
            log.exception("a child process could not start")
        finally:
            end_process(code)

    def has(self, process: ChildProcess) -> bool:
        """True until the process has been reaped."""
        return self._by_pid.get(process.pid) is process

    def exchange(self, wake_fd: int, seconds: float | None) -> list[tuple[ChildProcess, Message]]:
        """
        Wait until a process sends a message or *wake_fd* is readable, for *seconds* at most (None: without a limit).

        Messages that are queued for the processes are sent meanwhile.

        Returns:
            The messages that were read, each with its process.
        """
        # A pipe may end long before its process, which may close files that it does not know. SIGCHLD reports the end.
        speakers = {process.up.fd: process for process in self._by_pid.values() if not process.up.has_ended}
        takers = {process.down.fd: process.down for process in self._by_pid.values() if process.down.waiting_bytes}
        said: list[tuple[ChildProcess, Message]] = []
        for fd in readable([wake_fd, *speakers], seconds, writers=takers):
            if fd in takers:
                takers[fd].flush()
            speaker = speakers.get(fd)
            if speaker is not None:
                said += [(speaker, message) for message in speaker.up.read() or ()]
        return said

    def reap(self) -> Iterator[Ended]:
        """Yield the processes that have ended. Their pipes are closed."""
        while self._by_pid:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                # Code of the program has waited for them, or has set SIGCHLD to be ignored.
                for process in list(self._by_pid.values()):
                    yield self._close(process, _UNKNOWN_CODE)
                return
            if pid == 0:
                return
            ended = self._by_pid.get(pid)
            if ended is not None:
                yield self._close(ended, os.waitstatus_to_exitcode(status))

    def _close(self, process: ChildProcess, exit_code: int) -> Ended:
        del self._by_pid[process.pid]
        last_words: list[Message] = []
        while not process.up.has_ended and readable([process.up.fd], 0):
            last_words += process.up.read() or ()
        process.up.close()
        process.down.close()
        return Ended(process, exit_code, tuple(last_words))
