"""The job for `sidekiq-py worker -r kill_report.programs.jobs`; it notes its runs in the file LEDGER."""

import os
import time

import sidekiq_py as sidekiq
from tests.support.ledger import ENDED, STARTED, LedgerWriter

_ledger = LedgerWriter(os.environ["LEDGER"])


@sidekiq.job(name="tick", queue="default")
def tick(number: int, seconds: float = 0.0) -> None:
    """Run for *seconds*."""
    _ledger.note(STARTED, number)
    time.sleep(seconds)
    _ledger.note(ENDED, number)
