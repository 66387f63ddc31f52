"""For type checkers: the module's names, including those of extensions, which it cannot import without a cycle."""

from typing import Any

from sidekiq_py.api.audit import AuditEntry as AuditEntry
from sidekiq_py.api.audit import AuditLog as AuditLog
from sidekiq_py.api.bulk import BulkResult as BulkResult
from sidekiq_py.api.bulk_runs import BulkRun as BulkRun
from sidekiq_py.api.bulk_runs import BulkRuns as BulkRuns
from sidekiq_py.api.bulk_runs import BulkState as BulkState
from sidekiq_py.api.bulk_runs import BulkStatus as BulkStatus
from sidekiq_py.api.edited_copy import JobDraft as JobDraft
from sidekiq_py.api.filters import JobFilter as JobFilter
from sidekiq_py.api.iterations import IterableJobQuery as IterableJobQuery
from sidekiq_py.api.iterations import IterationState as IterationState
from sidekiq_py.api.job_record import JobRecord as JobRecord
from sidekiq_py.api.job_sets import DeadSet as DeadSet
from sidekiq_py.api.job_sets import JobSet as JobSet
from sidekiq_py.api.job_sets import RetrySet as RetrySet
from sidekiq_py.api.job_sets import ScheduledSet as ScheduledSet
from sidekiq_py.api.job_sets import SetPage as SetPage
from sidekiq_py.api.job_sets import SortedEntry as SortedEntry
from sidekiq_py.api.metrics import Deploy as Deploy
from sidekiq_py.api.metrics import DeployMark as DeployMark
from sidekiq_py.api.metrics import JobMetrics as JobMetrics
from sidekiq_py.api.metrics import Metrics as Metrics
from sidekiq_py.api.metrics import MetricsPoint as MetricsPoint
from sidekiq_py.api.metrics import MetricsResult as MetricsResult
from sidekiq_py.api.overview import Overview as Overview
from sidekiq_py.api.overview import OverviewReader as OverviewReader
from sidekiq_py.api.overview import OverviewScope as OverviewScope
from sidekiq_py.api.overview import Rates as Rates
from sidekiq_py.api.overview import TrendPoint as TrendPoint
from sidekiq_py.api.processes import Process as Process
from sidekiq_py.api.processes import ProcessSet as ProcessSet
from sidekiq_py.api.processes import Work as Work
from sidekiq_py.api.processes import WorkSet as WorkSet
from sidekiq_py.api.profiles import ProfileRecord as ProfileRecord
from sidekiq_py.api.profiles import ProfileSet as ProfileSet
from sidekiq_py.api.queue import Queue as Queue
from sidekiq_py.api.queue import QueuedJob as QueuedJob
from sidekiq_py.api.queue import QueuePage as QueuePage
from sidekiq_py.api.stats import History as History
from sidekiq_py.api.stats import QueueSummary as QueueSummary
from sidekiq_py.api.stats import Stats as Stats
from sidekiq_py.extensions.batches.api import Batches as Batches
from sidekiq_py.extensions.periodic.cron_jobs import CronJob as CronJob
from sidekiq_py.extensions.periodic.cron_jobs import CronJobs as CronJobs
from sidekiq_py.extensions.status.status import JobStatus as JobStatus

def __getattr__(name: str) -> Any: ...
