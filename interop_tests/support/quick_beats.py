"""
Makes heartbeats run four times a second, for tests that wait for one; Python workers load it together with their jobs.

The period normally depends on the release (5 s or 10 s) and is not a setting, as in Ruby.
"""

import functools

from sidekiq_py.engine.upkeep.heartbeat import Heartbeat

PERIOD_SECONDS = 0.25

setattr(Heartbeat, "__init__", functools.partialmethod(Heartbeat.__init__, period_seconds=PERIOD_SECONDS))  # noqa: B010 - mypy
