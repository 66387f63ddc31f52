"""Regular expressions that come over the wire."""

import pytest
from sidekiq_celery._pidbox.name_patterns import LONGEST_PATTERN, fits


@pytest.mark.parametrize(
    ("pattern", "is_fitting"),
    [("w", True), (r"w\d@h.st$", True), ("host", False), ("W1", False), ("(?i)W1", True), ("wé", False)],
)
def test_a_name_is_matched_from_its_beginning(pattern: str, is_fitting: bool) -> None:
    """As by `re.match`, which kombu uses."""
    assert fits("w1@host", pattern) is is_fitting


@pytest.mark.parametrize(
    ("pattern", "seconds", "complaint"),
    [
        (".?" * 60 + "#", 0.5, "takes more than 0.5 s"),
        # On a busy machine Python alone takes longer than half a second to start.
        ("(((", 60.0, "is not a regular expression"),
        ("a" * (LONGEST_PATTERN + 1), 0.5, "at most 1000 characters"),
        (5, 0.5, "at most 1000 characters"),
    ],
)
def test_a_pattern_that_cannot_be_tried_is_refused(pattern: object, seconds: float, complaint: str) -> None:
    """Before it has cost more than it was given."""
    with pytest.raises(ValueError, match=complaint):
        fits("celery@a-host-with-a-name", pattern, within_seconds=seconds)
