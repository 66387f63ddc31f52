"""The same program on the real Celery and on ours: settings, tasks, routes, errors and helpers answer alike."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_celery import python_with_celery

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("behaviour.py")


def answers_of(python: str, package: str, path: str = "") -> dict[str, Any]:
    done = subprocess.run(
        [python, str(SCRIPT), package],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], **({"PYTHONPATH": path} if path else {})},
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def both() -> tuple[dict[str, Any], dict[str, Any]]:
    """Ours and Celery's."""
    celery = answers_of(python_with_celery(), "celery")
    return answers_of(sys.executable, "sidekiq_celery", f"{ROOT}:{ROOT / 'compat'}"), celery


def test_an_app_answers_as_in_celery(both):
    """Every question that the program asks."""
    ours, celerys = both

    assert ours["answers"] == celerys["answers"]


def test_settings_have_celerys_defaults_and_old_names(both):
    """Every one that this release of Celery knows."""
    ours, celerys = both

    assert {name: ours["settings"].get(name) for name in celerys["settings"]} == celerys["settings"]
