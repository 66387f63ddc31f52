"""Runs the program `sidekiq-py` in this process, on an empty server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sidekiq_py import program
from sidekiq_py.cli import main
from sidekiq_py.client import sync_client
from tests.support.declared_jobs import no_jobs_declared


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Runs a command line: `run("push", "HardWorker", input="…")`."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.delenv("REDIS_PROVIDER", raising=False)
    program.reset()

    def invoke(*arguments: str, **options: Any) -> Result:
        result = CliRunner().invoke(main, arguments, prog_name="sidekiq-py", **options)
        sync_client.current().close()
        return result

    with no_jobs_declared():
        yield invoke
    program.reset()
