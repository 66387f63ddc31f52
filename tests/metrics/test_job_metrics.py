"""What a process has run, counted by class and queue."""

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families as parse

from sidekiq_py.engine.run import run_times
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.engine.run.run_times import PROMETHEUS_BOUNDS
from sidekiq_py.errors import JobNotFoundError
from sidekiq_py.metrics.job_metrics import JobMetrics, as_text, families, from_text, summed
from sidekiq_py.metrics.text import render
from sidekiq_py.telemetry import JOB_EXCEPTION, JOB_STOP
from sidekiq_py.wire.json_writer import display_text

# What the two clocks say, in seconds. They stand still: whatever happens between two looks at them is no wait of a job.
NOW = 1_800_000_000.0
UPTIME = 5000.0


@pytest.fixture(autouse=True)
def _clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidekiq_py.engine.run.metrics.now_seconds", lambda: NOW)
    monkeypatch.setattr("sidekiq_py.engine.run.metrics.monotonic", lambda: UPTIME)


@pytest.fixture
def metrics() -> Iterator[JobMetrics]:
    """Counts until the test ends."""
    counting = JobMetrics(most_series=3)
    counting.attach()
    yield counting
    counting.detach()


def run(job_class: Any = "Mail", queue: str = "default", *, seconds: float = 0.2, waited: float = 2.0) -> None:
    """A job that succeeds."""
    payload = {"class": job_class, "enqueued_at": NOW - seconds - waited}
    ExecutionMetrics().success_counter()(payload, queue, seconds, UPTIME - seconds)


def fail(payload: dict[str, Any] | None = None, error: Exception | None = None, *, is_failure: bool = True) -> None:
    """A job that raises, or is interrupted."""
    run = {"payload": payload or {"class": "Mail"}, "queue": "default", "identity": "me:1:abc", "seconds": 0.2}
    JOB_EXCEPTION.emit({**run, "error": error or ValueError(), "is_failure": is_failure})


def values(metrics: JobMetrics) -> dict[tuple[str, str, str], float]:
    """Name, class and queue to the value of each counter."""
    samples = [sample for family in parse(render(families(metrics.counts()))) for sample in family.samples]
    return {
        (sample.name, sample.labels["worker"], sample.labels["queue"]): sample.value
        for sample in samples
        if "le" not in sample.labels
    }


def test_successes_and_failures_are_counted_by_class_and_queue(metrics: JobMetrics) -> None:
    """Under the names that yabeda-sidekiq uses."""
    run("Mail", "default")
    run("Mail", "low")
    fail()

    found = values(metrics)
    assert found["sidekiq_jobs_executed_total", "Mail", "default"] == 2
    assert found["sidekiq_jobs_success_total", "Mail", "default"] == 1
    assert found["sidekiq_jobs_failed_total", "Mail", "default"] == 1
    assert found["sidekiq_jobs_executed_total", "Mail", "low"] == 1
    assert found["sidekiq_job_runtime_seconds_sum", "Mail", "default"] == pytest.approx(0.4)
    assert found["sidekiq_job_latency_seconds_sum", "Mail", "default"] == pytest.approx(2.0)


def test_successes_are_counted_without_an_event_of_their_own(metrics: JobMetrics) -> None:
    """The event alone cost a job that does nothing 3 %, and more with what a handler looks up in it."""
    assert JOB_STOP.handlers == ()


def test_an_interrupted_job_counts_when_it_has_ended(metrics: JobMetrics) -> None:
    """It goes back to its queue, and a deploy shows no failures."""
    fail(is_failure=False)

    assert values(metrics)["sidekiq_jobs_executed_total", "Mail", "default"] == 0


@pytest.mark.parametrize("seconds", [0.0, 0.005, 0.0051, 0.3, 21600.0, 1e6])
def test_each_time_falls_into_the_bucket_of_its_bound(metrics: JobMetrics, seconds: float) -> None:
    """A bound belongs to its bucket, as Prometheus has it."""
    run(seconds=seconds)

    samples = [sample for family in parse(render(families(metrics.counts()))) for sample in family.samples]
    reached = [
        float(sample.labels["le"])
        for sample in samples
        if sample.name == "sidekiq_job_runtime_seconds_bucket" and sample.value
    ]
    assert min(reached) == min((bound for bound in PROMETHEUS_BOUNDS if seconds <= bound), default=float("inf"))


@pytest.mark.parametrize("stamp", ["seconds", "milliseconds"])
def test_each_wait_falls_into_the_bucket_of_its_bound(metrics: JobMetrics, stamp: str) -> None:
    """Also of more jobs than are kept until they are put into their buckets; a job never waits less than nothing."""
    count_success = ExecutionMetrics().success_counter()
    for waited in (-5.0, 12.0, 40.0, 400.0, 1e6):
        for _ in range(700):
            enqueued_at = NOW - 0.1 - waited
            given = enqueued_at if stamp == "seconds" else int(enqueued_at * 1000)
            count_success({"class": "Mail", "enqueued_at": given}, "default", 0.1, UPTIME - 0.1)

    samples = [sample for family in parse(render(families(metrics.counts()))) for sample in family.samples]
    reached = {
        sample.labels["le"]: sample.value for sample in samples if sample.name == "sidekiq_job_latency_seconds_bucket"
    }
    assert [reached[bound] for bound in ("0.005", "10.0", "30.0", "60.0", "300.0", "1800.0", "21600.0", "+Inf")] == [
        *(700, 700, 1400, 2100, 2100, 2800, 2800, 3500),
    ]
    found = values(metrics)
    assert found["sidekiq_job_latency_seconds_count", "Mail", "default"] == 3500
    assert found["sidekiq_job_latency_seconds_sum", "Mail", "default"] == pytest.approx(700 * 1_000_452, rel=1e-6)


