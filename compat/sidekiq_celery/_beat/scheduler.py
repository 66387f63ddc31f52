"""
The scheduler that keeps its entries in memory: the base class for schedulers that use a database.

Entries wait in a heap, ordered by the time of their next check. `tick` checks the first one, sends it if it is due, and
returns how long to sleep.
"""

import copy
import heapq
import logging
import time
from calendar import timegm
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from kombu.common import ignore_errors

from sidekiq_celery._beat.entry import ScheduleEntry, evaluated_args, evaluated_kwargs
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.schedules import crontab
from sidekiq_celery.utils.functional import is_numeric_value, maybe_evaluate
from sidekiq_celery.utils.time import humanize_seconds, maybe_make_aware
from sidekiq_py.errors import RedisError

logger = logging.getLogger("celery.beat")

_PRIORITY = 5


class SchedulingError(Exception):
    """A periodic task could not be sent."""


class event_t(NamedTuple):
    """An item of the heap: seconds since the epoch, priority, entry."""

    time: float
    priority: int
    entry: Any


class Scheduler:
    """
    Sends periodic tasks.

    Args:
        app: The app with the settings and tasks.
        schedule: Entries by name, or a function that returns them.
        max_interval: Seconds after which to check the schedule again; by default the setting `beat_max_loop_interval`.
        Producer: Accepted for compatibility; pushes do not need kombu.
        lazy: True for a scheduler that is only inspected: its schedule is not set up.
        sync_every_tasks: `sync` after this many tasks; by default the setting `beat_sync_every`.
    """

    Entry: ClassVar[Any] = ScheduleEntry

    max_interval: Any = 300
    """Seconds."""

    sync_every: float = 180
    """Seconds."""

    sync_every_tasks: int | None = None

    logger: ClassVar[logging.Logger] = logger

    _last_sync: float | None = None
    _tasks_since_sync: int = 0

    def __init__(
        self,
        app: Any,
        schedule: Any = None,
        max_interval: float | None = None,
        Producer: Any = None,
        lazy: bool = False,
        sync_every_tasks: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.app = app
        self.data: Any = {} if schedule is None else maybe_evaluate(schedule)
        self.max_interval = max_interval or app.conf.beat_max_loop_interval or self.max_interval
        self.Producer = Producer or app.amqp.Producer
        self.sync_every_tasks = app.conf.beat_sync_every if sync_every_tasks is None else sync_every_tasks
        self.old_schedulers: Any = None
        self._heap: list[event_t] | None = None
        if not lazy:
            self.setup_schedule()

    def setup_schedule(self) -> None:
        """Read the entries; called once, unless the scheduler is lazy."""
        self.install_default_entries(self.data)
        self.merge_inplace(self.app.conf.beat_schedule)

    def install_default_entries(self, data: Mapping[str, Any]) -> None:
        """Add the entry that every app has: the cleanup of results, unless the backend expires them by itself."""
        self.update_from_dict(self._default_entries(data))

    def _default_entries(self, data: Mapping[str, Any]) -> dict[str, Any]:
        name = "celery.backend_cleanup"
        if not self.app.conf.result_expires or self.app.backend.supports_autoexpire or name in data:
            return {}
        return {name: {"task": name, "schedule": crontab("0", "4", "*"), "options": {"expires": 12 * 3600}}}

    def get_schedule(self) -> Any:
        """Entries by name."""
        return self.data

    def set_schedule(self, schedule: Any) -> None:
        """Replace all entries."""
        self.data = schedule

    # Looked up by name, so that subclasses only need to define the two methods.
    @property
    def schedule(self) -> Any:
        """Entries by name."""
        return self.get_schedule()

    @schedule.setter
    def schedule(self, schedule: Any) -> None:
        self.set_schedule(schedule)

    @property
    def info(self) -> str:
        """A line for beat's banner."""
        return ""

    def add(self, **kwargs: Any) -> Any:
        """Add an entry."""
        entry = self.Entry(app=self.app, **kwargs)
        self.schedule[entry.name] = entry
        return entry

    def update_from_dict(self, dict_: Mapping[str, Any]) -> None:
        """Add entries, or dicts of their fields, by name."""
        self.schedule.update({name: self._maybe_entry(name, entry) for name, entry in dict_.items()})

    def _maybe_entry(self, name: str, entry: Any) -> Any:
        if isinstance(entry, self.Entry):
            entry.app = self.app
            return entry
        return self._entry(name, entry)

    def _entry(self, name: str, fields: Any) -> Any:
        try:
            return self.Entry(**{**dict(fields), "name": name, "app": self.app})
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(
                f"beat_schedule[{name!r}] cannot be read: {error}. An entry is a dict with task, schedule and, if "
                "wanted, args, kwargs, options and relative"
            ) from error

    def merge_inplace(self, b: Mapping[str, Any]) -> None:
        """Replace the schedule with that of *b*; existing entries keep the time of their last run."""
        schedule = self.schedule
        for name in set(schedule) - set(b):
            schedule.pop(name, None)
        for name, fields in b.items():
            entry = self._entry(name, fields)
            for what in ("task", "schedule"):
                if getattr(entry, what) is None and not isinstance(fields, self.Entry):
                    raise ImproperlyConfigured(f"beat_schedule[{name!r}] cannot be read: it has no {what}")
            known = schedule.get(name)
            if known:
                known.update(entry)
            else:
                schedule[name] = entry

    def schedules_equal(self, old_schedules: Any, new_schedules: Any) -> bool:
        """Whether both have the same entries; if not, the heap is rebuilt."""
        if old_schedules is None or new_schedules is None:
            return old_schedules is new_schedules
        if set(old_schedules) != set(new_schedules):
            return False
        return all(
            bool(new_schedules.get(name)) and new_schedules[name] == old_schedules[name] for name in old_schedules
        )

    def tick(
        self,
        event_t: Callable[..., Any] = event_t,
        min: Callable[..., Any] = min,
        heappop: Callable[..., Any] = heapq.heappop,
        heappush: Callable[..., Any] = heapq.heappush,
    ) -> float:
        """
        Check the next entry, and send it if it is due.

        Returns:
            Seconds to sleep before the next call.
        """
        if self._heap is None or not self.schedules_equal(self.old_schedulers, self.schedule):
            self.old_schedulers = copy.copy(self.schedule)
            self.populate_heap()
        heap: Any = self._heap
        if not heap:
            return float(self.max_interval)
        event = heap[0]
        entry = event[2]
        now = self._when(entry, 0)
        if event[0] > now:
            return float(min(event[0] - now, self.max_interval))
        is_due, seconds = self._asked(self.is_due, entry)
        taken = heappop(heap)
        if taken is not event:
            # Something was added to the heap in the meantime.
            heappush(heap, taken)
            return float(min(taken[0] - self._when(taken[2], 0), self.max_interval))
        if is_due:
            following = self.reserve(entry)
            self._send_due(entry)
            heappush(heap, event_t(self._when(following, seconds), event[1], following))
            return 0
        again = seconds if is_numeric_value(seconds) else self.max_interval
        heappush(heap, event_t(self._when(entry, again), event[1], entry))
        return 0 if heap[0][2] is not entry else float(min(self.adjust(again), self.max_interval))

    def populate_heap(self, event_t: Callable[..., Any] = event_t, heapify: Callable[..., Any] = heapq.heapify) -> None:
        """Fill the heap from the schedule."""
        heap = []
        for entry in self.schedule.values():
            is_due, seconds = self._asked(lambda one: one.is_due(), entry)
            heap.append(event_t(self._when(entry, 0 if is_due else seconds) or 0, _PRIORITY, entry))
        heapify(heap)
        self._heap = heap

    def is_due(self, entry: Any) -> Any:
        """Whether to send *entry* now, and in how many seconds to check again."""
        return entry.is_due()

    def _asked(self, ask: Callable[[Any], Any], entry: Any) -> Any:
        """Check an entry. An error in calculating its next run is logged, so that it does not affect other entries."""
        try:
            return ask(entry)
        except Exception:
            again = humanize_seconds(self.max_interval)
            logger.exception("beat: Cannot calculate the next run of %r, trying again in %s.", entry.name, again)
            return False, self.max_interval

    def adjust(self, n: Any, drift: float = -0.010) -> Any:
        """The seconds to wait, minus the time that waking up takes."""
        return n + drift if n and n > 0 else n

    def _when(self, entry: Any, next_time_to_run: Any, mktime: Callable[..., Any] = timegm) -> float:
        now: datetime = maybe_make_aware(entry.default_now())
        return float(mktime(now.utctimetuple()) + now.microsecond / 1e6 + (self.adjust(next_time_to_run) or 0))

    def reserve(self, entry: Any) -> Any:
        """Count a run of *entry* at the current time. Returns the entry that replaces it."""
        following = self.schedule[entry.name] = next(entry)
        return following

    def _send_due(self, entry: Any) -> None:
        self.apply_entry(entry, producer=self.producer)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send *entry*, and log any error but a `RedisError`."""
        logger.info("Scheduler: Sending due task %s (%s)", entry.name, entry.task)
        try:
            result = self.apply_async(entry, producer=producer, advance=False)
        except RedisError:
            # Only from a scheduler that keeps its state in Redis: the entry stays due, so it must wait.
            raise
        except Exception as error:
            logger.exception("Message Error: %s", error)
        else:
            if result and hasattr(result, "id"):
                logger.debug("%s sent. id->%s", entry.task, result.id)
            else:
                logger.debug("%s sent.", entry.task)

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        """
        Send *entry*.

        Args:
            advance: True to count the run; False if `tick` has already done so.

        Raises:
            SchedulingError: It could not be sent.
        """
        # Counted first, so that an entry that cannot be sent is not tried forever.
        entry = self.reserve(entry) if advance else entry
        task = self.app.tasks.get(entry.task)
        try:
            args, options = (evaluated_args(entry.args), evaluated_kwargs(entry.kwargs)), entry.options.copy()
            options["headers"] = {**(options.get("headers") or {}), "celery_beat_task": True}
            if task:
                return task.apply_async(*args, producer=producer, **options)
            return self.send_task(entry.task, *args, producer=producer, **options)
        except Exception as error:
            raise SchedulingError(f"Couldn't apply scheduled task {entry.name}: {error}") from error
        finally:
            self._tasks_since_sync += 1
            if self.should_sync():
                self._do_sync()

    def send_task(self, *args: Any, **kwargs: Any) -> Any:
        """Send a task that is not registered in this program."""
        return self.app.send_task(*args, **kwargs)

    def should_sync(self) -> bool:
        """Whether it is time to `sync`."""
        if self.sync_every_tasks and self._tasks_since_sync >= self.sync_every_tasks:
            return True
        return not self._last_sync or time.monotonic() - self._last_sync > self.sync_every

    def _do_sync(self) -> None:
        try:
            logger.debug("beat: Synchronizing schedule...")
            self.sync()
        finally:
            self._last_sync = time.monotonic()
            self._tasks_since_sync = 0

    def sync(self) -> None:
        """Store any state that is only in memory; for subclasses."""

    def close(self) -> None:
        """Store the state and release the connection; called when beat ends."""
        try:
            self.sync()
        except Exception:
            # The error in storing the schedule matters more than one in closing a connection.
            try:
                self._release()
            except Exception:
                logger.exception("beat: Connection cleanup failed after sync error")
            raise
        self._release()

    def _release(self) -> None:
        self.__dict__.pop("producer", None)
        connection = self.__dict__.pop("connection", None)
        if connection is not None:
            ignore_errors(connection, connection.release)

    @cached_property
    def connection(self) -> Any:
        """A kombu connection to the broker, for subclasses that need one."""
        return self.app.connection_for_write()

    @cached_property
    def producer(self) -> Any:
        """A kombu producer, for subclasses that need one."""
        return self.Producer(self._ensure_connected(), auto_declare=False)

    def _ensure_connected(self) -> Any:
        def say(error: Exception, seconds: float) -> None:
            logger.error("beat: Connection error: %s. Trying again in %s seconds...", error, seconds)

        return self.connection.ensure_connection(say, self.app.conf.broker_connection_max_retries)
