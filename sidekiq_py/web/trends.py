"""The charts of a queue: its size and its latency over the last two hours."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup

from sidekiq_py.api import Overview, QueueSummary, TrendPoint
from sidekiq_py.web.charts import line, trend
from sidekiq_py.web.site import Watch
from sidekiq_py.web.text import duration


class QueueCharts(NamedTuple):
    """The two charts of a queue; each is empty if there are fewer than two values."""

    size: Markup
    latency: Markup


def charts_of(watch: Watch, queue: QueueSummary, seen: Overview) -> QueueCharts:
    """
    Chart the values in Redis, up to now.

    If no Python worker has recorded any, chart the size over the last minute, as far as this process has read it.
    """
    points: Sequence[TrendPoint] = watch.trend(queue.name)
    if not points:
        return QueueCharts(line(watch.sizes(queue.name), title="Size in the last minute"), Markup(""))
    now = TrendPoint(datetime.fromtimestamp(seen.at, UTC), queue.size, queue.latency)
    upto_now = [*points, now] if queue.error is None else points
    return QueueCharts(
        trend([(point.at, point.size) for point in upto_now], title="Size in the last two hours"),
        trend([(point.at, point.latency) for point in upto_now], title="Latency in the last two hours", spell=duration),
    )
