"""The task for chains and chords, with `-A kill_report.programs.tasks`; it notes its runs in the file LEDGER."""

import os
import time
from typing import Any

from sidekiq_celery import Celery

from tests.support.ledger import ENDED, STARTED, LedgerWriter

app = Celery("campaign", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"], fixups=[])
_ledger = LedgerWriter(os.environ["LEDGER"])


@app.task(name="step")
def step(number: int, seconds: float = 0.0) -> Any:
    """Run for *seconds*, and return the number."""
    _ledger.note(STARTED, number)
    time.sleep(seconds)
    _ledger.note(ENDED, number)
    return number
