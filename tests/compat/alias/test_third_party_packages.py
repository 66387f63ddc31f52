"""Packages for Celery that import it themselves, unchanged, under the alias."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.alias.conftest import ROOT
from tests.support.missing_tools import skip_or_fail
from tests.support.real_celery import python_with_celery

PROGRAMS = Path(__file__).with_name("programs")

Run = Callable[..., None]

# With these in front, no real Celery can be imported: what is installed beside is not what was used.
WITHOUT_CELERY = (
    "import runpy, sys\n"
    "from importlib.abc import MetaPathFinder\n"
    "class Hidden(MetaPathFinder):\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name.partition('.')[0] == 'celery':\n"
    "            raise ModuleNotFoundError(name, name=name)\n"
    "sys.meta_path.insert(0, Hidden())\n"
    "sys.argv = ['sidekiq-celery', 'run', *sys.argv[1:]]\n"
    "runpy.run_module('sidekiq_celery', run_name='__main__')\n"
)


@pytest.fixture(params=["with Celery beside", "without Celery"])
def run(request: pytest.FixtureRequest, redis_url: str) -> Run:
    """Runs one of the programs under the alias; skips where the package that it needs is not installed."""
    python = python_with_celery()
    start = ["-m", "sidekiq_celery", "run"] if request.param == "with Celery beside" else ["-c", WITHOUT_CELERY]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "compat")])}

    def call(program: str, *arguments: str, needs: tuple[str, ...]) -> None:
        for package in needs:
            _require(python, package)
        done = subprocess.run(
            [python, *start, str(PROGRAMS / f"{program}.py"), redis_url, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.stdout.splitlines()[-1:] == ["done"], done.stdout + done.stderr

    return call


def _require(python: str, package: str) -> None:
    seen = subprocess.run(
        [python, "-c", f"from importlib.util import find_spec; assert find_spec({package!r})"],
        check=False,
        capture_output=True,
    )
    if seen.returncode:
        skip_or_fail(f"{python} has no {package}: pip install -e '.[dev]'", switch="SIDEKIQ_PY_REQUIRE_CELERY")


def test_django_celery_beat_and_results(run: Run, tmp_path: Path) -> None:
    """Schedules come from the database, results go there."""
    run("django_packages", str(tmp_path / "db"), needs=("django_celery_beat", "django_celery_results"))


def test_redbeat(run: Run) -> None:
    """Its schedules in Redis are sent beside those of the settings."""
    run("redbeat_schedules", needs=("redbeat",))


def test_celery_once_and_celery_singleton(run: Run) -> None:
    """Both keep a second call from being sent while the first is on its way."""
    run("singletons", needs=("celery_once", "celery_singleton"))


def test_sentry_and_opentelemetry(run: Run) -> None:
    """A failure is reported once, and the span of a run hangs below that of its call."""
    run("instrumentation", needs=("sentry_sdk", "opentelemetry.instrumentation.celery", "opentelemetry.sdk"))
