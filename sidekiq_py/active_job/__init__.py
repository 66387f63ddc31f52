"""
Active Job in both directions: enqueue jobs for Rails, run jobs that Rails enqueued, and pass arguments without loss.

    perform_later("Billing::InvoiceJob", 42, queue="billing")      Rails runs it

    @active_job("Billing::ReportJob")                              Rails enqueues it
    def report(invoice, *, format="csv"): ...

This package imports `jobs` and the layers below it.
"""

from sidekiq_py.active_job.current import CurrentActiveJob, current_active_job
from sidekiq_py.active_job.declared import ActiveJob, active_job, forget_active_jobs
from sidekiq_py.active_job.enqueue import (
    Options,
    PendingJob,
    aperform_all_later,
    aperform_later,
    new_job,
    perform_all_later,
    perform_later,
)
from sidekiq_py.active_job.global_id import GlobalID, clear_locators, register_locator
from sidekiq_py.active_job.mailer import adeliver_later, deliver_later
from sidekiq_py.active_job.rails import Rails
from sidekiq_py.active_job.serializers import clear_serializers, register_serializer
from sidekiq_py.active_job.times import RubyTime
from sidekiq_py.active_job.values import Duration, IndifferentHash, Keywords, Range, RubyModule, Symbol, symbolize

__all__ = [
    "ActiveJob",
    "CurrentActiveJob",
    "Duration",
    "GlobalID",
    "IndifferentHash",
    "Keywords",
    "Options",
    "PendingJob",
    "Rails",
    "Range",
    "RubyModule",
    "RubyTime",
    "Symbol",
    "active_job",
    "adeliver_later",
    "aperform_all_later",
    "aperform_later",
    "clear_locators",
    "clear_serializers",
    "current_active_job",
    "deliver_later",
    "forget_active_jobs",
    "new_job",
    "perform_all_later",
    "perform_later",
    "register_locator",
    "register_serializer",
    "symbolize",
]
