"""
The state of a cluster as its events report it: workers, and the latest tasks.

`State.event` applies one event after the other; the other methods query the result. Events may arrive out of order: a
task has the state that logically comes last, and tasks are ordered by the senders' logical clocks.
"""

import bisect
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from itertools import islice
from time import time
from typing import Any
from weakref import WeakSet, ref

from kombu.clocks import timetuple
from kombu.utils.functional import LRUCache, memoize

from sidekiq_celery.events.seen_task import TASK_EVENT_TO_STATE, CallableDefaultdict, Task
from sidekiq_celery.utils.log import get_logger

__all__ = ("TASK_EVENT_TO_STATE", "State", "Task", "Worker", "heartbeat_expires")

HEARTBEAT_EXPIRE_WINDOW = 200
"""Percent of the heartbeat interval after which a silent worker counts as gone."""
HEARTBEAT_DRIFT_MAX = 16
"""The difference in seconds between sending and receiving above which the machines' clocks are suspected."""
DRIFT_WARNING = (
    "Substantial drift from %s: its clock and this one are %s seconds apart (sent at %s, received at %s); "
    "synchronize both with NTP"
)

# What workers and tasks keep of their own beside the fields of their events, which become attributes.
_OWN = frozenset({"event", "update", "children", "heartbeats", "cluster_state"})

logger = get_logger(__name__)
warn = logger.warning


@memoize(maxsize=1000, keyfun=lambda args, _: args[0])  # type: ignore[untyped-decorator]
def _warn_drift(hostname: Any, drift: float, received: float, sent: float) -> None:
    """Warn once per host."""
    warn(DRIFT_WARNING, hostname, drift, datetime.fromtimestamp(sent), datetime.fromtimestamp(received))


def heartbeat_expires(timestamp: Any, freq: Any = 60, expire_window: float = HEARTBEAT_EXPIRE_WINDOW) -> float:
    """When a worker last heard from at *timestamp*, with a heartbeat every *freq* seconds, counts as gone."""
    return float(timestamp) + float(freq) * (expire_window / 100.0)


