"""The Ruby end, started once for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.active_job.ruby_peer import RubyPeer, start_or_skip


@pytest.fixture(scope="session")
def ruby() -> Iterator[RubyPeer]:
    """A Ruby process with Active Job."""
    with start_or_skip() as peer:
        yield peer
