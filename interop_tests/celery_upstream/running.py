"""Runs files of Celery's tests in a separate process, and returns the outcome of each test."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from interop_tests.celery_upstream.plugin_names import OUTCOMES_VARIABLE, PLUGIN
from interop_tests.celery_upstream.source import Source
from sidekiq_py.embedded import PrivateRedis

_ROOT = Path(__file__).parents[2]
# A Celery test that hangs is a failure, and must not end the run.
_TEST_SECONDS = 300

_SETTINGS = """[pytest]
python_classes = test_*
python_files = test_*.py
xfail_strict = true
addopts = --strict-markers
"""


def run(source: Source, part: str, files: Sequence[str], *options: str) -> dict[str, str]:
    """
    Run *files*.

    Args:
        part: `integration` runs against a worker and a Redis.
        files: The files, below `t/`.
        options: Options for pytest.

    Returns:
        A mapping from a test's id to `passed`, `failed` or `skipped`.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings, outcomes = Path(folder, "pytest.ini"), Path(folder, "outcomes.json")
        settings.write_text(_SETTINGS)
        # Not `--tb short`, which parses the sources: CPython 3.11.7 cannot do that while a test's thread prints its own
        # traceback ("AST constructor recursion depth mismatch"), and the whole run ended.
        command = [
            *(str(source.python), "-m", "pytest", "-q", "-c", str(settings), "--rootdir", str(source.folder)),
            *("-p", PLUGIN, "-p", "celery.contrib.pytest", "-p", "no:cacheprovider", "--tb", "line", "-r", "fE"),
            *("--timeout", str(_TEST_SECONDS), "--continue-on-collection-errors"),
            *options,
            *(f"t/{file}" for file in files),
        ]
        environment = {
            **_without_celery_settings(),
            "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "compat"), str(source.folder)]),
            OUTCOMES_VARIABLE: str(outcomes),
        }
        if part == "integration":
            with PrivateRedis() as redis:
                _run(command, source, {**environment, **_of_redis(redis)})
        else:
            _run(command, source, environment)
        return dict(json.loads(outcomes.read_text())) if outcomes.exists() else {}


def _run(command: Sequence[str], source: Source, environment: dict[str, str]) -> None:
    subprocess.run(command, cwd=source.folder, env=environment, check=False, stdout=sys.stdout, stderr=sys.stderr)


def _of_redis(redis: PrivateRedis) -> dict[str, str]:
    return {
        "TEST_BROKER": redis.url,
        "TEST_BACKEND": redis.url,
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": str(redis.port),
    }


def _without_celery_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("CELERY_", "REDIS_", "TEST_"))}
