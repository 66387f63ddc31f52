"""
A real RabbitMQ that belongs to one test run: a node of its own on free ports, with its files in a directory of its own.

Nothing of the machine's own RabbitMQ is touched: neither its service nor its epmd, the daemon by which Erlang's nodes
find each other. Both processes are gone when the one that started them is gone.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tests.support.child_process import tail, tied_to_this_process
from tests.support.ports import free_port

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
# Of a machine that is busy with thirty other things; on an idle one it takes some five.
START_TIMEOUT_SECONDS = 240.0
START_ATTEMPTS = 3
STOP_TIMEOUT_SECONDS = 30.0


def is_installed() -> bool:
    """Whether this machine has RabbitMQ, from Debian's package."""
    return PROGRAM.exists() and shutil.which("epmd") is not None


class RabbitServer:
    """
    One node. `start` returns when it answers; `close` when it is gone.

    Args:
        config: Lines for its rabbitmq.conf.
    """

    def __init__(self, config: str = "") -> None:
        self._config = config
        self.directory = Path(tempfile.mkdtemp(prefix="sidekiq-py-rabbit-"))
        self.port = 0
        self._processes: list[subprocess.Popen[bytes]] = []

    def __repr__(self) -> str:
        return f"<RabbitServer port={self.port}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def url(self, vhost: str = "/") -> str:
        """Where clients connect."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def start(self) -> Self:
        """Start the node and wait until it answers."""
        atexit.register(self.close)
        for attempt in range(1, START_ATTEMPTS + 1):
            if self._starts():
                return self
            # Between finding a free port and binding it another process may have taken it: look for others.
            self._end()
            if attempt == START_ATTEMPTS:
                raise RuntimeError(f"RabbitMQ did not start:\n{tail(self.directory / 'server.log')}")
        return self

    def close(self) -> None:
        """End the node, then its epmd, and remove their files."""
        self._end()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.close)

    def _starts(self) -> bool:
        self.port, epmd_port = free_port(), free_port()
        environment = {**os.environ, **self._environment(epmd_port)}
        self._run(["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"], environment, "epmd")
        self._run([str(PROGRAM)], environment, "server")
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline and all(process.poll() is None for process in self._processes):
            if self._answers():
                return True
            time.sleep(0.1)
        return False

    def _end(self) -> None:
        while self._processes:
            process = self._processes.pop()
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_TIMEOUT_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _run(self, command: list[str], environment: dict[str, str], name: str) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(tied_to_this_process(command), env=environment, stdout=log, stderr=log)
            )

    def _environment(self, epmd_port: int) -> dict[str, str]:
        directory = self.directory
        (directory / "enabled_plugins").write_text("[].\n")
        (directory / "rabbitmq.conf").write_text(f"log.file.level = warning\n{self._config}\n")
        return {
            # Erlang keeps its cookie there.
            "HOME": str(directory),
            # Else a shell stays in between, which a signal would end without the node.
            "RUNNING_UNDER_SYSTEMD": "yes",
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": f"test{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            "RABBITMQ_PID_FILE": str(directory / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _answers(self) -> bool:
        """Whether it speaks: before it is ready it accepts nothing."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.settimeout(10)
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False
