"""A small HTTP server for probes: three pages, no state, no secrets, nothing to write."""

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple, Protocol

from sidekiq_py.errors import ConfigError
from sidekiq_py.metrics.text import CONTENT_TYPE

_log = logging.getLogger("sidekiq")

# Who connects and sends nothing is left after so long, and so many may do so at once.
_PATIENCE_SECONDS = 5.0
_MOST_REQUESTS = 16


class Answer(NamedTuple):
    """What a probe comes to."""

    is_good: bool
    text: str


class Probed(Protocol):
    """What is probed."""

    def live(self) -> Answer:
        """Whether the worker turns; if not, it is to be restarted."""

    def ready(self) -> Answer:
        """Whether it fetches, and Redis answers."""

    def metrics(self) -> str:
        """What it has run, in Prometheus's text format."""


class ProbeServer:
    """
    Listens from its creation on; answers, in threads of its own, from `start` on.

    Args:
        port: On all addresses of this machine, as a kubelet and Prometheus come from outside; 0: any.

    Raises:
        ConfigError: Somebody else listens there.
    """

    def __init__(self, port: int, probed: Probed) -> None:
        self._server = _Server(_listening(port), probed)
        self.port: int = self._server.socket.getsockname()[1]

    def __repr__(self) -> str:
        return f"<ProbeServer :{self.port}>"

    def start(self) -> None:
        """Start to answer. Does not block."""
        threading.Thread(target=self._server.serve_forever, name="sidekiq.probes", daemon=True).start()

    def close(self) -> None:
        """Answer no more; only after `start`."""
        self._server.shutdown()
        self._server.server_close()


def check_port(port: int) -> None:
    """
    Whether a probe server can listen there, for a process that leaves that to another.

    Raises:
        ConfigError: It cannot.
    """
    _listening(port).close()


def _listening(port: int) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_MOST_REQUESTS)
    except OSError:
        # Built in, and switched off on this machine; or the port is taken, which is said below.
        pass
    try:
        return socket.create_server(("", port), backlog=_MOST_REQUESTS)
    except OSError as error:
        raise ConfigError(
            f"the probe port {port} cannot be used: {error.strerror}; give a free one, as in --probe-port 7433"
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

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, while there are not too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request, and its place is free again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks off is no news."""
        _log.debug("a probe was not answered", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    timeout = _PATIENCE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        """One of the pages."""
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
        except Exception as error:  # noqa: BLE001 — a probe that fails is answered, and is not good
            _log.warning("the probe %s failed: %s: %s", path, type(error).__name__, error)
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
        """Nobody needs to know more."""
        return "sidekiq-py"

    def log_message(self, format: str, *args: Any) -> None:
        """A line for each probe would drown the rest."""
