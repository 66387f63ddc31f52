"""Celery's result tables, `celery_taskmeta` and `celery_tasksetmeta`, with the same columns as in Celery 5.7."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from sidekiq_celery import states
from sidekiq_celery.backends.database.session import ResultModelBase

__all__ = ("Task", "TaskExtended", "TaskSet")

_Number = sa.Integer().with_variant(sa.BigInteger, "mssql")


def _now() -> datetime:
    return datetime.now(UTC)


class _Table:
    """What all result tables have in common."""

    @classmethod
    def configure(cls, schema: str | None = None, name: str | None = None) -> None:
        """Use the table *name* in *schema*."""
        table: Any = cls.__table__  # type: ignore[attr-defined]
        table.schema = schema
        cls.id.default.schema = schema  # type: ignore[attr-defined]
        table.name = name or cls.__tablename__  # type: ignore[attr-defined]

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as a dict."""
        return {name: getattr(self, name) for name in self.column_names() if name != "id"}

    @classmethod
    def column_names(cls) -> set[str]:
        """The columns of this class. The table itself also has those of `TaskExtended`."""
        return {column.key for column in cls.__mapper__.column_attrs}  # type: ignore[attr-defined]


class Task(_Table, ResultModelBase):  # type: ignore[misc]
    """A task's result or state."""

    __tablename__ = "celery_taskmeta"
    __table_args__: Any = {"sqlite_autoincrement": True}

    id: Any = sa.Column(_Number, sa.Sequence("task_id_sequence"), primary_key=True, autoincrement=True)
    task_id: Any = sa.Column(sa.String(155), unique=True)
    status: Any = sa.Column(sa.String(50), default=states.PENDING)
    result: Any = sa.Column(sa.LargeBinary, nullable=True)
    date_done: Any = sa.Column(sa.DateTime, default=_now, onupdate=_now, nullable=True, index=True)
    traceback: Any = sa.Column(sa.Text, nullable=True)
    children: Any = sa.Column(sa.LargeBinary, nullable=True)

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id


class TaskExtended(Task):
    """A task's result together with its call (`result_extended`)."""

    __tablename__ = "celery_taskmeta"
    __table_args__: Any = {"sqlite_autoincrement": True, "extend_existing": True}

    name: Any = sa.Column(sa.String(155), nullable=True)
    args: Any = sa.Column(sa.LargeBinary, nullable=True)
    kwargs: Any = sa.Column(sa.LargeBinary, nullable=True)
    worker: Any = sa.Column(sa.String(155), nullable=True)
    retries: Any = sa.Column(sa.Integer, nullable=True)
    queue: Any = sa.Column(sa.String(155), nullable=True)
    stamps: Any = sa.Column(sa.LargeBinary, nullable=True)


class TaskSet(_Table, ResultModelBase):  # type: ignore[misc]
    """The results that belong to a group."""

    __tablename__ = "celery_tasksetmeta"
    __table_args__: Any = {"sqlite_autoincrement": True}

    id: Any = sa.Column(_Number, sa.Sequence("taskset_id_sequence"), autoincrement=True, primary_key=True)
    taskset_id: Any = sa.Column(sa.String(155), unique=True)
    result: Any = sa.Column(sa.LargeBinary, nullable=True)
    date_done: Any = sa.Column(sa.DateTime, default=_now, nullable=True, index=True)

    def __init__(self, taskset_id: str, result: bytes) -> None:
        self.taskset_id = taskset_id
        self.result = result
