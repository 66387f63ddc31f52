"""The job of `ruby_fixtures/sentinel.rb`, in Python."""

import os
import time

import sidekiq_py as sidekiq
from tests.support.ledger import ENDED, STARTED, LedgerWriter

_ledger = LedgerWriter(os.environ["FIXTURE_LEDGER"])


@sidekiq.job(name="TickJob")
def tick(number: int) -> None:
    """Note in a file that the job ran."""
    _ledger.note(STARTED, number)
    time.sleep(0.002)
    _ledger.note(ENDED, number)
