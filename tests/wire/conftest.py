"""One Ruby process for all tests of this folder."""

from collections.abc import Iterator

import pytest

from sidekiq_py.wire.dialect import Dialect
from tests.wire.ruby_peer import RubyPeer, start_or_skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks Ruby bears the mark `ruby`."""
    for item in items:
        if "ruby_peer" in getattr(item, "fixturenames", ()):
            item.add_marker("ruby")


@pytest.fixture(scope="session")
def ruby_peer() -> Iterator[RubyPeer]:
    """Real Ruby with real Sidekiq; skipped where it is missing, a failure in CI."""
    with start_or_skip() as peer:
        yield peer


@pytest.fixture(params=["6.0.0", "6.0.4", "6.4.1", "7.3.2", "8.1.7"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each generation of the wire format in turn."""
    return Dialect.pinned(request.param)


@pytest.fixture
def sidekiq_6() -> Dialect:
    """The release that Debian 12 ships."""
    return Dialect.pinned("6.4.1")


@pytest.fixture
def sidekiq_8() -> Dialect:
    """The newest release: millisecond times, json 3."""
    return Dialect.pinned("8.1.7")
