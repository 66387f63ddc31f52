"""Handles for results: `AsyncResult`, `ResultSet`, `GroupResult`, `EagerResult`."""

# Programs import `states` and `TimeoutError` from here. As in Celery, a star does not.
from sidekiq_celery import states  # noqa: F401
from sidekiq_celery._result.base import (
    ResultBase,
    allow_join_result,
    assert_will_not_block,
    denied_join_result,
    result_from_tuple,
    task_join_will_block,
)
from sidekiq_celery._result.eager import EagerResult
from sidekiq_celery._result.groups import GroupResult
from sidekiq_celery._result.sets import ResultSet
from sidekiq_celery._result.single import AsyncResult
from sidekiq_celery._state import _set_task_join_will_block
from sidekiq_celery.exceptions import TimeoutError  # noqa: F401

__all__ = (
    "AsyncResult",
    "EagerResult",
    "GroupResult",
    "ResultBase",
    "ResultSet",
    "_set_task_join_will_block",
    "allow_join_result",
    "assert_will_not_block",
    "denied_join_result",
    "result_from_tuple",
    "task_join_will_block",
)

for _public in (AsyncResult, EagerResult, GroupResult, ResultBase, ResultSet):
    # Pickles and error messages should use the name that programs import it by.
    _public.__module__ = __name__
