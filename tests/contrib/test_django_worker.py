"""Django around a job, in a separate interpreter, because Django's set-up cannot be undone."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("django")

ROOT = Path(__file__).resolve().parents[2]
_SET_UP = """
import asyncio
import sys
from django.conf import settings
settings.configure(
    INSTALLED_APPS=[],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1], "CONN_MAX_AGE": 0}},
)
from sidekiq_py import program
from sidekiq_py.contrib import django_worker
from sidekiq_py.registry import FunctionDefinition
from sidekiq_py.middleware.running import arun, run
from django.db import connection, transaction

def ask():
    with connection.cursor() as cursor:
        cursor.execute("SELECT 42")
        return cursor.fetchone()[0]

django_worker.set_up()
django_worker.set_up()
assert len(program.server_middleware) == 1
"""


def check(program: str, directory: Path) -> None:
    """Run *program* after the set-up, with a database in *directory*; it must succeed."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", _SET_UP + program, str(directory / "db.sqlite3")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_connection_past_its_age_is_closed_after_the_job(tmp_path: Path) -> None:
    """With a `CONN_MAX_AGE` of 0 each job has its own connection, even if the job raises."""
    program = """
definition = FunctionDefinition("Ask", {}, ask, ask)
assert run(definition, {"args": []}, "default", program.server_middleware) == 42
assert connection.connection is None

def fail():
    ask()
    raise ValueError("broken")

try:
    run(FunctionDefinition("Fail", {}, fail, fail), {"args": []}, "default", program.server_middleware)
except ValueError:
    pass
assert connection.connection is None
"""

    check(program, tmp_path)


def test_an_async_jobs_connection_is_closed_where_django_keeps_it(tmp_path: Path) -> None:
    """Django runs the database calls of async code in a separate thread."""
    program = """
from asgiref.sync import sync_to_async

async def ask_later():
    return await sync_to_async(ask)()

async def main():
    definition = FunctionDefinition("Ask", {}, ask_later, ask_later, is_async=True)
    assert await arun(definition, {"args": []}, "default", program.server_middleware) == 42
    assert await sync_to_async(lambda: connection.connection)() is None

asyncio.run(main())
"""

    check(program, tmp_path)


def test_a_transaction_around_the_job_keeps_its_connection(tmp_path: Path) -> None:
    """A test case that runs jobs inline is in an atomic block."""
    program = """
with transaction.atomic():
    run(FunctionDefinition("Ask", {}, ask, ask), {"args": []}, "default", program.server_middleware)
    assert connection.connection is not None
"""

    check(program, tmp_path)


def test_a_forked_process_leaves_its_parents_connection_alone(tmp_path: Path) -> None:
    """
    Code that runs before the fork may ask the database. If a child used that connection, it would mix up its rows with
    its siblings'; if the child closed it properly, PostgreSQL would end it for the parent.
    """
    program = """
import os
import socket

database, ours = socket.socketpair()

class Conversation:
    fileno = ours.fileno

    def close(self):
        try:
            ours.send(b"quit")
        except OSError:
            pass

connection.ensure_connection()
connection.connection = Conversation()
child = os.fork()
if not child:
    os._exit(0 if connection.connection is None and ask() == 42 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
ours.send(b"still here")
assert database.recv(100) == b"still here"
assert connection.connection is not None
connection.connection = None
"""

    check(program, tmp_path)
