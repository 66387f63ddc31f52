"""
Reports the state of a `Type=notify` service to systemd: ready, stopping, alive.

Messages are sent as datagrams to the socket that `NOTIFY_SOCKET` names; without it, nothing is sent. Source:
sd_notify(3); Sidekiq 6.0.6 and later, systemd.rb.
"""

import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence

from sidekiq_py.logs import log

# Ruby refuses to ping more often than twice a second.
_SHORTEST_WATCHDOG_SECONDS = 1.0


class ServiceNotifier:
    """
    Sends messages to systemd; does nothing without it. Starting twice, and stopping before a start, is fine.

    Args:
        variables: The environment variables: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
        stalled_loops: Returns the names of the worker's loops that are stuck. The watchdog is not pinged while there
            are any, so systemd restarts the worker.

    Attributes:
        watchdog_seconds: The timeout of this process's watchdog; None if there is none.
    """

    def __init__(self, variables: Mapping[str, str], stalled_loops: Callable[[], Sequence[str]] = tuple) -> None:
        self._address = variables.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = watchdog_seconds(variables, os.getpid())
        self._stalled_loops = stalled_loops
        self._is_over = threading.Event()
        self._pinging: threading.Thread | None = None

    @property
    def is_wanted(self) -> bool:
        """True if systemd expects messages."""
        return bool(self._address)

    def ready(self) -> None:
        """Report that the worker runs, and start to ping the watchdog if there is one."""
        self.send("READY=1")
        if self.watchdog_seconds is not None and self._pinging is None:
            # Half the watchdog's timeout, as sd_watchdog_enabled(3) recommends.
            pause = self.watchdog_seconds / 2
            log.info("Pinging systemd watchdog every %.1f sec", pause)
            self._pinging = threading.Thread(target=self._ping, args=(pause,), name="sidekiq.watchdog", daemon=True)
            self._pinging.start()

    def stopping(self) -> None:
        """Report that the worker has begun to stop. Watchdog pings continue, because busy jobs may take their time."""
        self.send("STOPPING=1")

    def close(self) -> None:
        """Stop pinging the watchdog."""
        self._is_over.set()

    def send(self, state: str) -> bool:
        """Send one message, such as `STATUS=…`. Returns False if it was not sent."""
        if not self._address:
            return False
        # A leading @ means the NUL byte of an abstract socket address.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.connect(address)
                line.sendall(state.encode())
        except OSError as error:
            log.warning("%s could not be sent to systemd: %s", state, error)
            return False
        return True

    def _ping(self, pause_seconds: float) -> None:
        was_stalled = False
        while not self._is_over.wait(pause_seconds):
            stalled = self._stalled_loops()
            if not stalled:
                self.send("WATCHDOG=1")
            elif not was_stalled:
                log.critical(
                    "These loops have not turned for too long: %s. Unless they go on, systemd's watchdog ends this "
                    "process. Look for a hook or a client middleware that never returns",
                    ", ".join(stalled),
                )
            was_stalled = bool(stalled)


def watchdog_seconds(variables: Mapping[str, str], pid: int) -> float | None:
    """
    The watchdog's timeout; None if there is no watchdog for this process.

    Args:
        variables: The environment variables.
        pid: The PID of this process; `WATCHDOG_PID` may name another one.
    """
    try:
        seconds = int(variables.get("WATCHDOG_USEC", "0")) / 1_000_000
    except ValueError:
        return None
    if seconds <= 0 or variables.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    if seconds < _SHORTEST_WATCHDOG_SECONDS:
        log.error("systemd Watchdog too fast: %s s; set WatchdogSec to 1 s or more", seconds)
        return None
    return seconds
