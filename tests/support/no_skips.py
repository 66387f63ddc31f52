"""
Where nothing may be skipped, a skipped test is a failed one.

The hooks work in every conftest.py that imports them: a run that silently leaves out what it lacks would look green.
"""

from collections.abc import Generator

import pytest

from tests.support.missing_tools import is_required

REQUIRE_ALL_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips itself, or is marked to be skipped; one that is expected to fail is left alone."""
    report = yield
    if not hasattr(report, "wasxfail"):
        _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips all of its tests, as `pytest.importorskip` does."""
    report = yield
    _fail_if_skipped(report)
    return report


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome != "skipped" or not is_required(REQUIRE_ALL_SWITCH):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{reason}\n(a skip is a failure here: CI or {REQUIRE_ALL_SWITCH} is set)"