def _attributes(event: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event that become attributes. A program may send any fields with its events."""
    if event.keys().isdisjoint(_OWN):
        return event
    return {name: value for name, value in event.items() if name not in _OWN}


class Worker:
    """A worker as its events describe it."""

    heartbeat_max = 4
    expire_window = HEARTBEAT_EXPIRE_WINDOW
    _fields = (
        *("hostname", "pid", "freq", "heartbeats", "clock", "active", "processed", "loadavg"),
        *("sw_ident", "sw_ver", "sw_sys"),
    )

    def __init__(
        self,
        hostname: str | None = None,
        pid: int | None = None,
        freq: Any = 60,
        heartbeats: list[float] | None = None,
        clock: int | None = 0,
        active: int | None = None,
        processed: int | None = None,
        loadavg: Any = None,
        sw_ident: str | None = None,
        sw_ver: str | None = None,
        sw_sys: str | None = None,
    ) -> None:
        self.hostname = hostname
        self.pid = pid
        self.freq = freq
        self.heartbeats = [] if heartbeats is None else heartbeats
        self.clock = clock or 0
        self.active = active
        self.processed = processed
        self.loadavg = loadavg
        self.sw_ident = sw_ident
        self.sw_ver = sw_ver
        self.sw_sys = sw_sys

    def event(
        self, type_: str | None, timestamp: Any = None, local_received: Any = None, fields: Any = None, **_: Any
    ) -> None:
        """
        Apply an event.

        Args:
            type_: The type without its group.
            timestamp, local_received: When it was sent and received, in seconds since the epoch.
        """
        self.update(fields or {})
        if type_ == "offline":
            self.heartbeats.clear()
        elif timestamp and local_received:
            drift = abs(int(local_received) - int(timestamp))
            if drift > HEARTBEAT_DRIFT_MAX:
                _warn_drift(self.hostname, drift, local_received, timestamp)
            del self.heartbeats[: max(0, len(self.heartbeats) - self.heartbeat_max + 1)]
            bisect.insort(self.heartbeats, local_received)

    def update(self, f: Mapping[str, Any], **kw: Any) -> None:
        """Set attributes."""
        self.__dict__.update(f, **kw)

    @property
    def status_string(self) -> str:
        """`ONLINE` or `OFFLINE`."""
        return "ONLINE" if self.alive else "OFFLINE"

    @property
    def heartbeat_expires(self) -> float:
        """When the worker counts as gone."""
        return heartbeat_expires(self.heartbeats[-1], self.freq, self.expire_window)

    @property
    def alive(self) -> bool:
        """True if the worker was heard from recently."""
        return bool(self.heartbeats) and time() < self.heartbeat_expires

    @property
    def id(self) -> str:
        """Node name and process."""
        return f"{self.hostname}.{self.pid}"

    def __eq__(self, other: object) -> bool:
        return self.hostname == other.hostname if isinstance(other, Worker) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hostname)

    def __repr__(self) -> str:
        return f"<Worker: {self.hostname} ({self.status_string} clock:{self.clock})>"

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, name) for name in self._fields)


class State:
    """
    The state of a cluster.

    Args:
        callback: Called with this object and each event, before the event is applied.
        workers, tasks: By name and by id, taken over from another state.
        max_workers_in_memory, max_tasks_in_memory: Above these, those that were not heard from for the longest time
            are forgotten.
        on_node_join, on_node_leave: Called with a worker.

    Attributes:
        tasks_by_type, tasks_by_worker: Sets of tasks, by the name of the task or of the worker. Called with a name,
            they yield pairs of id and task, the latest first.
    """

    Worker = Worker
    Task = Task
    event_count = 0
    task_count = 0
    heap_multiplier = 4
    """About how many events a task has."""

    def __init__(
        self,
        callback: Callable[["State", dict[str, Any]], Any] | None = None,
        workers: Any = None,
        tasks: Any = None,
        taskheap: list[Any] | None = None,
        max_workers_in_memory: int = 5000,
        max_tasks_in_memory: int = 10000,
        on_node_join: Callable[[Any], Any] | None = None,
        on_node_leave: Callable[[Any], Any] | None = None,
        tasks_by_type: Mapping[str, list[str]] | None = None,
        tasks_by_worker: Mapping[str, list[str]] | None = None,
    ) -> None:
        self.event_callback = callback
        self.workers: Any = LRUCache(max_workers_in_memory) if workers is None else workers
        self.tasks: Any = LRUCache(max_tasks_in_memory) if tasks is None else tasks
        self.max_workers_in_memory = max_workers_in_memory
        self.max_tasks_in_memory = max_tasks_in_memory
        self.on_node_join = on_node_join
        self.on_node_leave = on_node_leave
        self.handlers: dict[str, Callable[[str, dict[str, Any]], Any]] = {}
        self._mutex = threading.Lock()
        self._seen_types: set[str] = set()
        # Tasks whose parent was not reported yet, by the parent's id.
        self._tasks_to_resolve: Any = LRUCache(max_tasks_in_memory)
        self._taskheap: list[Any] = [] if taskheap is None else taskheap
        self.rebuild_taskheap()
        self.tasks_by_type = self._index(self._tasks_by_type, tasks_by_type)
        self.tasks_by_worker = self._index(self._tasks_by_worker, tasks_by_worker)

    def _index(self, by_time: Callable[..., Any], ids: Mapping[str, list[str]] | None) -> CallableDefaultdict:
        index = CallableDefaultdict(by_time, WeakSet)
        for name, known in (ids or {}).items():
            index[name] = WeakSet(self.tasks[each] for each in known if each in self.tasks)
        return index

    # ---- applying events

    def event(self, event: dict[str, Any]) -> Any:
        """
        Apply an event.

        Returns:
            `((worker or task, is new), what)`, where *what* is the type without its group. None if the event is about
            neither a worker nor a task, or names no id, host or time.
        """
        with self._mutex:
            return self._event(event)

    def task_event(self, type_: str, fields: Mapping[str, Any]) -> Any:
        """Apply a task event whose type has no group."""
        return self._event({**fields, "type": f"task-{type_}"})[0]

    def worker_event(self, type_: str, fields: Mapping[str, Any]) -> Any:
        """Apply a worker event whose type has no group."""
        return self._event({**fields, "type": f"worker-{type_}"})[0]

    def _event(self, event: dict[str, Any]) -> Any:
        self.event_count += 1
        if self.event_callback is not None:
            self.event_callback(self, event)
        group, _, what = event["type"].partition("-")
        handler = self.handlers.get(group)
        if handler is not None:
            return handler(what, event), what
        if group == "worker":
            return self._of_worker(what, event)
        if group == "task":
            return self._of_task(what, event)
        return None

    def _of_worker(self, what: str, event: dict[str, Any]) -> Any:
        if not all(name in event for name in ("hostname", "timestamp", "local_received")):
            return None
        hostname = event["hostname"]
        worker = self.workers.data.get(hostname)
        is_new = worker is None and what != "offline"
        if worker is None:
            worker = self.Worker(hostname)
            if is_new:
                self.workers[hostname] = worker
        worker.event(what, event["timestamp"], event["local_received"], _attributes(event))
        if self.on_node_join is not None and (is_new or what == "online"):
            self.on_node_join(worker)
        if self.on_node_leave is not None and what == "offline":
            self.on_node_leave(worker)
            self.workers.pop(hostname, None)
        return (worker, is_new), what

    def _of_task(self, what: str, event: dict[str, Any]) -> Any:
        if not event.keys() >= {"uuid", "hostname", "timestamp", "clock", "local_received"}:
            return None
        uuid, hostname, timestamp = event["uuid"], event["hostname"], event["timestamp"]
        task = self.tasks.data.get(uuid)
        is_new = task is None
        if task is None:
            task = self.tasks[uuid] = self.Task(uuid, cluster_state=self)
        if what == "sent":
            task.client = origin = hostname
        else:
            worker = self._worker_of(hostname, timestamp, event["local_received"])
            task.worker, origin = worker, worker.id
        self._put_in_order(timetuple(event["clock"], timestamp, origin, ref(task)))
        self.task_count += what == "received"
        task.event(what, timestamp, event["local_received"], _attributes(event))
        if task.name is not None:
            self._seen_types.add(task.name)
            if is_new:
                self.tasks_by_type[task.name].add(task)
                self.tasks_by_worker[hostname].add(task)
        self._relate(task)
        return (task, is_new), what

    def _worker_of(self, hostname: str, timestamp: Any, local_received: Any) -> Any:
        worker = self.workers.data.get(hostname)
        if worker is None:
            worker = self.workers[hostname] = self.Worker(hostname)
        worker.event(None, timestamp, local_received)
        return worker

    def _put_in_order(self, moment: Any) -> None:
        heap = self._taskheap
        if len(heap) >= self.max_tasks_in_memory * self.heap_multiplier:
            del heap[0]
        if heap and moment > heap[-1]:
            heap.append(moment)
        else:
            bisect.insort(heap, moment)

    def _relate(self, task: Any) -> None:
        """Make *task* a child of its parent, and make earlier tasks that name it as their parent its children."""
        if task.parent_id:
            parent = self.tasks.data.get(task.parent_id)
            if parent is not None:
                parent.children.add(task)
            else:
                waiting = self._tasks_to_resolve.data.get(task.parent_id)
                if waiting is None:
                    waiting = self._tasks_to_resolve[task.parent_id] = WeakSet()
                waiting.add(task)
        task.children.update(self._tasks_to_resolve.pop(task.uuid, ()))

    # ---- querying

    def get_or_create_worker(self, hostname: str, **kwargs: Any) -> tuple[Any, bool]:
        """Return a worker with these attributes, and True if it is new."""
        if hostname in self.workers:
            worker = self.workers[hostname]
            worker.update(kwargs)
            return worker, False
        worker = self.workers[hostname] = self.Worker(hostname, **kwargs)
        return worker, True

    def get_or_create_task(self, uuid: str) -> tuple[Any, bool]:
        """Return a task, and True if it is new."""
        if uuid in self.tasks:
            return self.tasks[uuid], False
        task = self.tasks[uuid] = self.Task(uuid, cluster_state=self)
        return task, True

    def itertasks(self, limit: int | None = None) -> Iterator[tuple[str, Any]]:
        """Yield pairs of id and task, beginning with the one that was not heard from for the longest time."""
        return islice(self.tasks.items(), limit or None)

    def tasks_by_time(self, limit: int | None = None, reverse: bool = True) -> Generator[tuple[str, Any]]:
        """
        Yield pairs of id and task, the latest first unless *reverse* is false.

        Args:
            limit: The number of events to look at.
        """
        seen: set[str] = set()
        for moment in islice(reversed(self._taskheap) if reverse else self._taskheap, limit):
            task = moment[3]()
            if task is not None and task.uuid not in seen:
                seen.add(task.uuid)
                yield task.uuid, task

    tasks_by_timestamp = tasks_by_time

    def _tasks_by_type(self, name: str, limit: int | None = None, reverse: bool = True) -> Iterator[tuple[str, Any]]:
        latest = self.tasks_by_time(reverse=reverse)
        return islice(((uuid, task) for uuid, task in latest if task.name == name), limit)

    def _tasks_by_worker(
        self, hostname: str, limit: int | None = None, reverse: bool = True
    ) -> Iterator[tuple[str, Any]]:
        latest = self.tasks_by_time(reverse=reverse)
        of_worker = ((uuid, task) for uuid, task in latest if task.worker and task.worker.hostname == hostname)
        return islice(of_worker, limit)

    def task_types(self) -> list[str]:
        """The names of all tasks that were reported."""
        return sorted(self._seen_types)

    def alive_workers(self) -> Iterator[Any]:
        """Workers that were heard from recently."""
        return (worker for worker in self.workers.values() if worker.alive)

    # ---- forgetting

    def freeze_while(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call *fun* while events are held back. With `clear_after=True`, forget everything afterwards."""
        clear_after = kwargs.pop("clear_after", False)
        with self._mutex:
            try:
                return fun(*args, **kwargs)
            finally:
                if clear_after:
                    self._clear()

    def clear_tasks(self, ready: bool = True) -> None:
        """Forget finished tasks, or all tasks if *ready* is false."""
        with self._mutex:
            self._clear_tasks(ready)

    def clear(self, ready: bool = True) -> None:
        """Forget all workers, and tasks as `clear_tasks` does."""
        with self._mutex:
            self._clear(ready)

    def _clear_tasks(self, ready: bool = True) -> None:
        left = {uuid: task for uuid, task in self.itertasks() if ready and not task.ready}
        self.tasks.clear()
        self.tasks.update(left)
        self._taskheap.clear()

    def _clear(self, ready: bool = True) -> None:
        self.workers.clear()
        self._clear_tasks(ready)
        self.event_count = self.task_count = 0

    def rebuild_taskheap(self, timetuple: Callable[..., Any] = timetuple) -> None:
        """Sort the tasks again."""
        tasks = self.tasks.values()
        self._taskheap[:] = sorted(timetuple(task.clock, task.timestamp, task.origin, ref(task)) for task in tasks)

    def __repr__(self) -> str:
        return f"<State: events={self.event_count} tasks={self.task_count}>"

    def __reduce__(self) -> Any:
        indexes = (
            {name: [task.id for task in tasks] for name, tasks in index.items()}
            for index in (self.tasks_by_type, self.tasks_by_worker)
        )
        limits = (self.max_workers_in_memory, self.max_tasks_in_memory)
        callbacks = (self.on_node_join, self.on_node_leave)
        return type(self), (self.event_callback, self.workers, self.tasks, None, *limits, *callbacks, *indexes)
