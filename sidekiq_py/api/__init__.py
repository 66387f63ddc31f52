"""
The state of the system as objects to read and edit: Sidekiq's data API.

    from sidekiq_py.api import Queue, RetrySet

    Queue("mailers").size
    RetrySet().find_job(jid).retry()

Every object uses the program's Redis, or the one given as `pool=` or `client=`. Calls block; in `async` code, use
`asyncio.to_thread`. This package may import `client` and the layers below it, never the engine. Examples:
`docs/data_api.md`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sidekiq_py import program
from sidekiq_py.api.audit import AuditEntry, AuditLog
from sidekiq_py.api.bulk import BulkResult
from sidekiq_py.api.bulk_runs import BulkRun, BulkRuns, BulkState, BulkStatus
from sidekiq_py.api.edited_copy import JobDraft
from sidekiq_py.api.filters import JobFilter
from sidekiq_py.api.iterations import IterableJobQuery, IterationState
from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.api.job_sets import DeadSet, JobSet, RetrySet, ScheduledSet, SetPage, SortedEntry
from sidekiq_py.api.metrics import Deploy, DeployMark, JobMetrics, Metrics, MetricsPoint, MetricsResult
from sidekiq_py.api.overview import Overview, OverviewReader, OverviewScope, Rates, ServerInfo, TrendPoint
from sidekiq_py.api.processes import Process, ProcessSet, Work, WorkSet
from sidekiq_py.api.profiles import ProfileRecord, ProfileSet
from sidekiq_py.api.queue import Queue, QueuedJob, QueuePage
from sidekiq_py.api.stats import History, QueueSummary, Stats

__all__ = [
    "AuditEntry",
    "AuditLog",
    "BulkResult",
    "BulkRun",
    "BulkRuns",
    "BulkState",
    "BulkStatus",
    "DeadSet",
    "Deploy",
    "DeployMark",
    "History",
    "IterableJobQuery",
    "IterationState",
    "JobDraft",
    "JobFilter",
    "JobMetrics",
    "JobRecord",
    "JobSet",
    "Metrics",
    "MetricsPoint",
    "MetricsResult",
    "Overview",
    "OverviewReader",
    "OverviewScope",
    "Process",
    "ProcessSet",
    "ProfileRecord",
    "ProfileSet",
    "Queue",
    "QueuePage",
    "QueueSummary",
    "QueuedJob",
    "Rates",
    "RetrySet",
    "ScheduledSet",
    "ServerInfo",
    "SetPage",
    "SortedEntry",
    "Stats",
    "TrendPoint",
    "Work",
    "WorkSet",
]


def __getattr__(name: str) -> Any:
    """Look up a name that an extension adds."""
    is_ours = name.startswith("_") or find_spec(f"{__name__}.{name}") is not None
    home = None if is_ours else program.extensions.lookup(name, lambda extension: extension.api_names)
    if home is None:
        raise AttributeError(f"module 'sidekiq_py.api' has no attribute {name!r}")
    return getattr(import_module(home), name)
