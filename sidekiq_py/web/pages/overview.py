"""The Overview page: throughput, failures, queues, processes, and what the doctor has found."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

from starlette.responses import Response

from sidekiq_py.api import History, Metrics, OverviewScope, Process
from sidekiq_py.doctor import Check, Finding, Level, Report
from sidekiq_py.web.access import Need
from sidekiq_py.web.charts import Bar, bars, line
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.site import Examined
from sidekiq_py.web.trends import charts_of
from sidekiq_py.web.visit import Visit

_Found = tuple[Check, Finding]
_PERIODS = {
    "hour": "the last hour",
    "day": "the last day",
    "week": "the last week",
    "month": "the last month",
    "3-months": "the last 3 months",
    "6-months": "the last 6 months",
}
# Those that are shown by day, as long as in Ruby's Web UI.
_DAYS = {"week": 7, "month": 30, "3-months": 90, "6-months": 180}
_WORST_FIRST = (Level.PROBLEM, Level.WARNING)
_QUEUES_SHOWN = 20
_FINDINGS_OF_A_KIND = 3
_PATH = "/"
_rate = "{:.1f}".format


def overview(visit: Visit) -> Response:
    """The page."""
    period = visit.query("period", "hour")
    if period not in _PERIODS:
        period = "hour"
    watch = visit.server.watch
    # It adds up and ranks all queues and processes.
    scope, charted = OverviewScope(server=True), watch.worst_queues(_PATH, _QUEUES_SHOWN)
    seen = watch.look(_PATH, scope, is_live=visit.is_live, trends_of=charted)
    rates = watch.rates()
    values = watch.recall(period, partial(_bars, visit, period), is_live=visit.is_live)
    examined = visit.server.examiner.look() or Examined()
    report = examined.report
    findings, gaps = _found(report, *_WORST_FIRST), _found(report, Level.UNSEEN)
    findings.sort(key=lambda found: _WORST_FIRST.index(found[1].level))
    first, others = _first_of_each_kind(findings)
    return visit.page(
        "overview.html",
        seen=seen,
        rate_line=line([rate for rate, _ in rates], title="Jobs per second, in the last minute", spell=_rate),
        failure_line=line([rate for _, rate in rates], title="Failures per second, in the last minute", spell=_rate),
        period=period,
        periods=_PERIODS,
        is_by_day=period in _DAYS,
        chart=bars(values, title=f"Jobs that ended in {_PERIODS[period]}"),
        bars=values,
        queues=[
            (queue, charts_of(watch, queue, seen))
            for queue in sorted(seen.queues, key=lambda queue: (-queue.latency, queue.name))[:_QUEUES_SHOWN]
        ],
        fleets=_fleets(seen.processes),
        findings=first,
        more_findings=others,
        report=report,
        doctor_trouble=examined.trouble,
        examined_at=examined.at,
        gaps=gaps,
    )


def _found(report: Report | None, *levels: Level) -> list[_Found]:
    return [] if report is None else list(report.first_findings(*levels, rest="sidekiq-py doctor --json"))


def _first_of_each_kind(findings: Iterable[_Found]) -> tuple[list[_Found], list[_Found]]:
    """The findings to show at once, and those to fold: twenty queues without a worker must not hide a wrong clock."""
    kinds: Counter[tuple[str, Level]] = Counter()
    first: list[_Found] = []
    others: list[_Found] = []
    for check, finding in findings:
        kinds[check.name, finding.level] += 1
        (first if kinds[check.name, finding.level] <= _FINDINGS_OF_A_KIND else others).append((check, finding))
    return first, others


def _bars(visit: Visit, period: str) -> list[Bar]:
    if period in _DAYS:
        history = History(_DAYS[period], pool=visit.pool)
        days = [(datetime.fromisoformat(day).replace(tzinfo=UTC), day) for day in reversed(history.processed)]
        return [
            Bar(at, day, max(0, history.processed[day] - history.failed[day]), history.failed[day]) for at, day in days
        ]
    metrics = Metrics(pool=visit.pool)
    points = metrics.totals(hours=24) if period == "day" else metrics.totals(minutes=60)
    width = timedelta(minutes=10 if period == "day" else 1)
    return [
        Bar(at, f"{at:%H:%M} to {at + width:%H:%M} UTC", max(0, point.processed - point.failed), point.failed)
        for at, point in points
    ]


def _fleets(processes: tuple[Process, ...]) -> list[tuple[str, int, int, int]]:
    """For each language: its name, and the numbers of processes, running jobs and threads."""
    python = [process for process in processes if process.is_python]
    ruby = [process for process in processes if not process.is_python]
    return [
        (language, len(fleet), sum(one.busy for one in fleet), sum(one.concurrency for one in fleet))
        for language, fleet in (("Python", python), ("Ruby", ruby))
        if fleet
    ]


HANDLERS = (Handler("GET", _PATH, overview, Need.VIEW, _PATH, is_live=True),)
