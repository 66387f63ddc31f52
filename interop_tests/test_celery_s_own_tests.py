"""Celery's own public tests hold under the import alias, but for those that are listed with a reason."""

import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.celery_upstream import expectations

ROOT = Path(__file__).parents[1]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["unit", "integration"])
def test_celery_s_own_tests_hold_as_listed(part: str) -> None:
    """Nothing else fails, and nothing that is listed holds. `make celery-tests` runs the rest, too."""
    done = subprocess.run(
        [sys.executable, "-m", "interop_tests.celery_upstream", part, "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_a_run_that_differs_from_the_lists_is_told_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails unlisted, what is listed and holds, and what is listed and was not run; not what nobody asked for."""
    file = expectations.part("unit").files[0]
    tests = {name: f"t/{file}::{name}" for name in ("listed", "holding", "gone", "new", "fine")}
    listed = frozenset({tests["listed"], tests["holding"], tests["gone"], "t/unit/nobody/asked.py::test"})
    monkeypatch.setattr(expectations, "reasons", lambda name: (expectations.Reason("a reason", "why", listed),))
    outcomes = {
        tests["listed"]: "failed",
        tests["holding"]: "passed",
        tests["new"]: "failed",
        tests["fine"]: "passed",
    }

    assert expectations.drift("unit", False, outcomes) == expectations.Drift(
        failing=(tests["new"],), holding=(tests["holding"],), gone=(tests["gone"],)
    )
