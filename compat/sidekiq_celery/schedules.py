"""Schedules: when periodic tasks run."""

# Programs import these from here. As in Celery, a star does not.
from datetime import datetime, timedelta  # noqa: F401

from sidekiq_celery._schedules.base import BaseSchedule, maybe_schedule, schedstate, schedule
from sidekiq_celery._schedules.crontab import crontab
from sidekiq_celery._schedules.parser import Cronspec, ParseException, crontab_parser
from sidekiq_celery._schedules.solar import solar

__all__ = (
    "BaseSchedule",
    "Cronspec",
    "ParseException",
    "crontab",
    "crontab_parser",
    "maybe_schedule",
    "schedstate",
    "schedule",
    "solar",
)

for _public in (BaseSchedule, ParseException, crontab, crontab_parser, schedstate, schedule, solar):
    # Pickles and error messages should use the name that programs import it by.
    _public.__module__ = __name__
