"""What a program hangs on a worker."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.errors import (
    ConfigError,
    ExtensionError,
    JobNotFoundError,
    PayloadError,
    RedisConnectionError,
    RedisError,
    RedisReplyError,
    SoftTimeLimitError,
)
from sidekiq_py.hooks import Hooks
from sidekiq_py.wire.payload import parse_job


def raised_in_the_program() -> ValueError:
    """An error with a traceback."""
    try:
        raise ValueError("no such order")
    except ValueError as error:
        return error


def unreadable(payload: bytes) -> PayloadError:
    """The error that a worker gets for *payload*."""
    with pytest.raises(PayloadError) as caught:
        parse_job(payload)
    return caught.value.with_traceback(caught.tb.tb_next)


def test_a_failed_job_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Without it nobody finds the line that failed."""
    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(raised_in_the_program(), {"context": "Job raised exception", "job": {"class": "A"}})

    [record] = caplog.records
    assert record.getMessage() == "Job raised exception: ValueError: no such order"
    assert "raised_in_the_program" in caplog.text


def test_an_error_is_logged_beside_an_error_handler(caplog: pytest.LogCaptureFixture) -> None:
    """Who adds Sentry still finds the error in the log, as with Ruby's own handler."""
    hooks = Hooks()
    calls: list[str] = []
    hooks.on_error(lambda error, context: calls.append(str(error)))

    with caplog.at_level(logging.WARNING, "sidekiq"):
        hooks.report(raised_in_the_program(), {"context": "Job raised exception", "job": {"class": "A"}})

    assert calls == ["no such order"]
    assert [record.getMessage() for record in caplog.records] == ["Job raised exception: ValueError: no such order"]


def test_an_error_whose_message_raises_is_logged_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the program's exception does, its report comes out."""

    class Spiteful(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(Spiteful(), {"context": "heartbeat"})

    assert caplog.records[0].getMessage() == "heartbeat: Spiteful: !!! ERROR MESSAGE THREW AN ERROR !!!"


def test_an_error_that_is_no_jobs_takes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """An outage of Redis has no traceback worth reading."""
    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(raised_in_the_program(), {"context": "Redis is out of reach"})

    assert "raised_in_the_program" not in caplog.text


@pytest.mark.parametrize(
    ("cause", "has_traceback"),
    [(RedisConnectionError("Connection refused"), False), (RedisReplyError("NOPERM no right to 'zrange'"), True)],
    ids=["outage", "refusal"],
)
def test_a_job_that_an_extension_holds_up_in_an_outage_takes_one_line(
    caplog: pytest.LogCaptureFixture, cause: RedisError, has_traceback: bool
) -> None:
    """Otherwise each member of a batch would log three chained tracebacks that say "Connection refused"."""
    error = ExtensionError("batches", "admit", cause)
    error.__cause__ = cause

    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(error, {"context": "The job waits and is tried again", "job": {"class": "A"}})

    [record] = caplog.records
    assert f"failed in admit: {type(cause).__name__}: {cause}" in record.getMessage()
    assert bool(record.exc_info) is has_traceback


@pytest.mark.parametrize(
    ("error", "context", "says"),
    [
        (RedisReplyError("NOPERM no right"), "heartbeat", True),
        (RedisReplyError("OOM no memory"), "heartbeat", False),
        (RedisReplyError("NOPERM no right"), "retry cannot be read. Rights: docs/redis.md", False),
        (RedisReplyError("NOPERM no right. docs/redis.md tells", is_advised=True), "pushing", False),
    ],
)
def test_a_right_that_is_missing_is_reported_with_where_rights_are_listed(
    caplog: pytest.LogCaptureFixture, error: RedisReplyError, context: str, says: bool
) -> None:
    """Unless the report says so already."""
    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(error, {"context": context})

    [record] = caplog.records
    hint = ". docs/redis.md lists the rights that each program needs" if says else ""
    assert record.getMessage() == f"{context}: RedisReplyError: {error}{hint}"


@pytest.mark.parametrize("payload", [b"{", b'{"class":5}', b'{"class":"A","args":["\\ud800"]}'])
def test_a_payload_that_is_no_job_takes_one_line(caplog: pytest.LogCaptureFixture, payload: bytes) -> None:
    """Anyone may push a million of them, and where the library reads them says nothing about what is wrong."""
    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(unreadable(payload), {"context": "Not a usable job", "jobstr": payload})

    assert len(caplog.text.splitlines()) == 1


def test_an_error_without_a_traceback_takes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody raised it: the lines below would only repeat the message."""
    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(JobNotFoundError("Gone"), {"context": "Job raised exception", "job": {"class": "Gone"}})

    [record] = caplog.records
    assert record.getMessage().startswith("Job raised exception: JobNotFoundError: no job is declared as 'Gone'")
    assert record.exc_info is None


def test_a_soft_limit_says_what_it_is_without_being_told() -> None:
    """A thread can only be handed the class of what is to be raised in it."""
    assert str(SoftTimeLimitError()) == "the job ran longer than its timeout"


def leave(*arguments: object) -> None:
    """What a handler must not do."""
    raise SystemExit(3)


def test_a_handler_that_exits_ends_neither_the_thread_nor_the_row_of_handlers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Events, errors and deaths are told in threads that nobody would replace."""
    hooks = Hooks()
    calls: list[str] = []
    hooks.on("beat")(leave)
    hooks.on("beat")(lambda: calls.append("beat"))
    hooks.on_error(leave)
    hooks.on_error(lambda error, context: calls.append(context["context"]))
    hooks.on_death(leave)
    hooks.on_death(lambda payload, error: calls.append("death"))

    hooks.fire("beat")
    hooks.announce_death({}, ValueError())

    assert calls == [
        "Exception during Sidekiq lifecycle event: beat",
        "beat",
        "Error calling death handler",
        "death",
    ]
    assert caplog.text.count("ERROR HANDLER THREW") == 2


@pytest.mark.parametrize("register", [Hooks().on("startup"), Hooks().on_error, Hooks().on_death])
def test_a_handler_that_cannot_be_called_is_refused_at_once(register: Callable[[Any], Any]) -> None:
    """And not when a job has died."""
    with pytest.raises(ConfigError, match=r"'report' is not a handler for .*; give a function "):
        register("report")


@pytest.mark.parametrize("register", [Hooks().on("startup"), Hooks().on_error, Hooks().on_death])
def test_an_async_handler_is_refused_at_once(register: Callable[[Any], Any]) -> None:
    """Nothing would await it."""

    async def report(*_: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"an `async def`, which .* would not await; give a plain function "):
        register(report)

    class Reporter:
        async def __call__(self, *_: Any) -> None: ...

    for awaitable in (Reporter(), sidekiq.job(name="Report")(report)):
        with pytest.raises(ConfigError, match=r"an `async def`, which .* would not await"):
            register(awaitable)

    @functools.wraps(sidekiq.job(name="Report2")(report))
    def run_to_its_end(*_: Any) -> None: ...

    register(run_to_its_end)


def test_a_program_may_end_itself_at_startup() -> None:
    """There it runs in the main thread, and nothing has begun."""
    hooks = Hooks()
    hooks.on("startup")(leave)

    with pytest.raises(SystemExit):
        hooks.fire("startup", reraise=True)


def test_ctrl_c_is_no_error_of_a_handler() -> None:
    """In the main thread it is meant for the program."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    hooks = Hooks()
    hooks.on("quiet")(interrupted)

    with pytest.raises(KeyboardInterrupt):
        hooks.fire("quiet")