@pytest.mark.parametrize("stamp", [float("-inf"), -1e308, -5.0, -(10**400), float("inf"), 10**400, "1", None, True])
def test_a_stamp_that_is_no_moment_spoils_no_sum(metrics: JobMetrics, stamp: object) -> None:
    """Any program may write one. In the text for the sidecar of --processes, an infinite sum would be no number."""
    count_success = ExecutionMetrics().success_counter()
    for enqueued_at in (stamp, NOW - 2.1, stamp):
        count_success({"class": "Mail", "enqueued_at": enqueued_at}, "default", 0.1, UPTIME - 0.1)
        fail({"class": "Mail", "enqueued_at": stamp})

    there = from_text(as_text(metrics.counts()))
    [row] = summed([there, there]).values()
    assert row[run_times.LATENCY] == pytest.approx(4.0)


def test_latencies_that_were_read_are_kept_no_longer(metrics: JobMetrics) -> None:
    """Rows stay for good: with a thousand floats each, those of a hundred classes in ten threads would take 34 MB."""
    counting = ExecutionMetrics()
    count_success = counting.success_counter()
    for number in range(600):
        for _ in range(190):
            count_success({"class": f"Mail{number}", "enqueued_at": 1.0}, "default", 0.1, UPTIME - 0.1)
    before = sum(map(len, counting._latencies.values()))

    metrics.counts()

    assert before == 190 * 600
    assert sum(map(len, counting._latencies.values())) == 0
    assert sum(row[-1] for row in metrics.counts().values()) == before


def test_what_is_read_meanwhile_never_falls(metrics: JobMetrics) -> None:
    """Prometheus would take a counter that falls for a process that has started anew."""
    count_success = ExecutionMetrics().success_counter()

    def work() -> None:
        for _ in range(60_000):
            count_success({"class": "Mail", "enqueued_at": 1.0}, "default", 0.1, UPTIME - 0.1)

    thread = threading.Thread(target=work)
    thread.start()
    read = []
    while thread.is_alive():
        read.append(values(metrics).get(("sidekiq_job_latency_seconds_count", "Mail", "default"), 0.0))
    assert read == sorted(read)
    assert values(metrics)["sidekiq_job_latency_seconds_count", "Mail", "default"] == 60_000


def test_the_sum_of_waits_never_falls() -> None:
    """Though the sum of many tiny ones is smaller than the rounding of the numbers that they are computed from."""
    offset = 1_789_994_999.7
    row = run_times.new_row()

    run_times.add_latencies(row, [math.nextafter(-offset, 0)] * 201, offset)

    assert row[run_times.LATENCY] >= 0


def test_classes_beyond_the_cap_are_other(metrics: JobMetrics) -> None:
    """Whoever pushes made-up classes does not fill Prometheus."""
    for number in range(10):
        run(f"Class{number}")

    found = values(metrics)
    assert {key[1] for key in found} == {"Class0", "Class1", "Class2", "other"}
    assert found["sidekiq_jobs_executed_total", "other", "other"] == 7
    assert repr(metrics) == "<JobMetrics series=3>"


def test_a_class_that_is_no_text_is_counted_as_one(metrics: JobMetrics) -> None:
    """A payload from elsewhere may name a list."""
    run(["Mail"])

    assert values(metrics)["sidekiq_jobs_executed_total", display_text(["Mail"]), "default"] == 1


def test_an_active_job_counts_under_its_own_class(metrics: JobMetrics) -> None:
    """Not under Rails' wrapper."""
    payload = {"class": "Sidekiq::ActiveJob::Wrapper", "wrapped": "MailJob"}
    ExecutionMetrics().success_counter()(payload, "default", 0.1, UPTIME - 0.1)

    assert values(metrics)["sidekiq_jobs_executed_total", "MailJob", "default"] == 1


def test_threads_count_apart_and_add_up(metrics: JobMetrics) -> None:
    """No count is lost where many end jobs at once."""
    threads = [threading.Thread(target=lambda: [run() for _ in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert values(metrics)["sidekiq_jobs_executed_total", "Mail", "default"] == 8000


def test_counts_of_processes_add_up_as_text(metrics: JobMetrics) -> None:
    """The cap holds for all of them together."""
    run("A\udcff")
    run("B")
    here = metrics.counts()

    there = from_text(as_text(here))
    total = summed([there, there], most_series=1)

    assert sorted(total) == [("A?", "default"), ("other", "other")]
    assert [sum(row[: len(PROMETHEUS_BOUNDS) + 1]) for row in total.values()] == [2, 2]


def test_counting_ends_with_detach() -> None:
    """An embedded worker of the same program may count anew."""
    counting = JobMetrics()
    counting.attach()
    counting.detach()

    assert JOB_EXCEPTION.handlers == ()
    assert run_times.keeper() is None


def test_classes_that_nobody_declares_take_no_place_of_those_that_run(metrics: JobMetrics) -> None:
    """Any program may push any class, and each such job fails once here."""
    for number in range(10):
        fail({"class": f"Made::Up{number}"}, JobNotFoundError(f"Made::Up{number}"))
    run("Mail")

    found = values(metrics)
    assert found["sidekiq_jobs_executed_total", "Mail", "default"] == 1
    assert found["sidekiq_jobs_failed_total", "other", "default"] == 10


def test_a_name_of_a_megabyte_is_cut(metrics: JobMetrics) -> None:
    """It would stand in each of forty lines, in every scrape."""
    run("M" * 1_000_000, "q" * 1_000_000)
    run("M" * 1_000_001, "q" * 1_000_000)

    text = render(families(metrics.counts()))
    assert len(text) < 50_000
    assert values(metrics)["sidekiq_jobs_executed_total", "M" * 200 + "…", "q" * 200 + "…"] == 2
