"""A Ruby that finds the public source of gems; the tests of this folder are there only where that is."""

import os
from pathlib import Path

import pytest

from interop_tests.support.ruby import RubyRelease, release, why_missing, with_public_gems
from tests.support.missing_tools import skip_or_fail

GEMS = os.environ.get("SIDEKIQ_PY_GEMS")

if GEMS is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", params=["7.3", "8.1"])
def ruby_release(request: pytest.FixtureRequest) -> RubyRelease:
    """Sidekiq with those gems on its load path."""
    found = release(request.param)
    reason = why_missing(found)
    if reason is not None:
        skip_or_fail(reason, switch="SIDEKIQ_PY_REQUIRE_RUBY")
    return with_public_gems(found, Path(GEMS or ""))
