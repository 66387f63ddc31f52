"""What the program hides is hidden in the lines about tasks, for monitors and by `inspect`."""

import io
import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sidekiq_celery import Celery
from sidekiq_celery._run import task_log
from sidekiq_celery.utils.einfo import ExceptionInfo
from sidekiq_celery.utils.log import get_task_logger
from sidekiq_celery.worker.task_info import job_info

from sidekiq_py import redaction
from sidekiq_py.redaction import Redaction

SECRET = "4111-hunter2"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Lines about tasks, with all that a record says of them."""
    redaction.use(Redaction(jobs={"Payments.*": ["args[0]", "error_message", "api_key"]}))
    out, loggers = io.StringIO(), (task_log.logger, task_log.incoming)
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(message)s %(data)s"))
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield out
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    redaction.use(None)


def task_and_request(app: Celery) -> tuple[object, object]:
    """A task that was called with a secret."""

    @app.task(name="Payments.charge")
    def charge(card: str, options: object) -> None: ...

    class Request(SimpleNamespace):
        def get(self, name: str) -> object:
            return getattr(self, name, None)

    return charge, Request(
        id="1", shadow=None, hostname="h", args=[SECRET, {"token": SECRET}], kwargs={"api_key": SECRET}
    )


def test_a_secret_is_in_no_line_about_a_task(app: Celery, lines: io.StringIO) -> None:
    """Received, succeeded, to be retried and failed: arguments, results, errors and tracebacks."""
    task, request = task_and_request(app)

    task_log.log_received(task, request)
    task_log.log_success(task, request, {"api_key": SECRET, "rest": [f'{{"token": "{SECRET}"}}']}, 0.1)
    task_log.log_retry(task, request, ValueError(SECRET))
    try:
        raise ValueError(SECRET) from KeyError(SECRET)
    except ValueError as error:
        task_log.log_end(task, request, ExceptionInfo((ValueError, error, error.__traceback__)))

    written = lines.getvalue()
    assert SECRET not in written.replace(f"raise ValueError({SECRET!r})", "")
    assert written.count("Payments.charge[1]") == 4
    assert "ValueError('[redacted]')" in written


def test_a_text_of_the_arguments_is_not_logged_where_arguments_are_hidden_by_position(
    app: Celery, lines: io.StringIO
) -> None:
    """Celery's clients send it with each call, and no position can be found in it."""
    task, request = task_and_request(app)
    request.__dict__.update(args=[SECRET, 5], argsrepr=f"('{SECRET}', 5)", kwargsrepr="{}")

    task_log.log_received(task, request)

    assert SECRET not in lines.getvalue()
    assert "[redacted]" in lines.getvalue()


def test_a_task_may_ask_for_the_traceback_of_no_error(app: Celery) -> None:
    """With `exc_info=True` where no error is handled, a line ends in "NoneType: None", also where errors are hidden."""
    redaction.use(Redaction(jobs={"*": ["error_message"]}))
    out = io.StringIO()

    @app.task(name="Payments.check")
    def check() -> None:
        get_task_logger("tests.of_redaction").error("no charge was found", exc_info=True)

    try:
        app.log.setup("INFO", out)
        check.apply()
    finally:
        redaction.use(None)

    assert "no charge was found\nNoneType: None\n" in out.getvalue()


def test_inspect_shows_no_secret(app: Celery, lines: io.StringIO) -> None:
    """Positional arguments by their place, the others by their names."""
    payload = {
        "class": "Payments.charge",
        "jid": "1",
        "args": [SECRET, 5, {"api_key": SECRET}],
        "queue": "celery",
        "celery": {"kw": True},
    }

    shown = job_info(app, json.dumps(payload).encode(), "h")

    assert shown["args"] == ["[redacted]", 5]
    assert shown["kwargs"] == {"api_key": "[redacted]"}
