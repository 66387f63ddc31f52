"""Prometheus's text format, read with its own parser."""

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families as parse

from sidekiq_py.metrics.text import Family, Sample, histogram_samples, render


def test_a_label_may_hold_anything() -> None:
    """Classes and queues come from payloads of strangers."""
    name = 'a"b\\c\nd\udcff'

    [family] = parse(render([Family("jobs_total", "counter", "All \\ jobs\n", [Sample({"queue": name}, 3)])]))

    [sample] = family.samples
    assert (sample.name, sample.labels, sample.value) == ("jobs_total", {"queue": 'a"b\\c\nd\\udcff'}, 3.0)
    assert family.documentation == "All \\ jobs\n"


def test_names_that_are_not_utf_8_stay_different() -> None:
    """Prometheus takes no metric of a program that has the same labels twice."""
    samples = [Sample({"queue": name}, 1) for name in ("caf\udce9", "caf\udcea", "good")]

    [family] = parse(render([Family("jobs_total", "counter", "Jobs.", samples)]))

    assert len({sample.labels["queue"] for sample in family.samples}) == 3


def test_a_histogram_counts_upwards() -> None:
    """Each bucket holds those below its bound, and the last one all."""
    samples = list(histogram_samples({"queue": "low"}, (0.5, 1.0), [1, 2, 4], 12.5))

    [family] = parse(render([Family("seconds", "histogram", "Seconds.", samples)]))

    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.name == "seconds_bucket"}
    rest = {sample.name: sample.value for sample in family.samples if sample.name != "seconds_bucket"}
    assert buckets == {"0.5": 1.0, "1.0": 3.0, "+Inf": 7.0}
    assert rest == {"seconds_sum": 12.5, "seconds_count": 7.0}


def test_a_large_count_keeps_its_last_digit() -> None:
    """An integer is not written as a float."""
    assert render([Family("n", "gauge", "N.", [Sample({}, 2**53 + 1)])]).endswith("n 9007199254740993\n")
