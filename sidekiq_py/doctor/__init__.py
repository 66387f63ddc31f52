"""
What is wrong with a Redis that Ruby and Python share, and what to do about it.

    from sidekiq_py.doctor import Level, examine

    for check, finding in examine().findings(Level.PROBLEM, Level.WARNING):
        print(check.name, finding.seen, finding.advice)

A check is a function from facts to findings (`checks/`). Facts are gathered when a check asks for them (`facts.py`),
with limits that hold on a Redis of any size. The doctor only reads. This package may import `api` and the layers below
it, never the engine.
"""

from sidekiq_py.doctor.checks import CHECKS, Check
from sidekiq_py.doctor.examination import Examined, Report, examine
from sidekiq_py.doctor.finding import Finding, Level

__all__ = ["CHECKS", "Check", "Examined", "Finding", "Level", "Report", "examine"]
