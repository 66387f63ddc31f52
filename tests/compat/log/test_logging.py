"""What `app.log` sets up, and the loggers that tasks use."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sidekiq_celery import Celery, signals
from sidekiq_celery.app import trace
from sidekiq_celery.exceptions import Reject
from sidekiq_celery.utils.log import (
    LOG_LEVELS,
    ColorFormatter,
    LoggingProxy,
    get_logger,
    get_multiprocessing_logger,
    get_task_logger,
    in_sighandler,
    mlevel,
)


@contextmanager
def connected(signal: Any, receiver: Any) -> Iterator[None]:
    """*receiver* listens to *signal*."""
    signal.connect(receiver, weak=False)
    try:
        yield
    finally:
        signal.disconnect(receiver)


def test_a_task_s_logger_stands_under_celery_task() -> None:
    """Its lines go where those of tasks go."""
    assert get_task_logger("proj.tasks_of_mine").parent is logging.getLogger("celery.task")

    with pytest.raises(RuntimeError, match="reserved"):
        get_task_logger("celery.task")


def test_other_loggers_keep_their_place() -> None:
    """A plain name stands under the root, as everywhere."""
    assert get_logger("proj_with_no_parent").parent is logging.root


def test_levels_are_numbers_or_names() -> None:
    """Names in any case."""
    assert (mlevel("info"), mlevel(30), mlevel(None)) == (20, 30, None)
    assert LOG_LEVELS["FATAL"] == 50
    assert LOG_LEVELS[50] == "CRITICAL"


def test_lines_have_celery_s_form(app: Celery) -> None:
    """Level and process, in the root's lines."""
    out = io.StringIO()

    app.log.setup("INFO", out)
    logging.getLogger("some.module").info("hello")

    assert "INFO/MainProcess] hello" in out.getvalue()


def test_a_task_s_lines_show_its_name_and_id(app: Celery) -> None:
    """While it runs; else question marks."""
    out = io.StringIO()
    logger = get_task_logger("tests.of_lines")

    @app.task(name="proj.add")
    def add() -> None:
        logger.info("adding")

    app.log.setup("INFO", out)
    add.apply(task_id="the-id").get()
    logger.info("outside")

    assert "proj.add[the-id]: adding" in out.getvalue()
    assert "???[???]: outside" in out.getvalue()
    assert out.getvalue().count("adding") == 1


