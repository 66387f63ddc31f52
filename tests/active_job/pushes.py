"""The same push in Ruby and in Python."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from sidekiq_py.active_job import Keywords, Symbol, deliver_later, new_job, perform_all_later, perform_later, symbolize

# The Ruby end is in this zone.
later = partial(perform_later, timezone="Europe/Berlin")
new = partial(new_job, timezone="Europe/Berlin")
mail = partial(deliver_later, timezone="Europe/Berlin")
OPTIONS = {"retry": 3, "backtrace": True, "tags": ["x"]}

COMMON: list[tuple[str, Callable[[], object]]] = [
    ("EchoJob.perform_later", lambda: later("EchoJob")),
    ("EchoJob.perform_later(1, 'x', a: [:b])", lambda: later("EchoJob", 1, "x", Keywords(a=[Symbol("b")]))),
    ("EchoJob.perform_later({a: 1})", lambda: later("EchoJob", symbolize({"a": 1}))),
    ("EchoJob.set(queue: :low, priority: 5).perform_later", lambda: later("EchoJob", queue="low", priority=5)),
    ("EchoJob.set(wait: 5.minutes).perform_later(1)", lambda: later("EchoJob", 1, wait=timedelta(minutes=5))),
    ("EchoJob.set(wait: 0.5).perform_later(1)", lambda: later("EchoJob", 1, wait=0.5)),
    ("EchoJob.set(wait: -5).perform_later(1)", lambda: later("EchoJob", 1, wait=-5)),
    (
        "EchoJob.set(wait_until: Time.utc(2100)).perform_later",
        lambda: later("EchoJob", wait_until=datetime(2100, 1, 1, tzinfo=UTC)),
    ),
    ("OptionsJob.perform_later(1)", lambda: later("OptionsJob", 1, queue="reports", sidekiq_options=OPTIONS)),
    (
        "OptionsJob.set(wait: 9).perform_later(1)",
        lambda: later("OptionsJob", 1, queue="reports", wait=9, sidekiq_options=OPTIONS),
    ),
    (
        "ActionMailer::MailDeliveryJob.perform_later('UserMailer', 'welcome', 'deliver_now', args: [1])",
        lambda: mail("UserMailer", "welcome", args=[1]),
    ),
    (
        "ActionMailer::MailDeliveryJob.set(wait: 60).perform_later('UserMailer', 'welcome', 'deliver_now', "
        "params: {user: 7}, args: keywords(1, locale: 'de'))",
        lambda: mail("UserMailer", "welcome", args=[1], kwargs={"locale": "de"}, params={"user": 7}, wait=60),
    ),
]

SINCE_7_1: list[tuple[str, Callable[[], object]]] = [
    (
        "ActiveJob.perform_all_later(EchoJob.new(1), EchoJob.new(2).set(wait: 10), OptionsJob.new(1), "
        "EchoJob.new(3).set(queue: :low), EchoJob.new(4))",
        lambda: perform_all_later(
            [
                new("EchoJob", 1),
                new("EchoJob", 2, wait=10),
                new("OptionsJob", 1, queue="reports", sidekiq_options=OPTIONS),
                new("EchoJob", 3, queue="low"),
                new("EchoJob", 4),
            ]
        ),
    ),
]
