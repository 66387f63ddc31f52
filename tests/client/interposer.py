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
            while request := _whole_commands(client):
                exchange = Exchange(request, client, server)
                # redis-py introduces itself when it connects.
                (forward if b"CLIENT" in request or b"SELECT" in request else plan)(exchange)


def _whole_commands(client: socket.socket) -> bytes:
    """What was sent at once; a script of more than 64 kB comes in pieces."""
    sent = client.recv(1 << 20)
    while sent and not _is_whole(sent):
        more = client.recv(1 << 20)
        if not more:
            break
        sent += more
    return sent


def _is_whole(sent: bytes) -> bool:
    """Whether the last command of *sent* is all there: each is an array of strings, whose lengths stand before them."""
    at = 0
    while at < len(sent):
        words, at = _number_at(sent, at)
        for _ in range(words):
            length, at = _number_at(sent, at)
            at += length + 2
    return at == len(sent)


def _number_at(sent: bytes, at: int) -> tuple[int, int]:
    """The number of a line such as `*3` or `$5`, and where the next line begins; behind the end if it is cut off."""
    end = sent.find(b"\r\n", at)
    return (0, len(sent) + 1) if end < 0 else (int(sent[at + 1 : end]), end + 2)
