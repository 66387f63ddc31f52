"""
Beat: sends periodic tasks.

`PersistentScheduler` keeps its state in Redis, and any number of beats may run. Schedulers that use a database derive
from `Scheduler` and are selected with the setting `beat_scheduler`.
"""

from sidekiq_celery._beat.entry import BeatLazyFunc, ScheduleEntry
from sidekiq_celery._beat.persistent import PersistentScheduler
from sidekiq_celery._beat.scheduler import Scheduler, SchedulingError, event_t
from sidekiq_celery._beat.service import EmbeddedService, Service

__all__ = (
    "BeatLazyFunc",
    "EmbeddedService",
    "PersistentScheduler",
    "ScheduleEntry",
    "Scheduler",
    "SchedulingError",
    "Service",
    "event_t",
)

DEFAULT_MAX_INTERVAL = 300

for _public in (BeatLazyFunc, PersistentScheduler, ScheduleEntry, Scheduler, SchedulingError, Service, event_t):
    # Pickles and log lines should use the name that programs import it by.
    _public.__module__ = __name__
