"""In CI a test that was left out must not look like one that passed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

CONFTEST = """
from tests.support.no_skips import pytest_make_collect_report, pytest_runtest_makereport
"""
ONE_OF_EACH = """
import pytest

def test_that_skips_itself():
    pytest.skip("the tool is missing")

@pytest.mark.skip(reason="left out by a mark")
def test_that_is_marked(): ...

@pytest.mark.xfail(reason="known")
def test_that_is_expected_to_fail():
    assert False

def test_that_passes(): ...
"""
LEFT_OUT_WHOLE = """
import pytest

pytest.importorskip("no_such_module_anywhere")
"""


def run_pytest(folder: Path, **variables: str) -> str:
    """The output of a pytest run of its own in *folder*."""
    (folder / "conftest.py").write_text(CONFTEST)
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "SIDEKIQ_PY_REQUIRE_RUBY")}
    environment |= {"PYTHONPATH": str(REPOSITORY), **variables}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.stdout


@pytest.mark.parametrize("variables", [{"CI": "true"}, {"SIDEKIQ_PY_REQUIRE_RUBY": "1"}], ids=["ci", "switch"])
def test_a_skipped_test_fails_where_nothing_may_be_skipped(tmp_path: Path, variables: dict[str, str]) -> None:
    """It fails and still says why it wanted to skip; what is expected to fail is no skip."""
    (tmp_path / "test_it.py").write_text(ONE_OF_EACH)

    output = run_pytest(tmp_path, **variables)

    assert "the tool is missing" in output
    assert "left out by a mark" in output
    assert "1 passed, 1 xfailed" in output
    assert "skipped" not in output.splitlines()[-1]


def test_a_skipped_module_fails_where_nothing_may_be_skipped(tmp_path: Path) -> None:
    """A module that leaves out all of its tests is an error of the collection."""
    (tmp_path / "test_it.py").write_text(LEFT_OUT_WHOLE)

    output = run_pytest(tmp_path, CI="true")

    assert "no_such_module_anywhere" in output
    assert "1 error" in output.splitlines()[-1]


def test_elsewhere_a_skip_is_a_skip(tmp_path: Path) -> None:
    """A developer who lacks a tool sees what was left out, and no failure."""
    (tmp_path / "test_it.py").write_text(ONE_OF_EACH)

    output = run_pytest(tmp_path)

    assert "1 passed, 2 skipped, 1 xfailed" in output
