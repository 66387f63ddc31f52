"""The Python side of the demo, as it would be in a service alongside a Rails application."""

import logging
import os
import time
from pathlib import Path

import sidekiq_py as sidekiq

_log = logging.getLogger("sidekiq")
_LONG_SECONDS = 60.0


class ModelNotLoadedError(Exception):
    """The error that the job raises while the demo withholds its model."""


@sidekiq.job(name="FraudCheck", queue="python")
def fraud_check(order: str, amount: float) -> None:
    """Runs in Python; Ruby enqueues it by its name."""
    folder = Path(os.environ["SIDEKIQ_DEMO_FOLDER"])
    if (folder / "model_missing").exists():
        raise ModelNotLoadedError("the scoring model is not on this machine yet")
    if (folder / "slow_bureau").exists():
        _log.info("asking the credit bureau about %s ...", order)
        deadline = time.monotonic() + _LONG_SECONDS
        while (folder / "slow_bureau").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    _log.info("order %s over %s looks honest", order, amount)


@sidekiq.job(name="DayClosed", queue="python")
def day_closed(bid: str, event: str, day: str) -> None:
    """The callback of a batch."""
    _log.info("%s is closed: %s of batch %s", day, event, bid)
