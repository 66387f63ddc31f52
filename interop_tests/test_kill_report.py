"""Small rounds of the reliability report with Ruby in the fleet."""

import subprocess
from collections.abc import Callable

import pytest

from interop_tests.conftest import RUBY_SWITCH
from interop_tests.support.ruby import release, why_missing
from kill_report.__main__ import play
from kill_report.campaigns import CAMPAIGNS
from kill_report.campaigns.mixed_fleets import OLDER, SERIES
from tests.support.missing_tools import skip_or_fail
from tests.support.worker_process import REPOSITORY


def look_for_ruby() -> None:
    """A round draws one of the releases."""
    for series in SERIES:
        missing = why_missing(release(series))
        if missing is not None:
            skip_or_fail(missing, switch=RUBY_SWITCH)


@pytest.mark.kill
@pytest.mark.ruby
@pytest.mark.timeout(300)
def test_a_small_round_of_batches_in_both_languages(report: Callable[[object], None]) -> None:
    """Openers and workers of both die at steps of a batch's way: its books balance, and what Ruby lost is named."""
    look_for_ruby()

    one = play(CAMPAIGNS["batches"], seed=20_261_123, scale=0.03)

    report(f"{one.jobs} jobs, {dict(one.faults)}, {dict(one.dropped)}, {dict(one.notes)}")
    assert one.problem == ""
    assert one.faults.total()
    assert one.notes["callbacks of batches"]


@pytest.mark.kill
@pytest.mark.ruby
@pytest.mark.timeout(300)
def test_a_small_round_with_ruby_and_an_older_release_loses_nothing(report: Callable[[object], None]) -> None:
    """A worker of either release of ours is killed, and the others run what it had."""
    look_for_ruby()
    if subprocess.run(["git", "cat-file", "-e", OLDER], cwd=REPOSITORY, capture_output=True, check=False).returncode:
        skip_or_fail(f"commit {OLDER} is not here: git fetch --unshallow", switch=RUBY_SWITCH)

    one = play(CAMPAIGNS["mixed-fleets"], seed=20_261_122, scale=0.1)

    report(f"{one.jobs} jobs, {dict(one.faults)}, {dict(one.notes)}")
    assert one.problem == ""
    assert one.faults.total()
    assert one.notes["jobs that Ruby ran"]
