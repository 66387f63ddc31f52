"""One job that Ruby enqueues, and one that Ruby runs."""

import sidekiq_py as sidekiq

receipts = sidekiq.ruby_job("Receipt", queue="ruby")


@sidekiq.job(name="Charge", queue="python")
def charge(order: int, cents: int) -> None:
    """Take the money, and let Ruby send the receipt."""
    receipts.perform_async(order, cents)
