"""
Jobs that Ruby enqueues and Python runs.

    sidekiq-py worker -r fraud -q python
"""

import asyncio
import logging
from typing import Any

import sidekiq_py as sidekiq

log = logging.getLogger(__name__)


class BureauBusyError(Exception):
    """The credit bureau cannot answer right now."""


@sidekiq.job(name="FraudCheck", queue="python", retry=3)
def fraud_check(order: str, amount: float) -> None:
    """The job's name is the class that Ruby enqueues. A thread runs the job."""
    running = sidekiq.current_job()
    if amount > 10_000 and running is not None and running.attempt == 1:
        raise BureauBusyError(f"the credit bureau is too busy to check {order}")
    log.info("order %s over %s looks honest", order, amount)


@fraud_check.retry_in
def seconds_to_the_next_try(count: int, _error: BaseException, _payload: dict[str, Any]) -> int:
    """Retry soon, instead of after Sidekiq's growing delays."""
    return count + 1


@sidekiq.job(name="FetchRate", queue="python")
async def fetch_rate(currency: str) -> None:
    """A thousand of these can wait at the same time, because they share one event loop."""
    await asyncio.sleep(0.1)
    log.info("the rate of %s is here", currency)
