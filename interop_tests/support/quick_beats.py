"""
Heartbeats four times a second, for tests that wait for one; loaded by Python workers beside their jobs.

The period is the release's, 5 s or 10 s, and no setting, as in Ruby.
"""

import functools

from sidekiq_py.engine.upkeep.heartbeat import Heartbeat

PERIOD_SECONDS = 0.25

setattr(Heartbeat, "__init__", functools.partialmethod(Heartbeat.__init__, period_seconds=PERIOD_SECONDS))  # noqa: B010 - mypy
