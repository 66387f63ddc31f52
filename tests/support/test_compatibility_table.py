"""When the table of what was proven is written."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from interop_tests.support.compatibility import CompatibilityTable
from interop_tests.support.ruby import all_series


@pytest.mark.parametrize(("marks", "is_whole"), [("long or not long", True), ("not long", False), ("kill", False)])
def test_a_run_is_whole_with_the_marks_that_the_whole_run_gives(tmp_path: Path, marks: str, *, is_whole: bool) -> None:
    """`.ci/interop` names all tests by their marks, as the default leaves out the long ones."""
    table = CompatibilityTable(tmp_path / "table.md")
    releases: dict[str, Any] = {series: SimpleNamespace(series=series) for series in all_series()}
    table._releases = releases
    config: Any = SimpleNamespace(option=SimpleNamespace(keyword="", markexpr=marks))

    reason = table._why_not_whole(config)

    assert (reason is None) is is_whole
    assert is_whole or reason == "only some of the tests were asked for"


def test_the_whole_run_gives_those_marks() -> None:
    """The script and the table agree."""
    script = (Path(__file__).parents[2] / ".ci" / "interop").read_text()

    assert '-m "long or not long"' in script
