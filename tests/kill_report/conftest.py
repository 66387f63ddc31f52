"""A line about each round in the report of the tests."""

from tests.support.report import pytest_terminal_summary, report

__all__ = ["pytest_terminal_summary", "report"]
