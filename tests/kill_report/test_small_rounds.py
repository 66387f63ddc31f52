"""A small round of each campaign of the reliability report: it comes to its end, and its books balance."""

import os
import shutil
from collections.abc import Callable

import pytest

from kill_report.__main__ import play
from kill_report.campaigns import CAMPAIGNS
from tests.support.missing_tools import skip_or_fail

# Beside Ruby, and so in interop_tests.
BESIDE_RUBY = ("failovers", "mixed-fleets")
SCALE = 0.05

pytestmark = pytest.mark.kill


@pytest.mark.parametrize("name", [name for name in CAMPAIGNS if name not in BESIDE_RUBY])
def test_a_small_round_loses_nothing(name: str, report: Callable[[object], None]) -> None:
    """Jobs ran, harm was done, nothing is lost and nothing ran twice without a reason."""
    if name == "machines" and (shutil.which("ip") is None or os.geteuid() != 0):
        skip_or_fail("network namespaces need root and iproute2; on Debian: apt-get install iproute2", switch="CI")

    one = play(CAMPAIGNS[name], seed=20_261_122, scale=SCALE)

    report(f"{name}: {one.jobs} jobs, {dict(one.faults)}")
    assert one.problem == ""
    assert one.jobs
    assert one.faults.total()
