"""The examples in docs/active_job.md do what they say."""

import asyncio
import json
import re

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.active_job import GlobalID
from sidekiq_py.testing import adrain, fake
from tests.support.documents import page, python_examples

AS_RAILS_LOADS = "class ApplicationJob < ActiveJob::Base; end; module Billing; end\n"


def test_the_examples_run(ruby, capsys):
    """Every push arrives, and the declared job runs, whether Rails enqueues it or Python."""
    program: dict[str, object] = {}
    sidekiq.configure(sidekiq_version="7")

    with fake() as enqueued:
        exec(compile(python_examples("active_job.md"), "active_job.md", "exec"), program)

        enqueued.assert_enqueued("Billing::InvoiceJob", args=[42], count=3)
        enqueued.assert_enqueued("ExportJob", args=[42, {"format": "csv"}])
        enqueued.assert_enqueued("ActionMailer::MailDeliveryJob", at=60)

        [in_ruby] = re.findall(r"^```ruby\n(.*?)^```", page("active_job.md"), re.MULTILINE | re.DOTALL)
        [from_rails] = ruby.ask("push", code=AS_RAILS_LOADS + in_ruby)["pushed"]
        sidekiq.Client().push(json.loads(from_rails["payload"]))
        [in_python] = re.findall(r"`(pay\.perform_later\(.*?\))`", page("active_job.md"))
        exec(in_python, program)
        enqueued.assert_enqueued("Billing::PaymentJob", queue="python", count=2)
        assert asyncio.run(adrain("Billing::PaymentJob")) == 2
        [refund] = enqueued.jobs("RefundJob")

    assert capsys.readouterr().out == "invoice 42 is paid in USD, execution 1\n" * 2
    record, money = refund.args
    assert (record, money.cents, money.currency) == ("an invoice", 500, "EUR")
    with pytest.raises(KeyError):
        program["find"](GlobalID("gid://shop/Invoice/1"))
