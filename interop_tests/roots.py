"""
Debian's releases as folders, each with the Ruby, Sidekiq, Rails and Redis that it ships; one with a browser, and two
with a Python, on which `.ci/pythons` runs the tests.

    python -m interop_tests.roots [SUITE …] [browser] [python-trixie] [python-forky] [--again]

unpacks what is missing (some 10 s and 120 MB a suite, 20 s and 780 MB for the browser) and prints what came. The
folders are kept in `$SIDEKIQ_PY_ROOTS`, by default `~/.cache/sidekiq_py/roots`. Nothing is installed on the machine
itself: `.ci/enter_root` runs a command inside. Needs `mmdebstrap` and `unshare`, root or user namespaces, and a mirror.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
ENTER = REPOSITORY / ".ci" / "enter_root"
DEFAULT_MIRROR = "http://deb.debian.org/debian"
BUILD_TIMEOUT_SECONDS = 540

# What every root has: a shell, C.UTF-8, time zones, and Sidekiq with Active Job and its web server.
_COMMON = (
    "base-files",
    "coreutils",
    "dash",
    "libc-bin",
    "tzdata",
    "ruby-sidekiq",
    "ruby-activejob",
    "puma",
    "redis-server",
)
_GEMS_FOR_SIDEKIQ_6 = ("ruby-sidekiq-cron", "ruby-gitlab-sidekiq-fetcher", "ruby-redis-namespace")
_ASK_RUBY = """
require "sidekiq"; require "json"; require "active_job"
print JSON.generate(sidekiq: Sidekiq::VERSION, ruby: RUBY_VERSION, json: JSON::VERSION,
                    rails: ActiveJob::VERSION::STRING)
"""
# A browser that a program drives, and letters for it.
_BROWSER = ("base-files", "coreutils", "dash", "libc-bin", "chromium", "chromium-driver", "fonts-liberation")
_ASK_BROWSER = """printf '{"chromium": "%s"}' "$(chromedriver --version | cut -d ' ' -f 2)\""""

# A Python, and what tests start beside it.
_PYTHON = (
    *("base-files", "coreutils", "dash", "libc-bin", "tzdata", "python3", "redis-server", "procps", "util-linux"),
    *("findutils", "grep", "ncurses-base", "openssl", "sed"),
)
_ASK_PYTHON = ("python3", "-c", """import platform; print('{"python": "%s"}' % platform.python_version())""")


