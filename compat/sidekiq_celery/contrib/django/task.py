"""Tasks that are sent when the transaction is committed."""

import functools
from typing import Any, ParamSpec, TypeVar

from django.db import transaction

from sidekiq_celery.app.task import Task

__all__ = ("DjangoTask",)

P = ParamSpec("P")
R = TypeVar("R")


class DjangoTask(Task[P, R]):
    """A task of a Django project."""

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """`delay` after the commit; at once where no transaction is open. There is no result to hold."""
        transaction.on_commit(functools.partial(self.delay, *args, **kwargs))

    def apply_async_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """`apply_async` after the commit."""
        transaction.on_commit(functools.partial(self.apply_async, *args, **kwargs))
