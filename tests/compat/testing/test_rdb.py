"""The debugger of tasks."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.celery_program import environment

_PROGRAM = """
from sidekiq_celery.contrib import rdb

def add(x, y):
    rdb.set_trace()
    return x + y

print("it returns", add(40, 2))
"""
_SECONDS = 30


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """A program that stops in a function."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment(), "CELERY_RDB_PORT": "0"},
    ) as running:
        yield running
        running.kill()


@pytest.mark.parametrize("end", ["continue", "exit"])
def test_a_task_is_debugged_over_a_socket(program: subprocess.Popen[str], end: str) -> None:
    """By whoever connects to the printed address. It goes on at the end of the session."""
    assert program.stdout is not None
    words = program.stdout.readline().split()
    assert words[-3:-1] == ["telnet", "127.0.0.1"]

    with socket.create_connection(("127.0.0.1", int(words[-1])), _SECONDS) as client, client.makefile("rw") as session:
        session.write(f"p x * 10\n{end}\n")
        session.flush()
        shown = session.read()

    assert "add()" in shown
    assert "(Pdb) 400" in shown
    assert program.stdout.read().splitlines()[-1] == "it returns 42"
    assert program.wait(_SECONDS) == 0


@pytest.mark.parametrize("has_read", [True, False], ids=["at the prompt", "while it is shown something"])
def test_a_task_goes_on_when_its_client_has_gone(program: subprocess.Popen[str], has_read: bool) -> None:
    """What it prints then is in the log again, and not lost with the connection."""
    assert program.stdout is not None
    port = int(program.stdout.readline().split()[-1])

    with socket.create_connection(("127.0.0.1", port), _SECONDS) as client, client.makefile("rb") as session:
        while has_read and not session.peek().endswith(b"(Pdb) "):
            session.read1()
        assert session.peek()

    assert program.stdout.read().splitlines()[-1] == "it returns 42"
    assert program.wait(_SECONDS) == 0