class RootError(Exception):
    """A root that cannot be had here; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Suite:
    """
    A Debian suite and the packages taken from it.

    Args:
        name: As Debian calls it.
        packages: Those that are asked for; what they depend on comes along.
        ask: The command that says as JSON which versions came.
    """

    name: str
    packages: tuple[str, ...]
    ask: tuple[str, ...] = ("ruby", "-e", _ASK_RUBY)


# Rack 3 keeps sessions in a gem of its own, and from 8.1 on the Web UI needs one.
_NEWER = (*_COMMON, "ruby-json", "ruby-rack-session", "valkey-server")
SUITES = {
    "bullseye": Suite("bullseye", (*_COMMON, *_GEMS_FOR_SIDEKIQ_6)),
    "bookworm": Suite("bookworm", (*_COMMON, *_GEMS_FOR_SIDEKIQ_6)),
    "trixie": Suite("trixie", _NEWER),
    "forky": Suite("forky", _NEWER),
    "browser": Suite("trixie", _BROWSER, ("sh", "-c", _ASK_BROWSER)),
    "python-trixie": Suite("trixie", _PYTHON, _ASK_PYTHON),
    "python-forky": Suite("forky", _PYTHON, _ASK_PYTHON),
}
# Unpacked only when they are named.
_ON_DEMAND = ("python-trixie", "python-forky")


@dataclass(frozen=True, slots=True)
class Versions:
    """What came with a root; a suite that is still in the making brings other versions from week to week."""

    sidekiq: str
    ruby: str
    json: str
    rails: str


@dataclass(frozen=True, slots=True)
class Root:
    """
    A folder that holds a suite.

    Args:
        suite: Its name in `SUITES`.
        path: Where it is.
        came: Which version of what came with it.
    """

    suite: str
    path: Path
    came: Mapping[str, str]

    @property
    def versions(self) -> Versions:
        """What came with a root that has Sidekiq."""
        return Versions(**self.came)

    def command(self, *parts: str) -> tuple[str, ...]:
        """The command that runs *parts* inside, with the repository and `/tmp` at their places."""
        return (str(ENTER), str(self.path), *parts)


def folder() -> Path:
    """Where the roots are kept."""
    chosen = os.environ.get("SIDEKIQ_PY_ROOTS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else cache / "sidekiq_py" / "roots"


def path_of(suite: Suite) -> Path:
    """The folder of a suite, another one for another list of packages."""
    digest = hashlib.sha256(" ".join(suite.packages).encode()).hexdigest()[:8]
    return folder() / f"{suite.name}-{digest}"


def find(name: str) -> Root | None:
    """The root of a suite if it has been built."""
    path = path_of(SUITES[name])
    try:
        came = json.loads((path / "versions.json").read_bytes())
    except FileNotFoundError:
        return None
    return Root(name, path, came)


def build(name: str, *, again: bool = False) -> Root:
    """
    The root of a suite, made if it is not there yet.

    Args:
        name: Such as `trixie`.
        again: Make it anew, for a suite that has moved on.

    Raises:
        RootError: It cannot be had here.
    """
    suite = SUITES[name]
    with _lock(name):
        found = find(name)
        if found is not None and not again:
            return found
        path = path_of(suite)
        fresh = path.with_name(f"{path.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        _unpack(suite, fresh)
        came = _ask(suite, fresh)
        (fresh / "versions.json").write_text(json.dumps(came))
        shutil.rmtree(path, ignore_errors=True)
        fresh.rename(path)
        return Root(name, path, came)


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Two test runs that start together make a root once."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(suite: Suite, target: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        raise RootError("mmdebstrap is not installed; on Debian: apt-get install mmdebstrap")
    command = [
        "mmdebstrap",
        # Unpacked and not configured: nothing of it has to run as a service.
        "--variant=extract",
        # A mirror that lags is good enough for a test, and its signature is checked all the same.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        f"--include={','.join(suite.packages)}",
        suite.name,
        str(target),
        mirror(),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_SECONDS)
    if ran.returncode != 0:
        reasons = [line for line in ran.stderr.splitlines() if line.startswith("E:")] or ran.stderr.splitlines()[-3:]
        raise RootError(f"Debian {suite.name} cannot be had from {mirror()}: {' '.join(reasons)}")


def _ask(suite: Suite, path: Path) -> dict[str, str]:
    ran = subprocess.run([str(ENTER), str(path), *suite.ask], capture_output=True, text=True, check=False, timeout=60)
    if ran.returncode != 0:
        raise RootError(f"Debian {suite.name} is unpacked but does not run here: {ran.stderr.strip()}")
    came: dict[str, str] = json.loads(ran.stdout)
    return came


def mirror() -> str:
    """The mirror of Debian that this machine's own apt reads, else Debian's own."""
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
    except FileNotFoundError:
        return DEFAULT_MIRROR
    return next((uri.rstrip("/") for uri in listed if uri.rstrip("/").endswith("/debian")), DEFAULT_MIRROR)


def main(arguments: Sequence[str]) -> int:
    """Make the named roots, or all but those with a Python; prints a line on each. Returns 1 if one cannot be had."""
    names = [argument for argument in arguments if not argument.startswith("-")] or [
        name for name in SUITES if name not in _ON_DEMAND
    ]
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"unknown: {' '.join(unknown)}; known suites: {' '.join(SUITES)}", file=sys.stderr)
        return 2
    missing = 0
    for name in names:
        print(f"Debian {name:13}", end=" ", flush=True)
        started_at = time.monotonic()
        try:
            came = build(name, again="--again" in arguments).came
        except RootError as error:
            missing += 1
            print(f"missing: {error}")
            continue
        print(
            ", ".join(f"{what} {version}" for what, version in came.items()),
            f"({time.monotonic() - started_at:.1f} s)",
        )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
