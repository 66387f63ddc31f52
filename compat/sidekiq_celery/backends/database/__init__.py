"""
`db+postgresql://…`: results in a database, in Celery's own tables, through SQLAlchemy (1.4 or later).

As with other backends, a result is written before its job is settled: a crash in between repeats the task.
"""

import logging
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

from sidekiq_celery import states
from sidekiq_celery.backends.base import BaseBackend
from sidekiq_celery.backends.encoding import as_bytes
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.imports import symbol_by_name

try:
    from sqlalchemy.exc import DatabaseError, InterfaceError, InvalidRequestError
    from sqlalchemy.orm.exc import StaleDataError
except ImportError as error:
    raise ImproperlyConfigured(
        "results in a database need SQLAlchemy: pip install sqlalchemy, and the driver of the database"
    ) from error

from sidekiq_celery.backends.database.models import Task, TaskExtended, TaskSet
from sidekiq_celery.backends.database.session import SessionManager

__all__ = ("DatabaseBackend", "Task", "TaskExtended", "TaskSet", "retry", "session_cleanup")

logger = logging.getLogger("celery.backends.database")

_RETRYABLE = (DatabaseError, InterfaceError, InvalidRequestError, StaleDataError)
_APART = frozenset({"id", "task_id", "children", "stamps"})
"""Columns that are not filled directly from a result's fields of the same names."""
_TRIES = 3


@contextmanager
def session_cleanup(session: Any) -> Iterator[None]:
    """Close *session* after the block, and roll back whatever the block has not committed."""
    try:
        yield
    except Exception:
        session.rollback()
        raise
    finally:
        session.close()


