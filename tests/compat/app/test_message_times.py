"""A countdown is elapsed time, whatever the app's clocks do in between."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("now", "eta"),
    [
        (datetime(2026, 3, 8, 1, tzinfo=NEW_YORK), "2026-03-08T04:00:00-04:00"),
        (datetime(2026, 11, 1, 0, tzinfo=NEW_YORK), "2026-11-01T01:00:00-05:00"),
    ],
    ids=["forward", "back"],
)
def test_a_countdown_counts_elapsed_seconds(make_app, now, eta):
    """Two hours are two hours on the nights when clocks are changed."""
    app = make_app(timezone="America/New_York")

    message = app.amqp.create_task_message("id", "name", countdown=2 * 3600, now=now)

    assert message.headers["eta"] == eta


@pytest.mark.parametrize("times", [{"countdown": "x"}, {"countdown": object}], ids=["a text", "a class"])
def test_a_countdown_that_is_no_number_is_refused(make_app, times):
    """With its name, and what to give instead."""
    with pytest.raises(TypeError, match=r"^countdown is .*; give a number of seconds"):
        make_app().amqp.create_task_message("id", "name", **times)


@pytest.mark.parametrize("seconds", [10**400, 10**5000, float("inf")], ids=["400 digits", "5000 digits", "infinite"])
def test_a_countdown_beyond_all_dates_is_refused(make_app, seconds):
    """By the error that Celery raises, with what is wrong."""
    app = make_app()

    with pytest.raises(OverflowError, match=r"^countdown is out of range: "):
        app.amqp.create_task_message("id", "name", countdown=seconds)
