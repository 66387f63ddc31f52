"""Clients of the probe port that never finish their requests, and a server that can take none."""

import os
import resource
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from sidekiq_py.probes.server import _MOST_REQUESTS, _PAUSE_SECONDS, Answer, ProbeServer
from tests.support.waiting import eventually


class Healthy:
    """A worker that is live and ready."""

    def live(self) -> Answer:
        """It is."""
        return Answer(True, "live\n")

    ready = live

    def metrics(self) -> str:
        """Nothing has run."""
        return ""


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    """A probe server on a free port."""
    probes = ProbeServer(0, Healthy())
    probes.start()
    yield probes
    probes.close()


def test_clients_that_send_a_byte_now_and_then_keep_no_probe_from_an_answer(server: ProbeServer) -> None:
    """They never run into the time limit between two bytes; the oldest has to go for the next request."""
    is_over = threading.Event()
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(_MOST_REQUESTS)]

    def dribble() -> None:
        while not is_over.wait(0.1):
            for client in clients:
                try:
                    client.send(b"G")
                except OSError:
                    pass

    sender = threading.Thread(target=dribble)
    sender.start()
    try:
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/live", timeout=10) as answer:
                assert answer.read() == b"live\n"
    finally:
        is_over.set()
        sender.join()
        for client in clients:
            client.close()


def test_a_page_that_hangs_does_not_keep_its_place_from_unfinished_requests(server: ProbeServer) -> None:
    """A request that has arrived is answered, however long that takes. The oldest unfinished one is cut."""
    may_answer = threading.Event()
    server._server.probed.ready = lambda: Answer(may_answer.wait(30), "ready\n")  # type: ignore[method-assign]
    hanging = socket.create_connection(("127.0.0.1", server.port))
    hanging.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(_MOST_REQUESTS - 1)]
    try:
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/live", timeout=10) as answer:
                assert answer.read() == b"live\n"
        may_answer.set()
        assert hanging.recv(100).startswith(b"HTTP/1.0 200")
    finally:
        may_answer.set()
        for client in (hanging, *clients):
            client.close()


def test_a_server_without_files_waits_for_one(server: ProbeServer) -> None:
    """The connection cannot be accepted, and trying it again and again without a pause would take a whole core."""
    tried_at: list[float] = []
    accept = server._server.get_request

    def note_and_accept() -> tuple[Any, Any]:
        tried_at.append(time.monotonic())
        return accept()

    server._server.get_request = note_and_accept  # type: ignore[method-assign]
    with socket.socket() as client:
        client.settimeout(10)
        with no_more_files():
            client.connect(("127.0.0.1", server.port))
            client.sendall(b"GET /live HTTP/1.0\r\n\r\n")
            eventually(lambda: len(tried_at) > 3)
        assert b"".join(iter(lambda: client.recv(4096), b"")).endswith(b"live\n")
    refused_at = tried_at[:4]
    assert all(later - earlier >= _PAUSE_SECONDS for earlier, later in pairwise(refused_at))


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    files = []
    try:
        with suppress(OSError):
            while True:
                files.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
