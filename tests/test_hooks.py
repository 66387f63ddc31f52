"""What a program hangs on a worker."""

import logging

import pytest

from sidekiq_py.errors import SoftTimeLimitError
from sidekiq_py.hooks import Hooks


def raised_in_the_program() -> ValueError:
    """An error with a traceback."""
    try:
        raise ValueError("no such order")
    except ValueError as error:
        return error


def test_a_failed_job_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Without it nobody finds the line that failed."""
    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(raised_in_the_program(), {"context": "Job raised exception", "job": {"class": "A"}})

    [record] = caplog.records
    assert record.getMessage() == "Job raised exception: ValueError: no such order"
    assert "raised_in_the_program" in caplog.text


def test_an_error_that_is_no_jobs_takes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """An outage of Redis has no traceback worth reading."""
    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(raised_in_the_program(), {"context": "Redis is out of reach"})

    assert "raised_in_the_program" not in caplog.text


def test_a_soft_limit_says_what_it_is_without_being_told() -> None:
    """A thread can only be handed the class of what is to be raised in it."""
    assert str(SoftTimeLimitError()) == "the job ran longer than its timeout"
