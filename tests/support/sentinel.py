"""A real sentinel, which watches a primary under the name `jobs`."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.support.child_process import tail, tied_to_this_process
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

SERVICE = "jobs"


class Sentinel:
    """
    One sentinel process, of the same program as the primary; it alone decides on a failover.

    Args:
        primary: Watched from the start.
        folder: Where it keeps what it knows.
        down_after_ms: For how long the primary must be silent to be taken for dead.
        primary_port: Where it sends clients, if that is another port.
        config: More lines of its configuration.
    """

    def __init__(
        self,
        primary: RedisServer,
        folder: Path,
        *,
        down_after_ms: int = 3000,
        primary_port: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self._program = primary.program
        self._folder = folder
        self._configuration = folder / "sentinel.conf"
        self._log = folder / "sentinel.log"
        self._configuration.write_text(
            f"port {self.port}\n"
            "bind 127.0.0.1\n"
            f"logfile {self._log}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary_port or primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}\n"
            f"sentinel failover-timeout {SERVICE} 5000\n"
            + "".join(f"{name} {value}\n" for name, value in (config or {}).items())
        )
        self.client = redis.Redis(port=self.port, decode_responses=True)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            tied_to_this_process([*self._program.command, str(self._configuration), "--sentinel"]),
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
        )
        eventually(lambda: self.primary_port() is not None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        if error is not None:
            print(f"the end of the sentinel's log:\n{tail(self._log)}")

    @property
    def url(self) -> str:
        """Where clients ask it: `redis+sentinel://127.0.0.1:<port>/jobs/0`."""
        return f"redis+sentinel://127.0.0.1:{self.port}/{SERVICE}/0"

    def primary_port(self) -> int | None:
        """Where it says the primary is; None while it does not answer."""
        try:
            address = self.client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        except redis.RedisError:
            return None
        return int(address[1]) if address else None

    def wait_for_replicas(self, count: int = 1) -> None:
        """Until it has seen that many, without which there is nothing to fail over to."""
        eventually(lambda: len(self.client.sentinel_slaves(SERVICE)) >= count)

    def fail_over(self) -> None:
        """Order a failover; returns at once."""
        self.client.sentinel_failover(SERVICE)
