"""Sidekiq's Web UI for a browser: `ruby_fixtures/config.ru` under puma, from a release's folder."""

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from interop_tests.support.ruby import UTF8, RubyRelease
from tests.support.child_process import tail, tied_to_this_process
from tests.support.waiting import eventually

START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 10.0

_LISTENS = re.compile(r"Listening on \w+://127\.0\.0\.1:([1-9]\d*)")


class WebUiServer:
    """
    A puma on a free port of 127.0.0.1, which is stopped at the end of the context.

    Args:
        release: The Sidekiq release.
        redis_url: The Redis that it shows.
        tabs: The files to require for the tabs of gems.
    """

    def __init__(self, release: RubyRelease, redis_url: str, *, tabs: Sequence[str] = ()) -> None:
        self._release = release
        self._redis_url = redis_url
        self._tabs = " ".join(tabs)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __repr__(self) -> str:
        return f"<WebUiServer {self._release.sidekiq_version} port={self._port}>"

    def __enter__(self) -> Self:
        handle, name = tempfile.mkstemp(prefix="sidekiq-py-puma-", suffix=".log")
        self._log = Path(name)
        settings = {"REDIS_URL": self._redis_url, "FIXTURE_TABS": self._tabs}
        environment = {**os.environ, **UTF8, **self._release.environment, **settings}
        with os.fdopen(handle, "wb") as log:
            self._process = subprocess.Popen(
                tied_to_this_process([*self._release.ruby, "-S", "puma", *self._arguments()]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        try:
            self._port = eventually(self._listens_at, within_seconds=START_TIMEOUT_SECONDS)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def url(self, path: str) -> str:
        """The address of a page, such as `/busy`."""
        return f"http://127.0.0.1:{self._port}{path}"

    def _arguments(self) -> list[str]:
        config = str(self._release.fixtures / "config.ru")
        return ["--environment", "production", "--threads", "1:4", "--bind", "tcp://127.0.0.1:0", config]

    def _listens_at(self) -> int | None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"puma ended at once; its log:\n{tail(self._log)}")
        listens = _LISTENS.search(self._log.read_text(errors="replace"))
        return int(listens[1]) if listens else None

    def _close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.unlink(missing_ok=True)
