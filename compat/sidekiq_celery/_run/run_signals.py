"""What a run tells the receivers of signals about its end. Nothing is put together where nobody listens."""

from sidekiq_celery import signals
from sidekiq_celery._send.running_task import RunDetails
from sidekiq_celery.utils.einfo import ExceptionInfo

__all__ = ("tell_end", "tell_failure", "tell_internal_error")


def tell_failure(run: RunDetails, error: BaseException, einfo: ExceptionInfo) -> None:
    """The task has failed for good."""
    if signals.task_failure.receivers and not run.is_unknown:
        signals.task_failure.send(
            sender=run.plan.task,
            task_id=run.task_id,
            exception=error,
            args=run.args,
            kwargs=run.kwargs,
            traceback=error.__traceback__,
            einfo=einfo,
        )


def tell_internal_error(run: RunDetails, error: BaseException, einfo: ExceptionInfo) -> None:
    """A hook, or what comes after the task, has raised."""
    if signals.task_internal_error.receivers:
        signals.task_internal_error.send(
            sender=run.plan.task,
            task_id=run.task_id,
            args=run.args,
            kwargs=run.kwargs,
            request=run.request,
            exception=error,
            traceback=error.__traceback__,
            einfo=einfo,
        )


def tell_end(run: RunDetails) -> None:
    """The run is over, however it has ended."""
    if signals.task_postrun.receivers and not run.is_unknown:
        signals.task_postrun.send(
            sender=run.plan.task,
            task_id=run.task_id,
            task=run.plan.task,
            args=run.args,
            kwargs=run.kwargs,
            retval=run.retval,
            state=run.state,
        )