def test_a_task_s_id_and_name_forge_no_line_and_send_nothing_to_a_terminal(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may push gives both. A worker's other messages and tracebacks may repeat what a payload says."""
    evil = "x\n[2026-01-01: INFO] forged\x1b]0;title\x07"
    out = io.StringIO()

    @app.task(name="proj.add")
    def add() -> None:
        get_task_logger("tests.of_lines").info("my \x1b[32mgreen\x1b[0m line")
        raise ValueError(f"no such encoding: {evil}")

    @app.task(name="proj.echo")
    def echo(text: str) -> str:
        return text

    monkeypatch.setattr(trace, "LOG_SUCCESS", "%(name)s%(args)s %(kwargs)s returned %(return_value)s")

    app.log.setup("INFO", out)
    add.apply(task_id=evil, shadow=evil)
    echo.apply((evil,), argsrepr=f"({evil})", kwargsrepr=evil)
    logging.getLogger("celery.worker.control").info("ignored: %s", "\x1b]0;title\x07")

    written = out.getvalue()
    assert written.count("\n[2026-01-01: INFO] forged") == 1, "in the error's own text, below its traceback"
    assert r"ignored: \x1b]0;title\x07" in written
    assert "\x1b]" not in written
    assert "my \x1b[32mgreen\x1b[0m line" in written


def test_the_texts_of_log_lines_may_be_replaced(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Celery's guide "Extensions and Bootsteps" does it: a name of `celery.app.trace` is assigned."""
    monkeypatch.setattr(trace, "LOG_SUCCESS", "%(name)s is done: %(return_value)s")
    monkeypatch.setattr(trace, "LOG_REJECTED", "%(name)r is cursed: %(exc)s")
    out = io.StringIO()

    @app.task(name="proj.add")
    def add(x: int) -> int:
        if not x:
            raise Reject("no")
        return x

    app.log.setup("INFO", out)
    add.apply((1,))
    add.apply((0,))

    assert "] proj.add is done: 1\n" in out.getvalue()
    assert "] 'proj.add' is cursed: " in out.getvalue()


def test_formats_are_settings(app: Celery) -> None:
    """`worker_log_format` and `worker_task_log_format`."""
    app.conf.update(worker_log_format="R %(message)s", worker_task_log_format="T %(message)s")
    out = io.StringIO()

    app.log.setup("INFO", out)
    logging.getLogger("x").warning("one")
    get_task_logger("tests.of_formats").warning("two")

    assert out.getvalue() == "R one\nT two\n"


def test_who_listens_to_setup_logging_sets_it_up_alone(app: Celery) -> None:
    """No handler of ours is added, nothing is redirected."""
    root_before, printed = list(logging.root.handlers), sys.stdout
    calls: list[Any] = []

    def own(**about: Any) -> None:
        calls.append((about["loglevel"], about["format"]))

    with connected(signals.setup_logging, own):
        app.log.setup("INFO", redirect_stdouts=True)

    assert calls == [(20, app.conf.worker_log_format)]
    assert logging.root.handlers == root_before
    assert sys.stdout is printed


_DISABLES_LOGGERS = """
import logging.config, sys
from sidekiq_celery import Celery, signals
import sidekiq_py.logs
terminal = {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}
settings = {"version": 1, "handlers": {"terminal": terminal}, "root": {"handlers": ["terminal"]}}
if sys.argv[1] == "receiver":
    signals.setup_logging.connect(lambda **kwargs: logging.config.dictConfig(settings), weak=False)
else:
    logging.config.dictConfig(settings)
Celery("proj").log.setup("INFO", sys.stdout)
logging.getLogger("sidekiq").warning("Redis is out of reach")
"""


@pytest.mark.parametrize("place", ["module", "receiver"])
def test_the_engine_s_warnings_come_out_though_the_program_disables_existing_loggers(place: str) -> None:
    """As `dictConfig` does unless told otherwise. In its own interpreter, to spare pytest's loggers."""
    ran = subprocess.run([sys.executable, "-c", _DISABLES_LOGGERS, place], capture_output=True, text=True, check=True)

    assert "Redis is out of reach\n" in ran.stdout


def test_an_error_in_setup_logging_is_raised(app: Celery) -> None:
    """And logging can be set up afterwards."""

    def own(**_: Any) -> None:
        raise ValueError("bad dictConfig")

    with connected(signals.setup_logging, own), pytest.raises(ValueError, match="bad dictConfig"):
        app.log.setup("INFO")

    assert not app.log.already_setup


def test_signals_hand_over_the_loggers(app: Celery) -> None:
    """Programs add handlers of their own by them."""
    calls: list[logging.Logger] = []

    def take(logger: logging.Logger, **_: Any) -> None:
        calls.append(logger)

    with connected(signals.after_setup_logger, take), connected(signals.after_setup_task_logger, take):
        app.log.setup("INFO", io.StringIO())

    assert calls == [logging.root, logging.getLogger("celery.task")]


def test_the_program_s_handlers_go_unless_it_says_otherwise(app: Celery) -> None:
    """`worker_hijack_root_logger`."""
    mine = logging.NullHandler()
    stream = logging.StreamHandler(io.StringIO())
    logging.root.handlers[:] = [mine, stream]
    app.conf.worker_hijack_root_logger = False

    app.log.setup("INFO", io.StringIO())
    assert logging.root.handlers == [mine, stream]

    app.log.already_setup = False
    app.conf.worker_hijack_root_logger = True
    app.log.setup("INFO", io.StringIO())
    assert stream not in logging.root.handlers
    assert len(logging.root.handlers) == 1


def test_it_is_set_up_once(app: Celery) -> None:
    """A second call changes nothing."""
    first, second = io.StringIO(), io.StringIO()

    assert app.log.setup("INFO", first) == []
    assert app.log.setup("INFO", second) is None
    logging.getLogger("x").info("where")

    assert "where" in first.getvalue()
    assert second.getvalue() == ""


def test_a_log_file_may_bear_the_node_s_name(app: Celery, tmp_path: Path) -> None:
    """`%n` and its like."""
    app.log.setup("INFO", str(tmp_path / "%n.log"), hostname="w1@example.com")
    logging.getLogger("x").info("to the file")
    for handler in [*logging.root.handlers, *logging.getLogger("celery.task").handlers]:
        handler.close()

    assert "to the file" in (tmp_path / "w1.log").read_text()
    assert os.environ["CELERY_LOG_FILE"] == str(tmp_path / "%n.log")


def test_what_is_printed_goes_to_the_log(app: Celery) -> None:
    """As warnings, unless told otherwise."""
    out = io.StringIO()

    app.log.setup("INFO", out, redirect_stdouts=True)
    print("printed by a task")

    assert "WARNING/MainProcess] printed by a task" in out.getvalue()


_FAILS_TWICE = """
import threading
from sidekiq_celery import Celery
def fail(text):
    raise ValueError(text) from None
Celery("proj").log.setup("INFO", redirect_stdouts=True)
thread = threading.Thread(target=lambda: max([fail("in a thread")], [2]), name="of a bootstep")
thread.start()
thread.join()
max([fail("at the end")], [2])
"""


def test_an_error_that_nobody_catches_is_logged_as_one_message() -> None:
    """Python writes its traceback in pieces, and each caret on its own. Celery logs each piece as a message."""
    ran = subprocess.run([sys.executable, "-c", _FAILS_TWICE], capture_output=True, text=True, check=False)

    in_thread, at_end = ran.stderr.split(": WARNING/MainProcess] ")[1:]
    assert in_thread.startswith("Exception in thread of a bootstep:\nTraceback (most recent call last):\n  File ")
    assert "\nValueError: in a thread\n" in in_thread
    assert at_end.startswith("Traceback (most recent call last):\n  File ")
    assert at_end.endswith("\nValueError: at the end\n")
    assert ran.returncode == 1


_HAS_HOOKS = """
import sys, threading
from sidekiq_celery import Celery
hooks = sys.excepthook, threading.excepthook = print, repr
Celery("proj").log.setup("INFO", redirect_stdouts=True)
sys.exit((sys.excepthook, threading.excepthook) != hooks)
"""


def test_what_a_program_does_with_errors_that_nobody_catches_stays() -> None:
    """Services that collect errors set hooks for that."""
    subprocess.run([sys.executable, "-c", _HAS_HOOKS], check=True)


def test_a_program_that_a_task_starts_may_print_to_the_streams_of_the_worker(
    app: Celery, capfd: pytest.CaptureFixture[str]
) -> None:
    """`subprocess` and `faulthandler` ask for a descriptor. Celery's streams have none, so both fail in its tasks."""
    app.log.setup("INFO", io.StringIO(), redirect_stdouts=True)

    subprocess.run(["echo", "from a program"], check=True, stdout=sys.stdout, stderr=sys.stderr)

    assert capfd.readouterr().err == "from a program\n"


def test_a_stream_without_an_error_output_has_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have been started without one. Python's own streams raise OSError then, which tools expect."""
    monkeypatch.setattr(sys, "__stderr__", None)

    with pytest.raises(OSError, match="no error output"):
        LoggingProxy(logging.Logger("of.a.proxy"), "INFO").fileno()


def test_a_proxy_does_not_log_what_a_handler_prints() -> None:
    """It would go round for ever."""
    logger = logging.Logger("of.a.proxy", logging.INFO)
    seen: list[str] = []
    proxy: Any = LoggingProxy(logger, "INFO")

    class Printing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())
            proxy.write("again")

    logger.addHandler(Printing())
    assert proxy.write("100 %s\n") == 6
    proxy.writelines(["\n", b"bytes"])
    proxy.close()
    proxy.write("late")

    assert seen == ["100 %s", "bytes"]
    assert not proxy.isatty()


def test_a_handler_of_a_signal_prints_past_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's lock may be held by the code that the signal has interrupted."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", out)
    with in_sighandler():
        LoggingProxy(logging.Logger("never"), "INFO").write("shutting down")

    assert out.getvalue() == "shutting down\n"


def test_colours_follow_the_level() -> None:
    """Errors are red, information has none; without colour all are plain."""

    def line(level: int, use_color: bool) -> str:
        record = logging.LogRecord("x", level, "", 0, "text", None, None)
        return ColorFormatter("%(message)s", use_color=use_color).format(record)

    assert line(logging.ERROR, True) == "\033[1;31mtext\033[0m"
    assert line(logging.INFO, True) == line(logging.ERROR, False) == "text"


def test_a_line_that_cannot_be_made_says_so() -> None:
    """Instead of raising in the program."""
    record = logging.LogRecord("x", logging.ERROR, "", 0, "%d items", ("many",), None)

    assert "Unrepresentable" in ColorFormatter("%(message)s", use_color=False).format(record)


def test_multiprocessing_has_a_logger() -> None:
    """Its own."""
    assert get_multiprocessing_logger().name == "multiprocessing"
