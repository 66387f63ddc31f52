"""
The log lines that a worker writes about tasks. The texts are Celery's, because log readers search for them;
`extra["data"]` holds their values.

Source: Celery 5.7.0, `celery.app.trace`; `celery.worker.request` for time limits.
"""

import logging
from typing import Any, NamedTuple

from sidekiq_celery._run.unknown_tasks import UnknownTask
from sidekiq_celery._wire.printed_call import printed_call
from sidekiq_celery.exceptions import Ignore, Reject
from sidekiq_celery.utils.einfo import ExceptionInfo
from sidekiq_celery.utils.saferepr import saferepr
from sidekiq_celery.utils.serialization import safe_repr
from sidekiq_py.payloads import escaped
from sidekiq_py.redaction import current

logger = logging.getLogger("celery.app.trace")
# As in Celery: in a program that has not set up logging, tasks that run eagerly and fail print nothing to stderr.
logger.addHandler(logging.NullHandler())
# The logger on which Celery's workers log that a task was received.
incoming = logging.getLogger("celery.worker.strategy")
# The logger on which they log time limits.
requests = logging.getLogger("celery.worker.request")

LOG_RECEIVED = "Task %(name)s[%(id)s] received"
LOG_SUCCESS = "Task %(name)s[%(id)s] succeeded in %(runtime)ss: %(return_value)s"
LOG_FAILURE = "Task %(name)s[%(id)s] %(description)s: %(exc)s"
LOG_INTERNAL_ERROR = LOG_FAILURE
LOG_IGNORED = "Task %(name)s[%(id)s] %(description)s"
LOG_REJECTED = "Task %(name)s[%(id)s] %(exc)s"
LOG_RETRY = "Task %(name)s[%(id)s] retry: %(exc)s"
LOG_REVOKED = "Discarding revoked task: %(name)s[%(id)s]"
_BY_STAMP = " (revoked by header: %(header)s)"
LOG_UNREGISTERED = "Received unregistered task of type '%(name)s': task %(id)s has failed."
LOG_TIME_LIMIT = "%(limit)s time limit (%(seconds)ss) exceeded for %(name)s[%(id)s]"


class LogPolicy(NamedTuple):
    """How a task's end is logged; *template* is the name of a text above, which a program may have replaced."""

    template: str
    description: str
    severity: int
    traceback: bool


_REJECTED = LogPolicy("LOG_REJECTED", "rejected", logging.WARNING, True)
_IGNORED = LogPolicy("LOG_IGNORED", "ignored", logging.INFO, False)
_INTERNAL = LogPolicy("LOG_INTERNAL_ERROR", "INTERNAL ERROR", logging.CRITICAL, True)
_EXPECTED = LogPolicy("LOG_FAILURE", "raised expected", logging.INFO, False)
_UNEXPECTED = LogPolicy("LOG_FAILURE", "raised unexpected", logging.ERROR, True)
_UNREGISTERED = LogPolicy("LOG_UNREGISTERED", "unregistered", logging.ERROR, True)


def is_expected(task: Any, exc: Any) -> bool:
    """Whether the task lists such errors in `throws`."""
    return bool(task.throws) and isinstance(
        exc, tuple(task.throws) if not isinstance(task.throws, type) else task.throws
    )


def get_log_policy(task: Any, einfo: ExceptionInfo, exc: Any) -> LogPolicy:
    """How to log a task that ended with *exc*."""
    if isinstance(exc, Reject):
        return _REJECTED
    if isinstance(exc, Ignore):
        return _IGNORED
    if einfo.internal:
        return _INTERNAL
    if isinstance(task, UnknownTask):
        return _UNREGISTERED
    return _EXPECTED if is_expected(task, exc) else _UNEXPECTED


def log_received(task: Any, request: Any) -> None:
    """Log that a worker is about to run the task."""
    if incoming.isEnabledFor(logging.INFO):
        data = {**_whose(task, request), **_called_with(task, request), "eta": request.get("eta")}
        incoming.info(LOG_RECEIVED, data, extra={"data": data})


def log_success(task: Any, request: Any, retval: Any, seconds: float) -> None:
    """Log that the task returned."""
    if logger.isEnabledFor(logging.INFO):
        shown = current().part({"class": task.name, "result": retval}, "result")
        data = {
            **_whose(task, request),
            "return_value": escaped(saferepr(shown, task.resultrepr_maxsize)),
            "runtime": seconds,
            **_called_with(task, request),
        }
        logger.info(LOG_SUCCESS, data, extra={"data": data})


def log_retry(task: Any, request: Any, reason: Any) -> None:
    """Log that the task will run again."""
    data = {**_whose(task, request), "exc": str(redacted_error(task, reason))}
    logger.info(LOG_RETRY, data, extra={"data": data})


def log_revoked(task: Any, request: Any, stamp: Any = None) -> None:
    """Log that the task was revoked, and by which stamp."""
    data = _whose(task, request)
    text = LOG_REVOKED
    if stamp:
        data["header"] = escaped(saferepr(stamp))
        text += _BY_STAMP
    logger.info(text, data, extra={"data": data})


def log_time_limit(task_name: str, task_id: Any, seconds: float, *, is_hard: bool) -> None:
    """Log that the task ran past a time limit."""
    limit = "Hard" if is_hard else "Soft"
    data = {"id": task_id, "name": task_name, "limit": limit, "seconds": f"{seconds:g}"}
    requests.log(logging.ERROR if is_hard else logging.WARNING, LOG_TIME_LIMIT, data, extra={"data": data})


def log_end(task: Any, request: Any, einfo: ExceptionInfo) -> None:
    """Log any other end: the task failed, was rejected, or is ignored."""
    policy = get_log_policy(task, einfo, einfo.error)
    if not logger.isEnabledFor(policy.severity):
        return
    error = redacted_error(task, einfo.error)
    if error is not einfo.error:
        einfo = ExceptionInfo((type(error), error, einfo.tb), einfo.internal)
    data = {
        **_whose(task, request),
        "hostname": request.hostname,
        "exc": safe_repr(error),
        "traceback": einfo.traceback if policy.traceback else "",
        "description": policy.description,
        "internal": einfo.internal,
        **_called_with(task, request),
    }
    exc_info = einfo.exc_info if policy.traceback else None
    logger.log(policy.severity, globals()[policy.template], data, exc_info=exc_info, extra={"data": data})


def _whose(task: Any, request: Any) -> dict[str, Any]:
    # Both may come from the payload, and with a newline they would forge a line.
    # A task that is not registered is looked for by its own name.
    shadow = None if isinstance(task, UnknownTask) else request.shadow
    return _on_one_line(id=request.id, name=shadow or task.name)


def _called_with(task: Any, request: Any) -> dict[str, Any]:
    args, kwargs = printed_call(task.name, request, tuple(request.args or ()), request.kwargs)
    return _on_one_line(args=args, kwargs=kwargs)


def _on_one_line(**texts: Any) -> dict[str, Any]:
    return {key: escaped(text) if isinstance(text, str) else text for key, text in texts.items()}


def redacted_error(task: Any, error: Any) -> Any:
    """The error, redacted for the log."""
    return current().error(error, {"class": task.name}) if isinstance(error, BaseException) else error
