"""Programs in processes of their own: an alias holds for a whole process."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def celery_beside(tmp_path: Path) -> Path:
    """A folder with a package `celery` that cannot be imported: whoever gets it instead of ours finds out."""
    package = tmp_path / "beside" / "celery"
    package.mkdir(parents=True)
    for name in ("__init__", "states", "only_there"):
        (package / f"{name}.py").write_text("raise AssertionError('this is the real Celery')\n")
    return package.parent


@pytest.fixture(params=["without Celery", "with Celery beside"])
def run(request: pytest.FixtureRequest, tmp_path: Path, celery_beside: Path) -> Run:
    """Runs this Python with the arguments, in an empty folder; once without any Celery, once with one on its path."""
    beside = [str(celery_beside)] if request.param == "with Celery beside" else []

    def call(*arguments: str) -> "subprocess.CompletedProcess[str]":
        folder = tmp_path / "here"
        folder.mkdir(exist_ok=True)
        path = os.pathsep.join([str(ROOT), str(ROOT / "compat"), *beside])
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return call
