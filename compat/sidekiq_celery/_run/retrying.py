"""`Task.retry`: the arguments of the next attempt, and what happens when no retries are left."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sidekiq_celery._wire.passed_values import handed_on
from sidekiq_celery.exceptions import Reject, Retry
from sidekiq_celery.utils.serialization import raise_with_context

if TYPE_CHECKING:
    from sidekiq_celery._wire.context import Context

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def retry(
    task: Any,
    args: Any,
    kwargs: Any,
    exc: Any,
    throw: bool,
    eta: Any,
    countdown: Any,
    max_retries: int | None,
    options: Mapping[str, Any],
) -> Retry:
    """
    Retry a task; see `Task.retry`.

    In a worker the script that ends this attempt also writes the next one, so there are never both or neither.
    """
    from sidekiq_celery._send.running_task import current

    request = task.request
    retries = request.retries + 1
    if max_retries is not None:
        request._own_max_retries = max_retries
    limit = task.max_retries if max_retries is None else max_retries
    if request.called_directly:
        raise_with_context(exc or Retry("Task can be retried", None))
    if not eta and countdown is None:
        countdown = task.default_retry_delay
    args, kwargs = arguments_of_retry(task, request, args, kwargs)
    signature = task.signature_from_request(
        request, args, kwargs, countdown=countdown, eta=eta, retries=retries, **options
    )
    if limit is not None and retries > limit:
        if exc:
            raise_with_context(exc)
        raise task.MaxRetriesExceededError(
            f"Can't retry {task.name}[{request.id}] args:{signature.args} kwargs:{signature.kwargs}",
            task_args=signature.args,
            task_kwargs=signature.kwargs,
        )
    again = Retry(exc=exc, when=eta or countdown, is_eager=request.is_eager, sig=signature)
    if not request.is_eager:
        run = current(request)
        try:
            if run is None:
                signature.apply_async()
            else:
                given = [signature.args, signature.kwargs]
                run.buffer_retry(lambda: handed_on(lambda carried: _called(signature, *carried), given), again)
        except Exception as problem:
            raise Reject(problem, requeue=False) from problem
    if throw:
        raise again
    return again


def _called(signature: Any, args: Any, kwargs: Any) -> Any:
    again = signature.clone()
    again.args, again.kwargs = args, kwargs
    return again.apply_async()


def arguments_of_retry(task: Any, request: "Context", args: Any, kwargs: Any) -> tuple[Any, Any]:
    """
    The arguments for the next attempt: those given, plus those of the first call that do not conflict with them.

    Args:
        args, kwargs: As given to `retry`; None for those of the first call.
    """
    by_position_alone = args is not None and kwargs is None and request.kwargs
    by_name_alone = kwargs is not None and args is None and request.args
    if not by_position_alone and not by_name_alone:
        return args, kwargs
    try:
        signature = inspect.signature(task.run)
    except (TypeError, ValueError):
        return args, kwargs
    if by_position_alone:
        return args, _not_given_by_position(signature, args, request.kwargs)
    return _with_names(signature, request.args, kwargs)


def _not_given_by_position(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    positional = [one for one in signature.parameters.values() if one.kind in _BY_POSITION][: len(args)]
    taken = {one.name for one in positional if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return {name: value for name, value in kwargs.items() if name not in taken}


def _with_names(signature: inspect.Signature, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The first call's positional arguments, with those replaced that are now given by name."""
    try:
        bound = signature.bind_partial(*args)
    except TypeError:
        return None, kwargs
    rest = {}
    for name, value in kwargs.items():
        is_placed = (
            name in bound.arguments and signature.parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
        if is_placed:
            bound.arguments[name] = value
        else:
            rest[name] = value
    return bound.args, {**bound.kwargs, **rest}
