"""
A real connection to a real Redis with somebody in between, who can answer in Redis's stead or hang up.

One `plan` for each connection in turn, the last one for all that follow: a function that is handed what the client sent
and the means to deal with it.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

Plan = Callable[["Exchange"], None]


class Exchange:
    """What one client sent at once."""

    def __init__(self, request: bytes, client: socket.socket, upstream: socket.socket) -> None:
        self.request = request
        self._client = client
        self._upstream = upstream

    def forward(self) -> None:
        """Hand it to Redis and its replies back."""
        self._client.sendall(self._replies())

    def forward_and_hang_up(self) -> None:
        """Hand it to Redis and keep the replies."""
        self._replies()
        self._client.close()

    def hang_up(self) -> None:
        """Keep it from Redis."""
        self._client.close()

    def answer(self, reply: bytes) -> None:
        """Answer in Redis's stead."""
        self._client.sendall(reply)

    def _replies(self) -> bytes:
        self._upstream.sendall(self.request)
        replies = b""
        # Each command that is pushed here has a reply of one line.
        while replies.count(b"\r\n") < max(1, self.request.count(b"\r\n$4\r\nSADD") + self.request.count(b"LPUSH")):
            replies += self._upstream.recv(65536)
        return replies


def forward(exchange: Exchange) -> None:
    """A plan: do nothing of one's own."""
    exchange.forward()


def forward_and_hang_up(exchange: Exchange) -> None:
    """A plan: the reply is lost."""
    exchange.forward_and_hang_up()


class Interposer:
    """Listens on a port of its own, before the server at *port*."""

    def __init__(self, port: int, *plans: Plan) -> None:
        self._upstream_port = port
        self._plans = list(plans)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self._server.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                plan = self._plans[min(self.connections, len(self._plans) - 1)]
                self.connections += 1
                threading.Thread(target=self._serve, args=(client, plan), daemon=True).start()

    def _serve(self, client: socket.socket, plan: Plan) -> None:
        server = socket.create_connection(("127.0.0.1", self._upstream_port))
        with client, server, contextlib.suppress(OSError):
            while request := client.recv(1 << 20):
                exchange = Exchange(request, client, server)
                # redis-py introduces itself when it connects.
                (forward if b"CLIENT" in request or b"SELECT" in request else plan)(exchange)
