"""
Jobs for a consumer that is no worker of ours: taken, handed on, and settled when the consumer says so.

A message transport is built on this. What is taken stands in flight as with a worker, and comes back if the process
dies. Public: what is here stays.
"""

from sidekiq_py.engine.consumer.session import ConsumerSession, Fetched
from sidekiq_py.engine.consumer.sessions import enter
from sidekiq_py.engine.fetch.waiters import Waiters
from sidekiq_py.engine.ownership.owner import UnitOfWork

__all__ = ("ConsumerSession", "Fetched", "UnitOfWork", "Waiters", "enter")
