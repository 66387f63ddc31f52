"""Types, for type checkers, of tasks that derive from a program's own class. Only type checkers import this."""

from typing import TYPE_CHECKING, Any

from sidekiq_celery._type_variables import P, R_co
from sidekiq_celery.app.task import Task


class TaskOfClass(Task[P, R_co]):
    """A task with a custom class (`base=`). It has that class's attributes, which are not checked."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
