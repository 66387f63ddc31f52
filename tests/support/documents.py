"""The examples of a page of documentation, to be run by a test."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.periodic.declared import declarations
from tests.support.declared_jobs import no_jobs_declared

_DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    """The text of a page of `docs/`."""
    return _DOCS.joinpath(name).read_text()


def python_examples(name: str) -> str:
    """All Python examples of a page of `docs/`, one after the other."""
    text = page(name)
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


@contextmanager
def empty_program(redis_url: str, sidekiq_version: str = "7") -> Iterator[str]:
    """A program that has declared and configured nothing but where Redis is; its URL."""
    with no_jobs_declared():
        program.reset()
        declarations.clear()
        sidekiq.configure(redis_url=redis_url, sidekiq_version=sidekiq_version)
        yield redis_url
        sync_client.current().close()
        program.reset()
        declarations.clear()
