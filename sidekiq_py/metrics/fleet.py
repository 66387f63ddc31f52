"""
Metrics of all processes in both languages, read from Redis, under sidekiq-prometheus-exporter's names.

Every scrape reads Redis, so only the dashboard exports them, and not each worker's own port.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from operator import add
from typing import Any

from sidekiq_py.api import ProcessSet, Stats, WorkSet
from sidekiq_py.api.processes import Process
from sidekiq_py.api.source import pool_for
from sidekiq_py.api.stats import QueueSummary
from sidekiq_py.client.sync_client import Client
from sidekiq_py.metrics.text import Family, Sample, label, render
from sidekiq_py.redis_access.connection import server_info
from sidekiq_py.redis_access.connection.server_info import ServerInfo

MOST_QUEUES = 1000
"""How many queues get their own label; the rest share `other`. Any program may push to any queue."""

MOST_HOSTS = 1000
"""How many hosts get their own label; the rest share `other`. A process may report any host name."""

OTHER = "other"


def fleet_text(*, pool: Any = None, client: Client | None = None, most_queues: int = MOST_QUEUES) -> str:
    """
    The text that the dashboard serves at `/metrics`; its content type is `CONTENT_TYPE`.

    Args:
        pool: The Redis to read: a `Pool`, a redis-py client, or a URL. Without *pool* and *client*, the program's.
        client: A client to use instead of *pool*.
        most_queues: How many queues get their own label; the rest are summed up as `other`.

    Raises:
        RedisError: Redis is unreachable.
    """
    stats = Stats(pool=pool, client=client)
    processes = list(ProcessSet(clean=False, pool=pool, client=client))
    queues = stats.queue_summaries
    threads = sum(process.concurrency for process in processes)
    return render(
        [
            _total("sidekiq_processed_jobs_total", "Attempts that ended, including failed ones.", stats.processed),
            _total("sidekiq_failed_jobs_total", "Attempts that raised.", stats.failed),
            _gauge("sidekiq_workers", "Jobs that all processes can run at once.", threads),
            _gauge("sidekiq_processes", "Processes.", len(processes)),
            _host_processes(processes),
            _gauge("sidekiq_busy_workers", "Jobs that are running.", sum(process.busy for process in processes)),
            _enqueued(queues),
            _gauge("sidekiq_scheduled_jobs", "Jobs that wait for their time.", stats.scheduled_size),
            _gauge("sidekiq_retry_jobs", "Jobs that wait for their next try.", stats.retry_size),
            _gauge("sidekiq_dead_jobs", "Jobs that will not be tried again.", stats.dead_size),
            *_of_queues(queues, processes, WorkSet(pool=pool, client=client), most_queues),
            *_of_memory(server_info.read(pool_for(pool, client))),
        ]
    )


def _enqueued(queues: list[QueueSummary]) -> Family:
    read = [queue.size for queue in queues if queue.error is None]
    # A 0 would say that no job waits, to a user who may not look.
    samples = [Sample({}, sum(read))] if read or not queues else []
    return Family("sidekiq_enqueued_jobs", "gauge", "Jobs that wait in queues.", samples)


def _of_queues(queues: list[QueueSummary], processes: list[Process], works: WorkSet, most: int) -> list[Family]:
    names = {queue.name: label(queue.name) if at < most else OTHER for at, queue in enumerate(queues)}
    workers = [(name, process.concurrency) for process in processes for name in process.queues]
    read = [queue for queue in queues if queue.error is None]
    ages = [(work.queue, age) for _, _, work in works if (age := work.elapsed_seconds) is not None]
    by_queue = partial(_by_queue, names, most)
    return [
        by_queue(
            "sidekiq_queue_latency_seconds",
            "How long the job that runs next has waited.",
            max,
            [(queue.name, max(0.0, queue.latency)) for queue in read],
        ),
        by_queue(
            "sidekiq_queue_enqueued_jobs",
            "Jobs that wait in this queue.",
            add,
            [(queue.name, queue.size) for queue in read],
        ),
        by_queue(
            "sidekiq_queue_paused",
            "1 if this queue is paused.",
            max,
            [(queue.name, int(queue.paused)) for queue in queues],
        ),
        by_queue(
            "sidekiq_queue_max_processing_time_seconds",
            "How long the oldest running job of this queue has been running.",
            max,
            [*((queue.name, 0.0) for queue in queues), *ages],
        ),
        by_queue(
            "sidekiq_queue_workers",
            "Jobs that the processes serving this queue can run at once.",
            add,
            [*((queue.name, 0) for queue in queues), *workers],
        ),
    ]


def _of_memory(server: ServerInfo) -> list[Family]:
    used, most = "sidekiq_redis_memory_used_bytes", "sidekiq_redis_memory_max_bytes"
    values = [
        (used, "Memory that Redis uses for data.", server.used_bytes),
        (most, "Memory that Redis may use (maxmemory); 0 for no limit.", server.max_bytes),
    ]
    # A user who may not use INFO sees neither.
    return [_gauge(name, about, value) for name, about, value in values if value is not None]


def _by_queue(
    names: dict[str, str],
    most: int,
    name: str,
    about: str,
    merge: Callable[[float, float], float],
    values: Iterable[tuple[str, float]],
) -> Family:
    merged: dict[str, float] = {}
    for queue, value in values:
        # A queue that a process serves but that has never received a job is not in the set of queues.
        place = names.get(queue) or label(queue)
        if place not in merged and len(merged) >= most:
            place = OTHER
        merged[place] = value if place not in merged else merge(merged[place], value)
    return Family(name, "gauge", about, [Sample({"name": queue}, value) for queue, value in merged.items()])


def _host_processes(processes: list[Process]) -> Family:
    counts: Counter[tuple[str, bool]] = Counter()
    hosts: set[str] = set()
    for process in processes:
        host = label(process.hostname)
        hosts.add(host)
        counts[host if len(hosts) <= MOST_HOSTS else OTHER, process.is_stopping] += 1
    samples = [
        Sample({"host": host, "quiet": str(is_quiet).lower()}, count) for (host, is_quiet), count in counts.items()
    ]
    return Family("sidekiq_host_processes", "gauge", "Processes by host; quiet ones fetch no more.", samples)


def _total(name: str, about: str, value: int) -> Family:
    return Family(name, "counter", about, [Sample({}, value)])


def _gauge(name: str, about: str, value: float) -> Family:
    return Family(name, "gauge", about, [Sample({}, value)])
