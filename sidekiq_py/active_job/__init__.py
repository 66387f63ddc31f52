"""
Active Job both ways: enqueue for Rails, run what Rails enqueued, carry its arguments without loss.

    perform_later("Billing::InvoiceJob", 42, queue="billing")      Rails runs it

    @active_job("Billing::ReportJob")                              Rails enqueues it
    def report(invoice, *, format="csv"): ...

Imports `jobs` and what lies below.
"""

from sidekiq_py.active_job.global_id import GlobalID, clear_locators, register_locator
from sidekiq_py.active_job.rails import Rails
from sidekiq_py.active_job.serializers import clear_serializers, register_serializer
from sidekiq_py.active_job.times import RubyTime
from sidekiq_py.active_job.values import Duration, IndifferentHash, Keywords, Range, RubyModule, Symbol, symbolize

__all__ = [
    "Duration",
    "GlobalID",
    "IndifferentHash",
    "Keywords",
    "Rails",
    "Range",
    "RubyModule",
    "RubyTime",
    "Symbol",
    "clear_locators",
    "clear_serializers",
    "register_locator",
    "register_serializer",
    "symbolize",
]
