"""Log lines from many threads and processes into one file."""

import ctypes
import io
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sidekiq_py.engine.report.line_handler import LineHandler
from sidekiq_py.errors import SoftTimeLimitError
from sidekiq_py.logs import PrettyFormatter
from tests.support.waiting import eventually


def test_a_lone_line_is_in_the_file_when_the_call_returns(tmp_path: Path) -> None:
    """A job that crashes the process has said that it started."""
    with (tmp_path / "log").open("w") as file:
        LineHandler(PrettyFormatter(), file).write_line("here")

        assert (tmp_path / "log").read_text() == "here\n"


def test_every_line_of_many_threads_comes_out_once_and_whole(tmp_path: Path) -> None:
    """Lines that are left to another thread are neither lost nor torn."""
    with (tmp_path / "log").open("w") as file:
        handler = LineHandler(PrettyFormatter(), file)

        def log(name: int) -> None:
            for number in range(2000):
                handler.write_line(f"{name} {number} {'x' * (number % 50)}")

        threads = [threading.Thread(target=log, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        lines = (tmp_path / "log").read_text().splitlines()

    assert sorted(lines) == sorted(f"{name} {n} {'x' * (n % 50)}" for name in range(8) for n in range(2000))
    for name in range(8):
        own = [int(line.split()[1]) for line in lines if line.startswith(f"{name} ")]
        assert own == sorted(own)


def test_threads_wait_when_the_reader_of_the_log_stands_still() -> None:
    """A stuck pipe must not fill the memory with lines."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe:
        handler = LineHandler(PrettyFormatter(), pipe)
        said = [0] * 4

        def log(place: int) -> None:
            for _ in range(3000):
                handler.write_line("x" * 100)
                said[place] += 1

        threads = [threading.Thread(target=log, args=(place,), daemon=True) for place in range(4)]
        for thread in threads:
            thread.start()
        seen = [0]

        def stands_still() -> bool:
            seen.append(sum(said))
            return seen[-1] == seen[-2] > 0

        eventually(stands_still, every_seconds=0.1)
        waiting_at = sum(said)

        taken = 0
        while taken < 4 * 3000 * 101:
            taken += len(os.read(reader, 1 << 16))
        for thread in threads:
            thread.join()

    os.close(reader)
    # A pipe holds 64 KiB, at most 650 of these lines, and the queue a thousand.
    assert waiting_at < 2000
    assert sum(said) == 4 * 3000


def test_a_log_that_cannot_be_written_fails_no_job() -> None:
    """The reader went away: the line is lost, the caller goes on."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        LineHandler(PrettyFormatter(), pipe).write_line("lost")


def test_a_full_pipe_that_does_not_block_is_waited_for() -> None:
    """Standard output may be non-blocking, as another program set it so."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with os.fdopen(writer, "w") as pipe:
        handler = LineHandler(PrettyFormatter(), pipe)
        thread = threading.Thread(target=lambda: [handler.write_line("x" * 1000) for _ in range(200)], daemon=True)
        thread.start()

        taken = 0
        while taken < 200 * 1001:
            taken += len(os.read(reader, 1 << 16))
        thread.join()

    os.close(reader)
    assert taken == 200 * 1001


def test_lines_go_to_a_stream_without_a_descriptor() -> None:
    """Tests and notebooks log into memory."""
    stream = io.StringIO()
    handler = LineHandler(PrettyFormatter(), stream)

    handler.handle(logging.LogRecord("app", logging.INFO, "app.py", 1, "seen", (), None))
    handler.write_line("odd \ud800")

    assert stream.getvalue().splitlines()[0].endswith("INFO: seen")
    assert stream.getvalue().splitlines()[1] == "odd \\ud800"


def test_jobs_that_are_cut_off_while_they_log_do_not_silence_the_log(tmp_path: Path) -> None:
    """A time limit is raised in a thread wherever it is, also between any two steps of writing a line."""
    logger = logging.Logger("struck")

    def work(is_logging: threading.Event) -> None:
        try:
            while True:
                logger.info("working")
                is_logging.set()
        except SoftTimeLimitError:
            pass

    with (tmp_path / "log").open("w") as file:
        logger.addHandler(LineHandler(PrettyFormatter(), file))
        for _ in range(100):
            events = [threading.Event(), threading.Event()]
            jobs = [(event, threading.Thread(target=work, args=(event,))) for event in events]
            for is_logging, thread in jobs:
                thread.start()
                is_logging.wait()
            for _, thread in jobs:
                set_async_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
                while thread.is_alive():
                    set_async_exception(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SoftTimeLimitError))
                    # One that strikes inside a destructor is ignored by Python itself.
                    thread.join(1)
        logger.info("the last word")

        assert "the last word" in (tmp_path / "log").read_text()


def test_a_forked_child_logs_even_if_a_thread_was_writing() -> None:
    """The child has only the thread that forked: nobody would let go of the parent's lock."""
    program = """
import os, sys, threading
import pytest

from sidekiq_py.engine.report.line_handler import LineHandler
from sidekiq_py.logs import PrettyFormatter
handler = LineHandler(PrettyFormatter(), sys.stdout)
held, done = threading.Event(), threading.Event()
def hold():
    handler._turn["writer"] = threading.get_ident()
    handler._pending.append("the parent's line")
    held.set(); done.wait()
    handler._turn.clear()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    handler.write_line("the child's line")
    os._exit(0)
os.waitpid(child, 0)
done.set()
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=20
    )

    assert ran.stdout == "the child's line\nthe parent's line\n"


def test_nothing_is_written_to_whatever_took_a_closed_streams_number(tmp_path: Path) -> None:
    """The next thing that is opened gets the number of what was closed last, a connection to Redis for example."""
    reading, writing = os.pipe()
    stream = (tmp_path / "log").open("w")
    handler = LineHandler(PrettyFormatter(), stream)
    number = stream.fileno()
    stream.close()
    os.dup2(writing, number)

    handler.write_line("meant for the log")

    os.set_blocking(reading, False)
    with pytest.raises(BlockingIOError):
        os.read(reading, 100)
    for descriptor in (reading, writing, number):
        os.close(descriptor)
