"""Ctrl-C ends every command with the documented exit code."""

import itertools
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sidekiq_py.api import JobFilter, RetrySet
from tests.support.waiting import eventually

LATER = 4_000_000_000


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """Accepts connections and never answers, so that every command waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def start(arguments: Sequence[str], **options: object) -> subprocess.Popen[str]:
    """Start `sidekiq-py` with pipes."""
    program = [sys.executable, "-m", "sidekiq_py", *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(program, text=True, **streams)


def read_until(terminal: int, text: str) -> str:
    """What a terminal shows up to the line with *text*, or until no process has it open."""
    shown = b""
    while text.encode() not in shown:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    return shown.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ("retries", "list", "--class", "Nope"),
        ("retries", "list", "--class", "Nope", "--json"),
        ("queues", "show", "default", "--class", "Nope"),
        ("retries", "list", "--by", "class"),
        ("find", "--arg", "Nope"),
        ("scheduled", "delete", "--class", "Nope", "--dry-run"),
        ("scheduled", "delete", "--class", "Nope", "--dry-run", "--json"),
        ("top", "--once", "--sample", "20"),
        ("doctor",),
        ("stats",),
    ],
    ids=" ".join,
)
def test_ctrl_c_ends_a_command_with_130(silent_server, arguments):
    """1 means that something failed, and for `doctor` that it found a problem."""
    port = silent_server.getsockname()[1]
    process = start(arguments, env={**os.environ, "REDIS_URL": f"redis://127.0.0.1:{port}/0"})
    connection, _ = silent_server.accept()

    process.send_signal(signal.SIGINT)

    output, errors = process.communicate(timeout=30)
    connection.close()
    assert (process.returncode, output, errors) == (130, "", "Stopped by Ctrl-C.\n")


def test_ctrl_c_at_a_question_is_not_the_answer_no(redis_url, redis_client):
    """A script tells them apart by 130 and 1."""
    redis_client.zadd("retry", {json.dumps({"class": "Boom", "args": [], "jid": "1"}): LATER})
    controller, terminal = pty.openpty()
    process = start(
        ["retries", "delete", "--all"], stdin=terminal, stderr=terminal, env={**os.environ, "REDIS_URL": redis_url}
    )
    os.close(terminal)
    shown = read_until(controller, "[y/N]")
    # Python acts on a signal only if it arrives while the program already sleeps in its read.
    state = Path(f"/proc/{process.pid}/stat")
    eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "S")

    process.send_signal(signal.SIGINT)

    output, _ = process.communicate(timeout=30)
    shown += read_until(controller, "Ctrl-C.")
    os.close(controller)
    assert (process.returncode, output.strip()) == (130, "")
    assert shown.endswith("\nStopped by Ctrl-C.\r\n")
    assert redis_client.zcard("retry") == 1


@pytest.mark.parametrize("answer", ["n\n", "\x04"], ids=["no", "Ctrl-D"])
def test_other_ways_to_decline_a_question_exit_with_1(redis_url, redis_client, answer):
    """As documented for "you answered no"."""
    redis_client.zadd("retry", {json.dumps({"class": "Boom", "args": [], "jid": "1"}): LATER})
    controller, terminal = pty.openpty()
    os.write(controller, answer.encode())

    process = start(
        ["retries", "delete", "--all"], stdin=terminal, stderr=terminal, env={**os.environ, "REDIS_URL": redis_url}
    )

    assert process.wait(30) == 1
    os.close(terminal)
    os.close(controller)
    process.stdout.close()


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("what", ["retries", "queues"])
def test_an_interrupted_dry_run_prints_no_count(run, redis_client, monkeypatch, what, options):
    """A count of a part would be taken for the count of all."""
    jobs = [json.dumps({"class": "Boom", "args": [], "jid": str(n)}) for n in range(3000)]
    redis_client.zadd("retry", dict.fromkeys(jobs, LATER))
    redis_client.rpush("queue:default", *jobs)
    looks = itertools.count()

    def fits(*_arguments: object) -> bool:
        if next(looks) == 2500:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(JobFilter, "fits", fits)
    words = ("retries", "delete") if what == "retries" else ("queues", "clear", "default")

    result = run(*words, "--class", "Boom", "--dry-run", *options)

    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "Stopped by Ctrl-C after looking through 2,400 of 3,000 jobs.\n"


def test_an_interrupted_list_says_how_far_it_came(run, redis_client, monkeypatch):
    """Also without a filter, where no bar shows it."""
    redis_client.zadd("retry", {json.dumps({"class": "Boom", "args": [], "jid": str(n)}): LATER for n in range(3)})

    def find(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RetrySet, "find", find)

    result = run("retries", "list")

    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "Stopped by Ctrl-C after looking through 0 of 3 jobs.\n"


def test_ctrl_c_while_the_program_is_imported_shows_no_traceback(tmp_path):
    """Imports take most of the time of a short command."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])

    process = start(["stats"], env={**os.environ, "PYTHONPATH": path})

    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
