"""
Beat: sends periodic tasks.

`PersistentScheduler` keeps its state in Redis, and any number of beats may run. Schedulers that use a database derive
from `Scheduler` and are selected with the setting `beat_scheduler`.
"""

from sidekiq_celery._beat.entry import BeatLazyFunc, ScheduleEntry, evaluated_args, evaluated_kwargs
from sidekiq_celery._beat.persistent import PersistentScheduler
from sidekiq_celery._beat.pidbox import BeatPidbox, beat_nodename
from sidekiq_celery._beat.scheduler import Scheduler, SchedulingError, event_t, logger
from sidekiq_celery._beat.service import EmbeddedService, Service
from sidekiq_celery.exceptions import reraise
from sidekiq_celery.schedules import crontab, maybe_schedule

__all__ = (
    "BeatLazyFunc",
    "BeatPidbox",
    "EmbeddedService",
    "PersistentScheduler",
    "ScheduleEntry",
    "Scheduler",
    "SchedulingError",
    "Service",
    "beat_nodename",
    "crontab",
    "event_t",
    "logger",
    "maybe_schedule",
    "reraise",
)

DEFAULT_MAX_INTERVAL = 300

# Schedulers of other packages that send entries themselves import these names from Celery.
_evaluate_entry_args = evaluated_args
_evaluate_entry_kwargs = evaluated_kwargs

for _public in (
    BeatLazyFunc,
    BeatPidbox,
    PersistentScheduler,
    ScheduleEntry,
    Scheduler,
    SchedulingError,
    Service,
    event_t,
):
    # Pickles and log lines should use the name that programs import it by.
    _public.__module__ = __name__
