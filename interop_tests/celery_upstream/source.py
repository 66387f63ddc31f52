"""
Celery's source release and a Python environment for its tests, in a cache.

The environment is separate, so that the versions of the tests' dependencies are always the same. It has no Celery.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = "5.7.0"

_REQUIREMENTS = (
    # What sidekiq_celery needs.
    "redis>=5.0",
    "hiredis>=3.0",
    "orjson>=3.9",
    "click==8.5.1",
    "kombu==5.7.0",
    "PyYAML>=6.0",
    # What Celery's tests need.
    "billiard==4.3.2",
    "ephem>=4.1",
    "freezegun==1.5.5",
    "pydantic>=2.5",
    "pytest==9.2.0",
    "pytest-timeout>=2.4",
    "python-dateutil>=2.9",
    "pytz",
    "Django>=4.2",
)
_READY = "ready"


@dataclass(frozen=True, slots=True)
class Source:
    """
    The sources and the environment for the tests.

    Args:
        folder: The folder with Celery's package of tests, `t`.
        python: The environment's interpreter.
    """

    folder: Path
    python: Path


def fetched() -> Source:
    """
    The release and the environment, from the cache or PyPI.

    Raises:
        subprocess.CalledProcessError: pip could not fetch them; its output is on stderr.
    """
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache):
        if not (cache / _READY).exists():
            _fill(cache)
    return Source(cache / f"celery-{VERSION}", cache / "venv" / "bin" / "python")


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Different requirements get a different environment.
    digest = hashlib.sha256(" ".join(_REQUIREMENTS).encode()).hexdigest()[:8]
    mark = f"{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}-{digest}"
    return base / "sidekiq_py" / "celery_tests" / mark


def _fill(cache: Path) -> None:
    shutil.rmtree(cache / "venv", ignore_errors=True)
    venv.create(cache / "venv", with_pip=True)
    pip = [str(cache / "venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    with tempfile.TemporaryDirectory() as downloads:
        # Without its dependencies, because it is not run.
        wanted = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", f"celery=={VERSION}"]
        subprocess.run([*pip, "install", "setuptools", "wheel"], check=True, stdout=sys.stderr)
        subprocess.run([*pip, "download", "-d", downloads, *wanted], check=True, stdout=sys.stderr)
        [archive] = Path(downloads).glob("*.tar.gz")
        with tarfile.open(archive) as release:
            release.extractall(cache, filter="data")
    # Any import of celery must get ours, and never this one.
    shutil.rmtree(cache / f"celery-{VERSION}" / "celery")
    subprocess.run([*pip, "install", *_REQUIREMENTS], check=True, stdout=sys.stderr)
    (cache / _READY).touch()


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
