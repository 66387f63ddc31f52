"""
Fetch jobs for a consumer that is not one of our workers, and settle them when that consumer says so.

Use this to build a message transport. Fetched jobs are in flight as in a worker, and are recovered if the process
dies. This module is public and its names are stable.
"""

from sidekiq_py.engine.consumer.session import ConsumerSession, Fetched
from sidekiq_py.engine.consumer.sessions import enter
from sidekiq_py.engine.fetch.waiters import Waiters
from sidekiq_py.engine.ownership.owner import UnitOfWork

__all__ = ("ConsumerSession", "Fetched", "UnitOfWork", "Waiters", "enter")
