"""The Ruby end, started once for all tests of this folder, and a clean program for each."""

from collections.abc import Iterator

import pytest

from sidekiq_py import program
from sidekiq_py.active_job import clear_locators, clear_serializers, forget_active_jobs
from tests.active_job.ruby_peer import RubyPeer, start_or_skip


@pytest.fixture(scope="session")
def ruby() -> Iterator[RubyPeer]:
    """A Ruby process with Active Job."""
    with start_or_skip() as peer:
        yield peer


@pytest.fixture(autouse=True)
def _as_at_the_start() -> Iterator[None]:
    """Nothing configured, declared or registered."""
    yield
    program.reset()
    forget_active_jobs()
    clear_locators()
    clear_serializers()
