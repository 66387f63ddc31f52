"""Active Jobs that Ruby enqueues and Python runs; loaded by Python workers beside `python_jobs`."""

from typing import Any

from sidekiq_py.active_job import Keywords, active_job, perform_later


@active_job("PythonActiveJob", queue="python")
def send_back_to_ruby(*arguments: Any, **named: Any) -> None:
    """Enqueues Ruby's `EchoJob` with what arrived, so that Ruby can compare it with what it sent."""
    perform_later("EchoJob", *arguments, *([Keywords(named)] if named else []))
