"""
A TCP proxy before a Redis server that cuts connections where it hurts.

It cuts in the middle of a request, after a request and before its reply, or in the middle of a reply; a chosen one (by
bytes that occur in the request, such as a script's digest) or one drawn at random; a chosen one also after its reply.
It can also swallow everything, as a network does that is gone without a word, and pass each request on late, as a slow
one does.
"""

import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

Where = Literal["in request", "before reply", "in reply", "after reply"]
Rule = Callable[[bytes], Where | None]

WHERES: tuple[Where, ...] = ("in request", "before reply", "in reply")


class CuttingProxy:
    """
    Listens on a free port of 127.0.0.1.

    Attributes:
        cuts: How many connections were cut at each place.
        delay_seconds: How long each request is held back.
    """

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._is_hole = False
        self._is_closed = False
        self.cuts: Counter[str] = Counter()
        self.delay_seconds = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def __repr__(self) -> str:
        return f"<CuttingProxy {self.url} cuts={dict(self.cuts)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def cut(self, needle: bytes, where: Where, times: int = 1) -> None:
        """Cut the connections of the next *times* requests that hold *needle*; in the request: right before it."""
        left = [times]

        def rule(request: bytes) -> Where | None:
            if left[0] <= 0 or needle not in request:
                return None
            left[0] -= 1
            self._cut_at = request.index(needle)
            return where

        with self._lock:
            self._rules.append(rule)

    def cut_at_random(self, draw: random.Random, one_in: int) -> None:
        """Cut about one of *one_in* requests, at a place drawn at random."""

        def rule(request: bytes) -> Where | None:
            if draw.randrange(one_in):
                return None
            self._cut_at = draw.randrange(len(request)) + 1
            return draw.choice(WHERES)

        with self._lock:
            self._rules.append(rule)

    def be_kind(self) -> None:
        """Cut no more."""
        with self._lock:
            self._rules.clear()

    def swallow(self, is_hole: bool) -> None:
        """Pass nothing on, in either direction, and close nothing; False ends it for new connections."""
        self._is_hole = is_hole

    def close(self) -> None:
        """Accept no more connections; those that are open end with their clients."""
        self._is_closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            upstream = socket.create_connection(("127.0.0.1", self._upstream_port))
        except OSError:
            client.close()
            return
        with client, upstream, suppress(OSError):
            for one in (client, upstream):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._relay(client, upstream)

    def _relay(self, client: socket.socket, upstream: socket.socket) -> None:
        pending: Where | None = None
        is_lost = False
        while True:
            for readable in select.select([client, upstream], [], [])[0]:
                data = readable.recv(65536)
                if not data:
                    return
                # What was once swallowed never comes: the connection stays as dead as a real one.
                is_lost = is_lost or self._is_hole
                if is_lost:
                    continue
                if readable is client:
                    time.sleep(self.delay_seconds)
                    pending, at = self._judge(data, pending)
                    if pending == "in request":
                        upstream.sendall(data[:at])
                        return
                    upstream.sendall(data)
                elif pending is None:
                    client.sendall(data)
                else:
                    if pending == "in reply":
                        client.sendall(data[: max(1, len(data) // 2)])
                    elif pending == "after reply":
                        client.sendall(data)
                    return

    def _judge(self, request: bytes, pending: Where | None) -> tuple[Where | None, int]:
        with self._lock:
            if pending is not None:
                return pending, 0
            for rule in self._rules:
                where = rule(request)
                if where is not None:
                    self.cuts[where] += 1
                    return where, self._cut_at
        return None, 0

    _cut_at = 0