def retry(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *fun* to try up to three times on database errors. A call may pass another number as `max_retries=`."""

    @wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        most = kwargs.pop("max_retries", _TRIES)
        for left in reversed(range(most)):
            try:
                return fun(*args, **kwargs)
            except _RETRYABLE:
                if not left:
                    raise
                logger.warning("Failed operation %s. Retrying %s more times.", fun.__name__, left, exc_info=True)
        return None

    return call


class DatabaseBackend(BaseBackend):
    """
    Results in a database.

    Args:
        dburi, url: The database's URL, as SQLAlchemy expects it.
        engine_options: Options of the engine, on top of `database_engine_options`.
        engine_callback: Called with the engine when it is made, in place of `database_engine_callback`.
    """

    subpolling_interval = 0.5
    task_cls: Any = Task
    taskset_cls: Any = TaskSet

    def __init__(
        self,
        dburi: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
        url: str | None = None,
        engine_callback: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(url=url, expires_type=_as_timedelta, **kwargs)
        conf = self.app.conf
        # Unlike other backends, this one retries unless settings say otherwise. Source: Celery 5.7.0.
        if not conf.value_set_for("result_backend_always_retry"):
            self.always_retry = True
        if not conf.value_set_for("result_backend_max_retries"):
            self.max_retries = _TRIES
        if self.extended_result:
            self.task_cls = TaskExtended
        found = url or dburi or conf.database_url
        if not found:
            raise ImproperlyConfigured("database_url is not set; name the database there or by result_backend = 'db+…'")
        self.url: str = found
        self.engine_options = {**(conf.database_engine_options or {}), **(engine_options or {})}
        schemas, names = conf.database_table_schemas or {}, conf.database_table_names or {}
        self.task_cls.configure(schema=schemas.get("task"), name=names.get("task"))
        self.taskset_cls.configure(schema=schemas.get("group"), name=names.get("group"))
        self.session_manager = SessionManager(_callback(engine_callback or conf.database_engine_callback))
        if conf.database_create_tables_at_setup:
            self._ensure_retryable(lambda: self.ResultSession().close())

    @property
    def extended_result(self) -> Any:
        """True if the task's call is stored with its result."""
        return self.app.conf.result_extended

    def ResultSession(self, session_manager: SessionManager | None = None) -> Any:
        """Return an SQLAlchemy session. The tables exist."""
        return (session_manager or self.session_manager).session_factory(self.url, **self.engine_options)

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """True for a database error."""
        return isinstance(exc, _RETRYABLE)

    def on_backend_retryable_error(self, exc: BaseException) -> None:
        """Reconnect."""
        self.session_manager.invalidate(self.url)

    # ---- tasks

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **kwargs: Any
    ) -> None:
        with self._session() as session:
            # An existing row is locked, so that another run's success is not overwritten.
            row = self._rows(session, task_id).with_for_update().first()
            if row is None:
                row = self.task_cls(task_id)
                session.add(row)
            elif row.status == states.SUCCESS:
                return
            self._fill(row, result, state, traceback, request)
            session.commit()

    def _fill(self, row: Any, result: Any, state: str, traceback: Any, request: Any) -> None:
        meta = self._get_result_meta(
            as_bytes(self.encode(result)), state, traceback, request, format_date=False, encode=True
        )
        names = self.task_cls.column_names()
        for name in names - _APART:
            setattr(row, name, meta.get(name))
        children = meta.get("children")
        row.children = as_bytes(self.encode(children)) if children else None
        stamped = meta.get("stamped_headers")
        if "stamps" in names and stamped:
            stamps = {name: meta[name] for name in stamped if name in meta}
            row.stamps = as_bytes(self.encode({"stamped_headers": stamped, "stamps": stamps}))

    def _get_task_meta_for(self, task_id: str) -> Any:
        with self._session() as session:
            row = self._rows(session, task_id).first()
            if row is None:
                row = self.task_cls(task_id)
                row.status = states.PENDING
            meta = row.to_dict()
        for name in ("result", "args", "kwargs", "children"):
            if meta.get(name) is not None:
                meta[name] = self._decoded(meta[name])
        stamps = meta.pop("stamps", None)
        if stamps is not None:
            known = self._decoded(stamps)
            meta |= {"stamped_headers": known["stamped_headers"], **known["stamps"]}
        return super().meta_from_decoded(meta)

    def meta_from_decoded(self, meta: Any) -> Any:
        """The fields of a row, also in undecoded form: Airflow reads many rows by itself and passes them here."""
        result = meta["result"]
        return super().meta_from_decoded(
            {**meta, "result": self._decoded(result) if isinstance(result, bytes) else result}
        )

    def _decoded(self, payload: bytes) -> Any:
        try:
            return self.decode(payload)
        except Exception:
            # Celery before 5.7 wrote a pickle whatever the serializer was; protocol 2 and later start with this byte.
            if payload[:1] != b"\x80" or "application/x-python-serialize" not in (self.accept or ()):
                raise
            return pickle.loads(payload)

    def _forget(self, task_id: str) -> None:
        with self._session() as session:
            self._rows(session, task_id).delete()
            session.commit()

    def _rows(self, session: Any, task_id: str) -> Any:
        return session.query(self.task_cls).filter(self.task_cls.task_id == task_id)

    # ---- groups

    def _save_group(self, group_id: str, result: Any) -> Any:
        with self._session() as session:
            session.add(self.taskset_cls(group_id, as_bytes(self.encode(self.prepare_value(result)))))
            session.commit()
        return result

    def _restore_group(self, group_id: str) -> Any:
        from sidekiq_celery.result import result_from_tuple

        with self._session() as session:
            row = self._groups(session, group_id).first()
            if row is None:
                return None
            meta = row.to_dict()
        stored = self._decoded(meta["result"])
        return {**meta, "result": None if stored is None else result_from_tuple(stored, self.app)}

    def _delete_group(self, group_id: str) -> None:
        with self._session() as session:
            self._groups(session, group_id).delete()
            session.commit()

    def _groups(self, session: Any, group_id: str) -> Any:
        return session.query(self.taskset_cls).filter(self.taskset_cls.taskset_id == group_id)

    def cleanup(self) -> None:
        """Delete expired results. Beat runs the task `celery.backend_cleanup`, which calls this, every night."""
        self._ensure_retryable(self._cleanup)

    def _cleanup(self) -> None:
        if self.expires is None:
            return
        oldest = datetime.now(UTC) - self.expires
        with self._session() as session:
            for table in (self.task_cls, self.taskset_cls):
                session.query(table).filter(table.date_done < oldest).delete()
            session.commit()

    @contextmanager
    def _session(self) -> Iterator[Any]:
        session = self.ResultSession()
        with session_cleanup(session):
            yield session

    def __reduce__(self, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        own = {"dburi": self.url, "expires": self.expires, "engine_options": self.engine_options}
        return super().__reduce__(args, {**(kwargs or {}), **own})


def _as_timedelta(seconds: Any) -> timedelta:
    return seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)


def _callback(wanted: Any) -> Any:
    found = symbol_by_name(wanted) if isinstance(wanted, str) else wanted
    if found is not None and not callable(found):
        raise ImproperlyConfigured(f"database_engine_callback is {found!r}; it must be callable, or None")
    return found
