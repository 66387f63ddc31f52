"""
A real Redis (or Valkey) server that belongs to one test run.

It listens on a free TCP port of 127.0.0.1 and on a unix socket in a directory of its own, keeps nothing on disk unless
asked to, and is gone when the process that started it is gone. Every test process starts its own, so test processes can
run side by side.
"""

import atexit
import itertools
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

import redis

from interop_tests import servers
from interop_tests.servers import RedisProgram
from tests.support.child_process import tail, tied_to_this_process
from tests.support.ports import free_port, held_port
from tests.support.waiting import eventually

START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 5.0
START_ATTEMPTS = 5
# For `RedisServer.loading`: each key takes a millisecond, and clients are answered meanwhile.
LOADS_SLOWLY = {
    "enable-debug-command": "yes",
    "key-load-delay": "1000",
    "loading-process-events-interval-bytes": "1024",
}


class RedisServer:
    """
    One server process. `start` returns when it has its data; `stop` when it is gone; both may be called twice.

    Args:
        appendonly: Keep every write on disk (`appendfsync always`), so that `kill` and `restart` lose nothing that was
            answered. Without it a restarted server is empty.
        config: More lines of redis.conf, such as `{"maxmemory": "10mb"}`.
        program: Which server; by default what `interop_tests.servers.chosen` finds.
    """

    def __init__(
        self, *, appendonly: bool = False, config: Mapping[str, str] | None = None, program: RedisProgram | None = None
    ) -> None:
        found = program or servers.chosen()
        if found is None:
            raise RuntimeError(
                "no redis-server or valkey-server on this machine; on Debian: apt-get install redis-server"
            )
        self.program = found
        self._appendonly = appendonly
        self._config = dict(config or {})
        # Not pytest's tmp_path: a unix socket's path may have 107 bytes at most.
        self.directory = Path(tempfile.mkdtemp(prefix="sidekiq-py-redis-"))
        self.socket_path = self.directory / "redis.sock"
        self.log_path = self.directory / "redis.log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._holder: socket.socket | None = None

    def __repr__(self) -> str:
        state = "running" if self.is_running else "down"
        return f"<RedisServer {self.program} port={self.port} pid={self.pid} {state}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where clients connect by TCP: `redis://127.0.0.1:<port>/0`."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        """Where clients connect by unix socket: `unix://<path>?db=0`."""
        return f"unix://{self.socket_path}?db=0"

    @property
    def pid(self) -> int | None:
        """The server's process id; None before the first start and after a stop."""
        return self._process.pid if self._process else None

    @property
    def is_running(self) -> bool:
        """Whether the server process exists (it may be paused)."""
        return self._process is not None and self._process.poll() is None

    def client(self, **options: object) -> redis.Redis:
        """A plain client of this server, replies as bytes; the caller closes it."""
        return redis.Redis.from_url(self.url, **options)

    def start(self) -> Self:
        """Start the server and wait until it has its data. The port stays the same over restarts."""
        if self.is_running:
            return self
        atexit.register(self.close)
        for attempt in range(1, START_ATTEMPTS + 1):
            port = self.port or free_port()
            self._let_go()
            self._process = subprocess.Popen(
                tied_to_this_process(self._command(port)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if self._answers_on(port):
                self.port = port
                return self
            # Between finding a free port and binding it another process may have taken it: look for another one.
            if attempt == START_ATTEMPTS:
                raise RuntimeError(f"{self.program} did not start; the end of its log:\n{tail(self.log_path)}")
        return self

    def stop(self) -> None:
        """End the server in order (SIGTERM), also when it is paused. What it keeps on disk stays until `close`."""
        self._end_with(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL)."""
        self._end_with(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> Self:
        """
        Stop (or kill) the server and start it again on the same port; its data are back only with `appendonly`.

        If the kill has cut off the append-only file, it is written anew, as docs/delivery.md advises.
        """
        if not kill:
            self.stop()
            return self.start()
        self.kill()
        known = self.log_path.stat().st_size
        self.start()
        if self._appendonly and b"short read while loading the AOF" in self.log_path.read_bytes()[known:]:
            self.rewrite_aof()
        return self

    def rewrite_aof(self) -> None:
        """Write the append-only file anew."""
        with self.client() as client:
            client.bgrewriteaof()

            def is_written() -> bool:
                found = client.info("persistence")
                return not (found["aof_rewrite_in_progress"] or found["aof_rewrite_scheduled"])

            eventually(is_written)

    def close(self) -> None:
        """Stop the server and remove its directory. It cannot be started again."""
        self.stop()
        self._let_go()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.close)

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, nothing is answered."""
        self._require_process().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT)."""
        self._require_process().send_signal(signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen within the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextmanager
    def loading(self) -> Iterator[None]:
        """
        Within the context, the server reads its data again and answers LOADING. Needs the config `LOADS_SLOWLY`.

        Source: Redis 7.0, debug.c: DEBUG RELOAD saves and loads.
        """
        # Loading takes longer on a busy machine.
        with self.client(socket_timeout=None) as client:
            client.mset({f"key {number}": "x" * 100 for number in range(3000)})
            reload = Thread(target=lambda: client.execute_command("DEBUG", "RELOAD"))
            reload.start()
            try:
                eventually(self._answers_loading)
                yield
            finally:
                reload.join()

    def _answers_loading(self) -> bool:
        with self.client() as client:
            try:
                client.get("key 1")
            except redis.exceptions.BusyLoadingError:
                return True
            return False

    def debug_sleep(self, seconds: float) -> None:
        """Make the server busy for *seconds* (`DEBUG SLEEP`) and return at once, not when it is over."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=START_TIMEOUT_SECONDS) as connection:
            connection.sendall(f"DEBUG SLEEP {seconds}\r\n".encode())

    def cut_connections(self) -> int:
        """Close every client's connection from the server's side; the number that were cut."""
        client = self.client()
        try:
            return int(client.client_kill_filter(_type="normal", skipme=True))
        finally:
            client.close()

    def _command(self, port: int) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "unixsocket": str(self.socket_path),
            "dir": str(self.directory),
            "logfile": str(self.log_path),
            "save": "",
            "appendonly": "yes" if self._appendonly else "no",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            # Else a primary waits five seconds for more replicas to come.
            "repl-diskless-sync-delay": "0",
            **self._config,
        }
        # Older servers know neither. From Redis 7 on DEBUG is shut by default, and a stop waits for replicas.
        if self.program.redis_numbers >= (7,):
            settings = {"enable-debug-command": "local", "shutdown-timeout": "0", **settings}
        # Before Redis 7 each word is an argument of its own.
        words = [[f"--{name}", *(value.split() or [""])] for name, value in settings.items()]
        return [*self.program.command, *itertools.chain.from_iterable(words)]

    def _answers_on(self, port: int) -> bool:
        process = self._require_process()
        client = redis.Redis(host="127.0.0.1", port=port)
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        try:
            while process.poll() is None and time.monotonic() < deadline:
                try:
                    found = client.info()
                    # A stranger's server on this port would answer as well, so the process id is compared.
                    if int(found["process_id"]) == process.pid and not found["loading"]:
                        return True
                except (redis.ConnectionError, redis.TimeoutError):
                    pass
                time.sleep(0.005)
        finally:
            client.close()
        self.kill()
        return False

    def _end_with(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        if self.port:
            self._holder = held_port(self.port)

    def _let_go(self) -> None:
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def _require_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the Redis server is not running; call start() first")
        return self._process
