"""A program that serves HTTP, on a port of 127.0.0.1 that is free; and somebody who asks it."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from http.cookiejar import CookieJar
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

from tests.support.child_process import tail, tied_to_this_process
from tests.support.ports import free_port
from tests.support.waiting import eventually

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_TIMEOUT_SECONDS = 60.0


class WebServer:
    """
    The program, gone at the end of the context.

    Args:
        command: The program and its arguments; `{port}` in one of them becomes the port.
        environment: More environment variables.
        folder: Where it runs.
    """

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self.port = free_port()
        self._command = [part.replace("{port}", str(self.port)) for part in command]
        self._environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        handle, name = tempfile.mkstemp(prefix="sidekiq-py-web-", suffix=".log")
        os.close(handle)
        self._log = Path(name)

    def __repr__(self) -> str:
        return f"<WebServer {' '.join(self._command)}>"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                tied_to_this_process(self._command),
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._listens, within_seconds=_START_SECONDS)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"{self!r}: the end of its log:\n{tail(self._log)}")
        self._close()

    def url(self, path: str) -> str:
        """The address of a page."""
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_STOP_SECONDS)

    def _listens(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"{self!r} ended with {self._process.returncode}; its log:\n{tail(self._log)}")
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.unlink(missing_ok=True)


class HttpClient:
    """
    Somebody with cookies, but without scripts.

    Args:
        server: Whom to ask.
        headers: Sent with each request.
    """

    def __init__(self, server: WebServer, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._headers = {"Accept": "text/html", **(headers or {})}
        self.cookies = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.cookies))

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; redirects are followed."""
        return self._ask(Request(self._server.url(path), headers=self._headers))

    def post(self, path: str, fields: Mapping[str, str]) -> tuple[int, str]:
        """Send a form as a browser does."""
        origin = {"Origin": f"http://127.0.0.1:{self._server.port}", "Referer": self._server.url(path)}
        headers = {**self._headers, **origin}
        return self._ask(Request(self._server.url(path), urlencode(fields).encode(), headers=headers))

    def cookie(self, name: str) -> str:
        """The value of a cookie; empty if there is none."""
        return next((cookie.value or "" for cookie in self.cookies if cookie.name == name), "")

    def _ask(self, request: Request) -> tuple[int, str]:
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as reply:
                return reply.status, reply.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
