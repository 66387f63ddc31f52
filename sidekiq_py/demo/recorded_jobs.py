"""The Python side of the demo without Ruby: jobs with the names that the recordings use."""

import logging
import os
import time
from pathlib import Path
from typing import Any

import sidekiq_py as sidekiq

BROKEN, SLOW = "broken", "slow"
"""Files in the demo's folder. While one exists, FixtureJob fails, or waits."""

_log = logging.getLogger("sidekiq")
_LONG_SECONDS = 60.0


class FixtureError(Exception):
    """The error that the job raises while the demo wants it to fail."""


@sidekiq.job(name="FixtureJob")
def fixture_job(*arguments: Any) -> None:
    """Log the number of arguments."""
    folder = Path(os.environ["SIDEKIQ_DEMO_FOLDER"])
    if (folder / BROKEN).exists():
        raise FixtureError("broken for the moment")
    if (folder / SLOW).exists():
        _log.info("FixtureJob takes its time ...")
        deadline = time.monotonic() + _LONG_SECONDS
        while (folder / SLOW).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    _log.info("FixtureJob ran with %d arguments", len(arguments))


@sidekiq.job(name="CriticalJob", queue="critical")
def critical_job(*_arguments: Any) -> None:
    """Only enqueued here: no worker of the demo serves its queue."""
