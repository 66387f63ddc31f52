"""
Records what each release of real Sidekiq writes, in `ruby_fixtures/payloads/<Sidekiq version>/`.

    python -m interop_tests.record [6.0 6.4 7.3 8.1 | all] [--into FOLDER] [--only SITUATION]

runs `ruby_fixtures/record.rb` in the root of each release (see `interop_tests.roots`), on a private Redis of this
machine.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from interop_tests import roots, servers
from interop_tests.support.ruby import RUBY_FIXTURES, UTF8, RubyRelease, release, why_missing
from tests.support.redis_server import RedisServer

SERIES = ("6.0", "6.4", "7.3", "8.1")
TIMEOUT_SECONDS = 300.0
# The server in bookworm; if it is not available, the one that tests use.
RECORDED_ON = "redis-7.0"


class RecordingError(Exception):
    """Ruby could not record; the message contains its output."""


def record(recorded: RubyRelease, *, into: Path | None = None, only: str | None = None) -> Path:
    """
    Record a release on a Redis server that is started for it.

    Args:
        recorded: The release; its root must exist.
        into: The folder to write to; by default the one that is checked in.
        only: Record only this situation.

    Returns:
        The folder for that release's version.

    Raises:
        RecordingError: Ruby failed.
    """
    folder = into or RUBY_FIXTURES / "payloads"
    command = [*recorded.ruby, str(recorded.fixtures / "record.rb"), "--into", str(folder)]
    command += ["--only", only] if only else []
    # Independent of the server that tests use: another one may format scores or order its log differently.
    with RedisServer(program=servers.find(RECORDED_ON)) as server:
        ran = subprocess.run(
            command,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
            encoding="utf-8",
            env={**os.environ, **UTF8, **recorded.environment, "REDIS_URL": server.url},
        )
    if ran.returncode != 0:
        raise RecordingError(f"Sidekiq {recorded.sidekiq_version} was not recorded:\n{ran.stdout}{ran.stderr}")
    return folder / recorded.sidekiq_version


def main(arguments: Sequence[str]) -> int:
    """Record the named series, or all, and print a line for each. Returns 1 if one could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", nargs="*", help="6.0, 6.4, 7.3, 8.1 or all; all by default")
    parser.add_argument("--into", type=Path, help="write below this folder and not into ruby_fixtures/payloads")
    parser.add_argument("--only", help="record this situation alone")
    options = parser.parse_args(arguments)
    series = SERIES if options.series in ([], ["all"]) else tuple(options.series)
    if unknown := [name for name in series if name not in SERIES]:
        parser.error(f"unknown: {' '.join(unknown)}; known: {' '.join(SERIES)}, all")
    failures = 0
    for name in series:
        try:
            folder = record(_with_its_root(name), into=options.into, only=options.only)
        except (RecordingError, roots.RootError) as error:
            failures += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(f"{name}: {len(list(folder.glob('*.json')))} situations in {folder}")
    return 1 if failures else 0


def _with_its_root(series: str) -> RubyRelease:
    wanted = release(series)
    if why_missing(wanted) is not None:
        roots.build(wanted.suite)
        wanted = release(series)
    return wanted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
