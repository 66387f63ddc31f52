"""What type checkers are told of tasks whose class is a program's own. Nothing else imports this."""

from typing import TYPE_CHECKING, Any

from sidekiq_celery._type_variables import P, R_co
from sidekiq_celery.app.task import Task

__all__ = ("TaskOfClass",)


class TaskOfClass(Task[P, R_co]):
    """A task of a class of one's own (`base=`): it has that one's attributes, which are not checked."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
