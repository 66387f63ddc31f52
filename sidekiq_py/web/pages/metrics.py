"""The Metrics pages: how often and how long jobs of each class ran, with deploys; and fleet metrics for Prometheus."""

import re
from collections.abc import Callable
from datetime import timedelta

from starlette.responses import PlainTextResponse, Response

from sidekiq_py.api import Metrics, MetricsPoint
from sidekiq_py.metrics.fleet import fleet_text
from sidekiq_py.metrics.text import CONTENT_TYPE
from sidekiq_py.web.access import Need
from sidekiq_py.web.charts import Bar, bars, histogram
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.text import duration
from sidekiq_py.web.visit import Visit
from sidekiq_py.wire.metrics_keys import BUCKET_BOUNDS_MS

# Those of Sidekiq 8.1.7, web/application.rb.
_PERIODS = {
    **{"1h": "1 hour", "2h": "2 hours", "4h": "4 hours", "8h": "8 hours"},
    **{"24h": "24 hours", "48h": "2 days", "72h": "3 days"},
}
_ORDERS: dict[str, tuple[str, Callable[[MetricsPoint], float]]] = {
    "": ("total run time", lambda total: total.ms),
    "failed": ("failures", lambda total: total.failed),
    "succeeded": ("successes", lambda total: total.processed - total.failed),
    "average": ("average run time", lambda total: total.average_ms),
}
_SHOWN = 100
LONGEST_NAME = 500
"""The longest name of a class that has a page; names can be given by any program."""


def metrics(visit: Visit) -> Response:
    """Show all classes; a client that does not ask for HTML, such as Prometheus, gets the fleet's metrics instead."""
    if "text/html" not in visit.request.headers.get("accept", ""):
        return PlainTextResponse(fleet_text(pool=visit.pool), headers={"content-type": CONTENT_TYPE})
    period = _period(visit)
    wanted = visit.query("class").strip()[:LONGEST_NAME]
    pattern = f"(?i){re.escape(wanted)}" if wanted else None
    result = Metrics(pool=visit.pool).top_jobs(**_span(period), class_filter=pattern)
    order = visit.query("order") if visit.query("order") in _ORDERS else ""
    order_text, value = _ORDERS[order]
    totals = sorted(((name, job.total) for name, job in result.jobs.items()), key=lambda row: (-value(row[1]), row[0]))
    all_ms = sum(total.ms for _, total in totals)
    rows = [(name, total, total.ms / all_ms if all_ms else 0.0) for name, total in totals[:_SHOWN]]
    return visit.page(
        "metrics.html",
        period=period,
        periods=_PERIODS,
        wanted=wanted,
        order=order,
        order_text=order_text,
        rows=rows,
        total=len(totals),
        longest_name=LONGEST_NAME,
        marks=result.marks[-_SHOWN:],
    )


def metrics_of_job(visit: Visit) -> Response:
    """Show one class."""
    period, name = _period(visit), visit.query("class")[:LONGEST_NAME]
    result = Metrics(pool=visit.pool).for_job(name, **_span(period))
    job, marks = result.jobs[name], result.marks[-_SHOWN:]
    width = timedelta(seconds=result.bucket_seconds)
    values, at = [], result.starts_at
    while at <= result.ends_at:
        point = job.series.get(at, MetricsPoint())
        label = f"{at:%Y-%m-%d %H:%M} to {at + width:%H:%M} UTC"
        values.append(Bar(at, label, max(0, point.processed - point.failed), point.failed))
        at += width
    buckets = _buckets(list(job.histograms.values()))
    return visit.page(
        "metrics_job.html",
        name=name,
        period=period,
        periods=_PERIODS,
        total=job.total,
        chart=bars(
            values,
            title=f"Attempts at {name} in the last {_PERIODS[period]}",
            marks=marks,
        ),
        buckets=buckets,
        histogram=histogram(buckets, title=f"Run times of {name}") if any(count for _, count in buckets) else "",
        marks=marks,
    )


def _period(visit: Visit) -> str:
    period = visit.query("period", "1h")
    return period if period in _PERIODS else "1h"


def _span(period: str) -> dict[str, int]:
    """What to ask `Metrics` for: a day or more by ten minutes, less by minute."""
    hours = int(period.removesuffix("h"))
    return {"hours": hours} if hours >= 24 else {"minutes": hours * 60}


def _buckets(histograms: list[list[int]]) -> list[tuple[str, int]]:
    if not histograms:
        return []
    sums = [sum(counts) for counts in zip(*histograms, strict=True)]
    *bounds, _ = BUCKET_BOUNDS_MS
    labels = [duration(bound / 1000) for bound in bounds]
    return list(zip([*labels, f"over {labels[-1]}"], sums, strict=True))


HANDLERS = (
    Handler("GET", "/metrics", metrics, Need.VIEW, "/metrics"),
    Handler("GET", "/metrics/job", metrics_of_job, Need.VIEW, "/metrics"),
)
