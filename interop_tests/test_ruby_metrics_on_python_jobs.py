"""Ruby's `Metrics::Query`, behind the Web UI's Metrics page, reads what Python workers counted."""

from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from interop_tests.conftest import RunRuby, StartPython
from interop_tests.support import python_jobs
from interop_tests.support.ledger import LEDGER
from sidekiq_py import deploy
from tests.support.waiting import eventually

pytestmark = [pytest.mark.usefixtures("python_client"), pytest.mark.releases(since="7.0")]

# A job of 60 ms falls into the bucket from 45 ms to 65 ms or, on a slow machine, into a later one.
FAST_BUCKETS, SLEEP_SECONDS = 3, 0.06

TOTALS = """
require "sidekiq/metrics/query"
result = Sidekiq::Metrics::Query.new.top_jobs(**span.transform_keys(&:to_sym))
result.job_results.to_h do |name, found|
  more = {"avg" => found.total_avg("ms"), "series" => found.series["p"].values.sum}
  [name, found.totals.slice("p", "f", "ms").merge(more)]
end
"""


@pytest.fixture
def counted(redis_client: redis.Redis, python_client: None, start_python: StartPython) -> None:
    """A Python worker, which has gone, ran ten jobs of one class, of which four failed, and one of another."""
    with start_python("-q", "default", "-q", "python"):
        python_jobs.retry_false_job.perform_bulk([["sleep_and_ledger", LEDGER, 1, SLEEP_SECONDS]] * 6)
        python_jobs.retry_false_job.perform_bulk([["raise"]] * 4)
        python_jobs.python_job.perform_async("ledger", LEDGER, 2)
        eventually(lambda: redis_client.llen(LEDGER) == 7 and not redis_client.exists("queue:default"))


@pytest.mark.usefixtures("counted")
def test_ruby_ranks_python_jobs_by_minute(ruby: RunRuby) -> None:
    """Runs, failures, total and average time for the last hour; only successes have a time."""
    totals = ruby(TOTALS, span={"minutes": 60})

    _assert_counted(totals)


@pytest.mark.releases(since="8.0")
@pytest.mark.usefixtures("counted")
def test_ruby_ranks_python_jobs_by_ten_minutes(ruby: RunRuby) -> None:
    """The same from the data that 8.0 and later aggregate for days."""
    totals = ruby(TOTALS, span={"hours": 72})

    _assert_counted(totals)


@pytest.mark.usefixtures("counted")
def test_ruby_draws_the_histogram_of_a_python_job(ruby: RunRuby) -> None:
    """Each success is in one bucket, never in one too short for it; Ruby shows the longest first."""
    buckets = ruby(
        """
        require "sidekiq/metrics/query"
        found = Sidekiq::Metrics::Query.new.for_job("RetryFalseJob").job_results["RetryFalseJob"]
        [found.hist.values.transpose.map(&:sum), found.totals["p"], found.totals["f"]]
        """
    )

    histogram, runs, failures = buckets
    assert (sum(histogram), runs, failures) == (6, 10, 4)
    assert len(histogram) == 26
    assert sum(histogram[-FAST_BUCKETS:]) == 0


def test_ruby_shows_the_deploys_that_python_marked(ruby: RunRuby) -> None:
    """
    `deploy.mark` and Ruby's own leave marks side by side; a second one with the same label within a minute leaves
    none.
    """
    noon = datetime(2026, 2, 14, 12, tzinfo=UTC)
    marked = [deploy.mark("from Python", at=noon), deploy.mark("from Python", at=noon)]

    marks = ruby(
        """
        require "sidekiq/metrics/query"
        require "sidekiq/deploy"
        Sidekiq::Deploy.new.mark!(label: "from Ruby", at: Time.at(noon + 120))
        Sidekiq::Deploy.new.mark!(label: "from Python", at: Time.at(noon + 180))
        found = Sidekiq::Metrics::Query.new(now: Time.at(noon + 600)).top_jobs
        found.marks.map { |mark| [mark.time.to_i, mark.label] }.sort
        """,
        noon=noon.timestamp(),
    )

    assert marked == [True, False]
    assert marks == [[noon.timestamp(), "from Python"], [noon.timestamp() + 120, "from Ruby"]]


def _assert_counted(totals: dict[str, Any]) -> None:
    assert set(totals) == {"RetryFalseJob", "PythonJob"}
    job = totals["RetryFalseJob"]
    assert (job["p"], job["f"], job["series"]) == (10, 4, 10)
    assert 6 * 60 <= job["ms"] < 6 * 60_000
    assert job["avg"] == pytest.approx(job["ms"] / 6)
    assert (totals["PythonJob"]["p"], totals["PythonJob"].get("f", 0)) == (1, 0)
