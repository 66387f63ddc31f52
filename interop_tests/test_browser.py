"""The browser that other tests look through."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_tests.support.browser import Browser, why_missing
from interop_tests.test_web_ui_in_a_browser import BROWSER_SWITCH
from tests.support.missing_tools import skip_or_fail

PAGE = """<!doctype html><title>a page</title>
<button onclick="setTimeout(() => { if (confirm('Sure?')) location.search = 'done' }, 200)">Delete</button>
<script>document.write(location.search)</script>
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A window."""
    reason = why_missing()
    if reason is not None:
        skip_or_fail(reason, switch=BROWSER_SWITCH)
    with Browser() as window:
        yield window


def test_a_button_that_asks_late_is_answered_all_the_same(browser: Browser, tmp_path: Path) -> None:
    """As Ruby's Web UI asks before it deletes, on a machine that is busy."""
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    browser.visit(page.as_uri())

    assert "?done" in browser.press("button")
