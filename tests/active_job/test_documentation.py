"""The examples in docs/active_job.md do what they say."""

import asyncio

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.active_job import GlobalID
from sidekiq_py.testing import adrain, fake
from tests.support.documents import python_examples


def test_the_examples_run():
    """Every push arrives, and the declared job runs."""
    program: dict[str, object] = {}
    sidekiq.configure(sidekiq_version="7")

    with fake() as enqueued:
        exec(compile(python_examples("active_job.md"), "active_job.md", "exec"), program)

        enqueued.assert_enqueued("Billing::InvoiceJob", args=[42], count=3)
        enqueued.assert_enqueued("ExportJob", args=[42, {"format": "csv"}])
        enqueued.assert_enqueued("ActionMailer::MailDeliveryJob", at=60)
        assert asyncio.run(adrain("Billing::PaymentJob")) == 2
        [refund] = enqueued.jobs("RefundJob")

    assert program["paid"] == [(42, "USD", 1), (43, "EUR", 1)]
    record, money = refund.args
    assert (record, money.cents, money.currency) == ("an invoice", 500, "EUR")
    with pytest.raises(KeyError):
        program["find"](GlobalID("gid://shop/Invoice/1"))
