"""
A debugger for tasks, which have no terminal.

    from sidekiq_celery.contrib import rdb

    @app.task
    def add(x, y):
        rdb.set_trace()
        return x + y

The task stops there and prints an address; `telnet` to it to debug the task with pdb. `CELERY_RDB_HOST` (127.0.0.1) and
`CELERY_RDB_PORT` (6899, or the next port that is free) choose the address. Whoever reaches it can run any code, so keep
it local.
"""

import errno
import os
import socket
import sys
from contextlib import suppress
from pdb import Pdb
from types import FrameType
from typing import Any, Self

__all__ = ("CELERY_RDB_HOST", "CELERY_RDB_PORT", "DEFAULT_PORT", "Rdb", "debugger", "set_trace")

DEFAULT_PORT = 6899
CELERY_RDB_HOST = os.environ.get("CELERY_RDB_HOST") or "127.0.0.1"
CELERY_RDB_PORT = int(os.environ.get("CELERY_RDB_PORT") or DEFAULT_PORT)

_TAKEN = (errno.EADDRINUSE, errno.EINVAL)


class Rdb(Pdb):
    """
    A debugger that one client uses over a socket. Creating it waits for the client.

    Args:
        port_search_limit: How many ports to try, beginning with *port* + *port_skew*.
        out: For messages about the session; by default standard output, which is a worker's log.
    """

    me = "Remote Debugger"

    def __init__(
        self,
        host: str = CELERY_RDB_HOST,
        port: int = CELERY_RDB_PORT,
        port_search_limit: int = 100,
        port_skew: int = 0,
        out: Any = None,
    ) -> None:
        self.active = True
        self.out = out or sys.stdout
        self._before = sys.stdin, sys.stdout
        self._sock, self.port = self.get_avail_port(host, port, port_search_limit, port_skew)
        self.host = host
        self.ident = f"{self.me}:{self.port}"
        self._sock.listen(1)
        self.say(
            f"{self.ident}: Ready to connect: telnet {host} {self.port}\n\nType `exit` in session to continue.\n\n"
            f"{self.ident}: Waiting for client...\n"
        )
        self._client, address = self._sock.accept()
        self.remote_addr = ":".join(map(str, address))
        self.say(f"{self.ident}: Now in session with {self.remote_addr}.")
        # One file for both would drop lines that have arrived whenever something is written.
        self._files = self._client.makefile("r"), self._client.makefile("w")
        sys.stdin, sys.stdout = self._files
        super().__init__(completekey="tab", stdin=self._files[0], stdout=self._files[1])

    def get_avail_port(self, host: str, port: int, search_limit: int = 100, skew: int = 0) -> tuple[socket.socket, int]:
        """
        Return a socket that is bound to the first free port, and the port.

        Raises:
            OSError: No port is free.
        """
        for candidate in range(port + skew, port + skew + search_limit):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, candidate))
            except OSError as error:
                sock.close()
                if error.errno not in _TAKEN:
                    raise
            else:
                return sock, sock.getsockname()[1]
        raise OSError(f"{self.me}: no port from {port + skew} on is free; choose another one with CELERY_RDB_PORT")

    def say(self, m: str) -> None:
        """Print a message about the session."""
        print(m, file=self.out, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close_session()

    def _close_session(self) -> None:
        sys.stdin, sys.stdout = self.stdin, self.stdout = self._before
        if self.active:
            self.active = False
            for one in (*self._files, self._client, self._sock):
                # Closing a file sends what it still holds.
                with suppress(ConnectionError):
                    one.close()
            self.say(f"{self.ident}: Session with {self.remote_addr} ended.")

    def do_continue(self, arg: str) -> bool:
        """Go on without the debugger."""
        self._close_session()
        self.set_continue()
        return True

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> bool:
        """Go on without the debugger, as `continue` does."""
        self._close_session()
        self.set_quit()
        return True

    do_q = do_exit = do_EOF = do_quit

    def cmdloop(self, intro: Any = None) -> None:
        """Read and run commands. The task goes on if the client has gone."""
        try:
            super().cmdloop(intro)
        except ConnectionError:
            self.do_quit("")

    def set_quit(self) -> None:
        """Stop tracing. pdb's own would raise an error in the task."""
        sys.settrace(None)


_current: Rdb | None = None


def debugger() -> Rdb:
    """Return the debugger that is in session, or create one."""
    global _current
    if _current is None or not _current.active:
        _current = Rdb()
    return _current


def set_trace(frame: FrameType | None = None) -> None:
    """Stop at this line, or at the current one of *frame*, and wait for a client."""
    debugger().set_trace(frame or sys._getframe().f_back)
