"""
Sidekiq workers as their users run them, each in a process of its own.

`WorkerProcess` is `python -m sidekiq_py worker -r <module> …`. What any worker can do, whatever its language, is in
`SidekiqProcess`; the Ruby one is in `interop_tests/support`.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.support.child_process import tail, tied_to_this_process
from tests.support.waiting import eventually

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = (REPOSITORY, REPOSITORY / "compat")


class SidekiqProcess:
    """
    A worker process that registers itself in Redis under `processes`.

    Starting does not wait: `wait_until_ready` does. As a context manager it starts, waits, and in the end stops; when
    a block of its own failed, the end of the log is printed for pytest to show; fixtures print it in any case, which
    pytest shows for failed tests. A process that a fixture started and will stop
    may be used as one once more, to stop it earlier.

    Args:
        command: The program and its arguments.
        redis_url: Where the worker registers; handed over as REDIS_URL.
        environment: More environment variables; None as a value removes one.
        log_path: Where stdout and stderr go; by default a file that goes when the test run ends.
        namespace: Under which the worker registers; handed over as SIDEKIQ_NAMESPACE.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        redis_url: str,
        environment: Mapping[str, str | None] | None = None,
        log_path: Path | None = None,
        namespace: str | None = None,
    ) -> None:
        self.redis_url = redis_url
        self._prefix = f"{namespace}:" if namespace else ""
        self.log_path = log_path or _temporary_log()
        self._command = list(command)
        where = {"REDIS_URL": redis_url, "REDIS_PROVIDER": None, "SIDEKIQ_NAMESPACE": namespace}
        self._environment = _environment({**where, **(environment or {})})
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        pid = self._process.pid if self._process else None
        return f"<{type(self).__name__} pid={pid} {' '.join(self._command)}>"

    def __enter__(self) -> Self:
        self.start()
        try:
            return self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
        if error is not None:
            self.print_log_tail()

    @property
    def pid(self) -> int:
        """The process id of the worker, or of the parent with `--processes`."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether the process still exists."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything the worker has written so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        """The last lines of the log."""
        return tail(self.log_path)

    def print_log_tail(self) -> None:
        """Print the last lines of the log, for whoever reads a failed test."""
        print(f"{self!r}: the end of its log:\n{self.log_tail()}\n", file=sys.stderr)

    def start(self) -> Self:
        """Start the process; nothing happens if it runs already."""
        if self.is_running:
            return self
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                tied_to_this_process(self._command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
        return self

    def wait_until_ready(self, *, processes: int = 1, within_seconds: float = 120) -> Self:
        """Wait until *processes* heartbeats of this worker (or of its children) stand in Redis."""
        eventually(lambda: self._has_failed() or len(self.identities()) >= processes, within_seconds=within_seconds)
        if self._has_failed():
            raise AssertionError(f"{self!r} ended with {self._started().returncode}; its log:\n{self.log_tail()}")
        return self

    def identities(self) -> list[str]:
        """The identities under which this worker and its children are registered in Redis now."""
        family = _process_tree(self.pid)
        client = redis.Redis.from_url(self.redis_url, decode_responses=True)
        try:
            names = sorted(client.smembers(self._prefix + "processes"))
            found = {name: client.hget(self._prefix + name, "info") for name in names}
        finally:
            client.close()
        return [str(name) for name, info in found.items() if info and json.loads(info)["pid"] in family]

    @property
    def identity(self) -> str:
        """The identity of a worker without children."""
        [identity] = self.identities()
        return identity

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal: TERM and INT stop, TSTP and USR1 quiet, TTIN dumps threads."""
        self._started().send_signal(number)

    def kill(self) -> None:
        """End the worker as a crash or the OOM killer would (SIGKILL), and wait until it is gone."""
        self._started().kill()
        self._started().wait()

    def freeze(self) -> None:
        """Stop the process in its tracks (SIGSTOP), and wait until all of its threads have stopped."""
        self.send_signal(signal.SIGSTOP)
        # On a busy machine they go on for milliseconds after the signal was sent, and may take jobs. One that has ended
        # by itself, as after two cuts while it starts, is no child any more.
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let a frozen process go on (SIGCONT)."""
        self.send_signal(signal.SIGCONT)

    def wait(self, within_seconds: float = 60) -> int:
        """Wait for the process to end by itself; its exit code (negative: the signal that ended it)."""
        try:
            return self._started().wait(within_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self!r} still runs after {within_seconds} s; its log:\n{self.log_tail()}") from None

    def stop(self, within_seconds: float = 30) -> int | None:
        """Send TERM and wait for the end; killed when it takes too long. The exit code, None if never started."""
        if self._process is None:
            return None
        if self.is_running:
            self.send_signal(signal.SIGTERM)
            self.thaw()
            try:
                self._process.wait(within_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.wait()

    def leave(self) -> None:
        """How the context ends: by `stop`. The exit code is not looked at."""
        self.stop()

    def _has_failed(self) -> bool:
        return self._started().poll() is not None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the worker was not started; call start() or use it as a context manager")
        return self._process


class WorkerProcess(SidekiqProcess):
    """
    One `sidekiq-py worker`; with `--processes N` one parent and its children.

    Args:
        require: Modules with jobs, each given as `-r`.
        redis_url: Handed over as REDIS_URL.
        arguments: More flags, such as `["-c", "5", "-q", "critical,3"]`.
        environment: More environment variables; None as a value removes one.
        python_path: Folders to find *require* in, beside the repository.
        log_path: Where stdout and stderr go; by default a file that goes when the test run ends.
        namespace: As of `SidekiqProcess`.
    """

    def __init__(
        self,
        require: str | Sequence[str],
        *,
        redis_url: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str | None] | None = None,
        python_path: Sequence[Path | str] = (),
        log_path: Path | None = None,
        namespace: str | None = None,
    ) -> None:
        modules = [require] if isinstance(require, str) else list(require)
        command = [sys.executable, "-m", "sidekiq_py", "worker"]
        command += [part for module in modules for part in ("-r", module)]
        roots = [*map(str, python_path), *map(str, SOURCE_ROOTS), os.environ.get("PYTHONPATH", "")]
        python = {"PYTHONPATH": os.pathsep.join(root for root in roots if root), "PYTHONUNBUFFERED": "1"}
        super().__init__(
            [*command, *arguments],
            redis_url=redis_url,
            environment={**python, **(environment or {})},
            log_path=log_path,
            namespace=namespace,
        )


def _temporary_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="sidekiq-py-worker-", suffix=".log")
    os.close(handle)
    path = Path(name)
    atexit.register(path.unlink, missing_ok=True)
    return path


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    wanted: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in wanted.items() if value is not None}


def _process_tree(pid: int) -> set[int]:
    """*pid* and its living descendants, from /proc."""
    family = {pid}
    # A process may end while it is looked at.
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                    family |= _process_tree(int(child))
    return family
