"""The signals that a run sends when it ends. Their arguments are only prepared if a receiver is connected."""

from typing import Any

from sidekiq_celery import signals
from sidekiq_celery._send.running_task import RunDetails
from sidekiq_celery._wire.context import as_dict
from sidekiq_celery.utils.einfo import ExceptionInfo


def send_failure(run: RunDetails, error: BaseException, einfo: ExceptionInfo, traceback: Any) -> None:
    """
    Send `task_failure`: the task has failed for good.

    Args:
        traceback: A traceback; or its text, as in Celery, if the error was not raised by the task itself.
    """
    if signals.task_failure.receivers and not run.is_unknown:
        signals.task_failure.send(**_call(run), exception=error, traceback=traceback, einfo=einfo)


def send_internal_error(run: RunDetails, error: BaseException, einfo: ExceptionInfo) -> None:
    """Send `task_internal_error`: what records a failure or a retry, such as its hook, has raised."""
    if signals.task_internal_error.receivers:
        signals.task_internal_error.send(
            **_call(run), request=as_dict(run.request), exception=error, traceback=error.__traceback__, einfo=einfo
        )


def send_end(run: RunDetails) -> None:
    """Send `task_postrun`: the run is over, whatever its outcome."""
    if signals.task_postrun.receivers and not run.is_unknown:
        signals.task_postrun.send(**_call(run), task=run.plan.task, retval=run.retval, state=run.state)


def _call(run: RunDetails) -> dict[str, Any]:
    return {"sender": run.plan.task, "task_id": run.task_id, "args": run.args, "kwargs": run.kwargs}
