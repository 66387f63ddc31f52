"""`autoretry_for`: exceptions on which a task retries by itself."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from sidekiq_celery.exceptions import Ignore, Retry
from sidekiq_celery.utils.time import get_exponential_backoff_interval
from sidekiq_py.errors import JobFailed, Stopped

__all__ = ("add_autoretry_behaviour", "get_exponential_backoff_interval")


class _Policy:
    """Decides when a task retries by itself, and how long it waits."""

    def __init__(self, task: Any, options: dict[str, Any]) -> None:
        def wanted(name: str, default: Any) -> Any:
            return options.get(name, getattr(task, name, default))

        self.task = task
        self.errors = tuple(wanted("autoretry_for", ()))
        # Neither calls for another try, whichever errors `autoretry_for` covers.
        self.exempt = (JobFailed, Stopped, *wanted("dont_autoretry_for", ()))
        self.retry_kwargs = wanted("retry_kwargs", {})
        self.backoff = float(wanted("retry_backoff", False))
        self.backoff_max = int(wanted("retry_backoff_max", 600))
        self.has_jitter = wanted("retry_jitter", True)

    def retry(self, exc: Exception) -> Exception:
        """
        Retry the task, and return the exception to raise.

        Raises:
            Retry: The task will run again.
            Exception: No tries are left. This is *exc*.
        """
        task = self.task
        options = dict(self.retry_kwargs)
        if self.backoff:
            options["countdown"] = get_exponential_backoff_interval(
                factor=int(max(1.0, self.backoff)),
                retries=task.request.retries,
                maximum=self.backoff_max,
                full_jitter=self.has_jitter,
            )
        # Kept in the request: Celery keeps it in the task, where it would also count for the process's next attempts.
        if task.request._own_max_retries is not None:
            options["max_retries"] = task.request._own_max_retries
        again: Exception = task.retry(exc=exc, **options)
        return again


def add_autoretry_behaviour(task: Any, **options: Any) -> None:
    """
    Wrap a task's `run` to retry on the exceptions in `autoretry_for`. Without any, the task stays as it is.

    Args:
        task: Its attributes supply what *options* leave out.
        options: The decorator's options.
    """
    policy = _Policy(task, options)
    if not policy.errors or hasattr(task, "_orig_run"):
        return
    wrap = _awaited if iscoroutinefunction(task.run) else _called
    task._orig_run, task.run = task.run, wrap(policy, task.run)


def _called(policy: _Policy, run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def run_and_retry(*args: Any, **kwargs: Any) -> Any:
        try:
            return policy.task._orig_run(*args, **kwargs)
        except (Ignore, Retry, *policy.exempt):
            raise
        except policy.errors as exc:
            raise policy.retry(exc)  # noqa: B904 - `retry` has set what it was raised from

    return run_and_retry


def _awaited(policy: _Policy, run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    async def run_and_retry(*args: Any, **kwargs: Any) -> Any:
        try:
            return await policy.task._orig_run(*args, **kwargs)
        except (Ignore, Retry, *policy.exempt):
            raise
        except policy.errors as exc:
            raise policy.retry(exc)  # noqa: B904 - as above

    return run_and_retry
