"""A small HTTP server for probes: three read-only pages, no state, no secrets."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple, Protocol

from sidekiq_py.errors import ConfigError
from sidekiq_py.logs import log
from sidekiq_py.metrics.text import CONTENT_TYPE

# A client that connects and sends nothing is dropped after this time. This many requests may be open at once.
_PATIENCE_SECONDS = 5.0
_MOST_REQUESTS = 16
# How long a new request waits for the slot of one whose connection was closed.
_ROOM_SECONDS = 0.5
# The pause when the process can open no more files. The connection that cannot be accepted waits in the meantime.
_PAUSE_SECONDS = 0.1


class Answer(NamedTuple):
    """The result of a probe."""

    is_good: bool
    text: str


class Probed(Protocol):
    """The worker that is probed."""

    def live(self) -> Answer:
        """Good while the worker's loops turn; otherwise the worker should be restarted."""

    def ready(self) -> Answer:
        """Good while the worker fetches and Redis answers."""

    def metrics(self) -> str:
        """Counts of the jobs it has run, in Prometheus's text format."""


class ProbeServer:
    """
    The probes' HTTP server. It listens as soon as it is created, and answers from `start` on, in its own threads.

    Args:
        port: The port to listen on, at all addresses of this machine, because a kubelet and Prometheus connect from
            outside. 0 picks a free port.
        probed: Provides the answers.

    Raises:
        ConfigError: The port cannot be used.
    """

    def __init__(self, port: int, probed: Probed) -> None:
        self._server = _Server(_listening(port), probed)
        self.port: int = self._server.socket.getsockname()[1]

    def __repr__(self) -> str:
        return f"<ProbeServer :{self.port}>"

    def start(self) -> None:
        """Start to answer requests. Does not block."""
        threading.Thread(target=self._server.serve_forever, name="sidekiq.probes", daemon=True).start()

    def close(self) -> None:
        """Stop the server. Call it only after `start`."""
        self._server.shutdown()
        self._server.server_close()


def check_port(port: int) -> None:
    """
    Check that a probe server can listen on *port*, for a process that leaves listening to another one.

    Raises:
        ConfigError: The port cannot be used.
    """
    _listening(port).close()


def _listening(port: int) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_MOST_REQUESTS)
    except OSError:
        # IPv6 is built in but switched off on this machine. Or the port is taken, which is reported below.
        pass
    try:
        return socket.create_server(("", port), backlog=_MOST_REQUESTS)
    except OSError as error:
        # Python adds the address, which stands here already.
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise ConfigError(
            f"the probe port {port} cannot be used: {reason}; give another one with --probe-port"
        ) from error


class _Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, probed: Probed) -> None:
        super().__init__(("", 0), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()[:2]
        self.server_name, self.server_port = "", self.server_address[1]
        self.probed = probed
        self._room = threading.BoundedSemaphore(_MOST_REQUESTS)
        # The connections of unfinished requests, the oldest first.
        self._unread: dict[socket.socket, None] = {}

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError:
            # The caller tries again at once, and would use a whole core.
            time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request in its own thread. If too many are open, the oldest unfinished one is cut, or this one."""
        if not self._room.acquire(blocking=False):
            self._cut_oldest()
            if not self._room.acquire(timeout=_ROOM_SECONDS):
                self.shutdown_request(request)
                return
        self._unread[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread could be started.
            self._unread.pop(request, None)
            self._room.release()
            raise

    def _cut_oldest(self) -> None:
        """
        Close the connection of the oldest request that has not arrived whole. Clients that send a byte now and then
        would keep all slots for good, and a worker whose `/live` does not answer is restarted.
        """
        # A KeyError or OSError: it has just arrived, or ended.
        with suppress(StopIteration, KeyError, OSError):
            oldest = next(iter(self._unread.copy()))
            del self._unread[oldest]
            oldest.shutdown(socket.SHUT_RDWR)

    def has_arrived(self, request: socket.socket) -> None:
        """Note that a request was read to its end. It is answered, however long that takes."""
        self._unread.pop(request, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle a request, then free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._unread.pop(request, None)
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log at debug level only: a client that disconnects is not an error."""
        log.debug("a probe was not answered", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    timeout = _PATIENCE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        """Serve one of the pages."""
        self.server.has_arrived(self.request)
        probed = self.server.probed
        pages: dict[str, Callable[[], Answer]] = {
            "/live": probed.live,
            "/ready": probed.ready,
            "/metrics": lambda: Answer(True, probed.metrics()),
        }
        path = self.path.partition("?")[0]
        page = pages.get(path)
        if page is None:
            self._send(404, f"there are {', '.join(pages)}\n", "text/plain")
            return
        try:
            answer = page()
        except Exception as error:  # noqa: BLE001 — a probe that fails gets an answer, and is not good
            log.warning("the probe %s failed: %s: %s", path, type(error).__name__, error)
            answer = Answer(False, f"the probe failed: {type(error).__name__}\n")
        is_metrics = path == "/metrics" and answer.is_good
        self._send(200 if answer.is_good else 503, answer.text, CONTENT_TYPE if is_metrics else "text/plain")

    do_HEAD = do_GET

    def _send(self, status: int, text: str, content_type: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """The `Server` header, without version numbers."""
        return "sidekiq-py"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a line for each probe would drown out everything else."""
