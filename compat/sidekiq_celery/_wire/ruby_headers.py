"""`celery.report`: the header that makes a Ruby job a step of a workflow."""

from typing import Any

from sidekiq_celery.contract import App

RUBY_OPTION = "ruby"
"""The option of a signature that holds the job's Sidekiq options."""

ENDED_TASK = "celery.step_ended"
"""The task that continues a workflow after a step in Ruby."""


def report_of(app: App, task_id: str, ignores_result: bool) -> dict[str, Any]:
    """The header that tells a Ruby step where to report. Without `key`, Python stores the result."""
    report: dict[str, Any] = {"class": ENDED_TASK, "queue": reporting_queue(app)}
    backend = app.backend
    within = getattr(backend, "_broker_prefix", None)
    if not ignores_result and within is not None and app.conf.result_serializer == "json":
        report["key"] = backend.get_key_for_task(task_id).decode()[len(within) :]
        if backend.expires:
            report["expires"] = int(backend.expires)
    return report


def reporting_queue(app: App) -> str:
    """The queue for reports of Ruby steps to Python workers: the default queue, or the route of `celery.step_ended`."""
    queue: str = app.amqp.destinations.find({}, ENDED_TASK)[0]
    return queue
