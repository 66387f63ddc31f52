"""
Debian releases as folders, each with the Ruby, Sidekiq, Rails and Redis that it ships; one with a browser, and three
with a Python, on which `.ci/pythons` runs the tests.

    python -m interop_tests.roots [SUITE …] [browser] [python-trixie] [python-forky] [python-3.15] [--again]

unpacks what is missing (about 10 s and 120 MB per suite, 20 s and 780 MB for the browser) and prints the versions. The
folders are kept in `$SIDEKIQ_PY_ROOTS`, by default `~/.cache/sidekiq_py/roots`. Nothing is installed on the machine
itself: `.ci/enter_root` runs a command inside a folder. This needs `mmdebstrap` and `unshare`, root or user namespaces,
and a mirror.
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

# The contents of every root: a shell, C.UTF-8, time zones, and Sidekiq with Active Job and its web server.
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
# A browser that a program can drive, and fonts for it.
_BROWSER = ("base-files", "coreutils", "dash", "libc-bin", "chromium", "chromium-driver", "fonts-liberation")
_ASK_BROWSER = """printf '{"chromium": "%s"}' "$(chromedriver --version | cut -d ' ' -f 2)\""""

# A Python, and the programs that tests start.
_PYTHON = (
    *("base-files", "coreutils", "dash", "libc-bin", "tzdata", "python3", "redis-server", "procps", "util-linux"),
    *("findutils", "grep", "ncurses-base", "openssl", "sed"),
)
_ASK_PYTHON = ("-c", """import platform; print('{"python": "%s"}' % platform.python_version())""")


class RootError(Exception):
    """A root is not available here; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Suite:
    """
    A Debian suite and the packages taken from it.

    Args:
        name: Debian's name for it.
        packages: The packages to install; their dependencies come along.
        ask: The command that prints the installed versions as JSON.
    """

    name: str
    packages: tuple[str, ...]
    ask: tuple[str, ...] = ("ruby", "-e", _ASK_RUBY)


# Rack 3 has sessions in a separate gem, and from 8.1 on the Web UI needs sessions.
_NEWER = (*_COMMON, "ruby-json", "ruby-rack-session", "valkey-server")
SUITES = {
    "bullseye": Suite("bullseye", (*_COMMON, *_GEMS_FOR_SIDEKIQ_6)),
    "bookworm": Suite("bookworm", (*_COMMON, *_GEMS_FOR_SIDEKIQ_6)),
    "trixie": Suite("trixie", _NEWER),
    "forky": Suite("forky", _NEWER),
    "browser": Suite("trixie", _BROWSER, ("sh", "-c", _ASK_BROWSER)),
    "python-trixie": Suite("trixie", _PYTHON, ("python3", *_ASK_PYTHON)),
    "python-forky": Suite("forky", _PYTHON, ("python3", *_ASK_PYTHON)),
    # Not the suite's default yet.
    "python-3.15": Suite("forky", (*_PYTHON, "python3.15"), ("python3.15", *_ASK_PYTHON)),
}
# Unpacked only if they are named.
_ON_DEMAND = ("python-trixie", "python-forky", "python-3.15")


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions in a root. In a suite that is still in development they change from week to week."""

    sidekiq: str
    ruby: str
    json: str
    rails: str


@dataclass(frozen=True, slots=True)
class Root:
    """
    A folder that contains a suite.

    Args:
        suite: The suite's name in `SUITES`.
        path: The folder.
        came: The versions of its programs.
    """

    suite: str
    path: Path
    came: Mapping[str, str]

    @property
    def versions(self) -> Versions:
        """The versions in a root that has Sidekiq."""
        return Versions(**self.came)

    def command(self, *parts: str) -> tuple[str, ...]:
        """The command that runs *parts* inside the root, with the repository and `/tmp` at their usual paths."""
        return (str(ENTER), str(self.path), *parts)


def folder() -> Path:
    """The folder that contains the roots."""
    chosen = os.environ.get("SIDEKIQ_PY_ROOTS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else cache / "sidekiq_py" / "roots"


def path_of(suite: Suite) -> Path:
    """The folder of a suite; it depends on the list of packages."""
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
    The root of a suite; built if it does not exist yet.

    Args:
        name: The suite's name, such as `trixie`.
        again: True to rebuild it, for a suite that has newer packages.

    Raises:
        RootError: It is not available here.
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
    """Lock a root, so that two test runs that start together build it only once."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(suite: Suite, target: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        raise RootError("mmdebstrap is not installed; on Debian: apt-get install mmdebstrap")
    command = [
        "mmdebstrap",
        # Unpacked but not configured, as nothing in it has to run as a service.
        "--variant=extract",
        # An outdated mirror is good enough for a test, and its signature is still checked.
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
    """The Debian mirror that this machine's own apt uses, or else Debian's own."""
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
    """Build the named roots, or all except those with a Python, and print a line for each. Returns 1 if one failed."""
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
