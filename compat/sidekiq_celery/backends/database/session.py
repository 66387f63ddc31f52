"""Creates the result tables, and keeps one SQLAlchemy engine per database and process."""

import os
import time
from collections.abc import Callable
from random import uniform
from typing import Any

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import declarative_base, sessionmaker

__all__ = ("ResultModelBase", "SessionManager")

ResultModelBase: Any = declarative_base()

_TRIES = 10
_LONGEST_PAUSE_SECONDS = 1.0


class SessionManager:
    """
    Args:
        engine_callback: Called with each new engine.
    """

    def __init__(self, engine_callback: Callable[[Any], Any] | None = None) -> None:
        self.engine_callback = engine_callback
        # Per process, because the connections that a child inherits belong to its parent.
        self._engines: dict[tuple[int, str], Any] = {}
        self._prepared: set[str] = set()

    def session_factory(self, dburi: str, **options: Any) -> Any:
        """Return a session for *dburi*, and create the tables first if they are missing."""
        engine = self.get_engine(dburi, **options)
        if dburi not in self._prepared:
            self.prepare_models(engine)
            self._prepared.add(dburi)
        return sessionmaker(bind=engine)()

    def get_engine(self, dburi: str, **options: Any) -> Any:
        """Return this process's engine for *dburi*."""
        key = (os.getpid(), dburi)
        if key not in self._engines:
            engine = create_engine(dburi, **options)
            if self.engine_callback is not None:
                self.engine_callback(engine)
            self._engines[key] = engine
        return self._engines[key]

    def invalidate(self, dburi: str) -> None:
        """Close the connections; the next use reconnects."""
        engine = self._engines.pop((os.getpid(), dburi), None)
        if engine is not None:
            engine.dispose()

    def prepare_models(self, engine: Any) -> None:
        """Create missing tables, and add columns that older versions of Celery did not have."""
        for left in reversed(range(_TRIES)):
            try:
                ResultModelBase.metadata.create_all(engine)
                break
            except DatabaseError:
                # Another process created them between the check and the CREATE TABLE.
                if not left:
                    raise
                time.sleep(uniform(0, _LONGEST_PAUSE_SECONDS))
        _add_columns(engine)


def _add_columns(engine: Any) -> None:
    inspector = inspect(engine)
    quote = engine.dialect.identifier_preparer
    for table in ResultModelBase.metadata.tables.values():
        there = {column["name"] for column in inspector.get_columns(table.name, schema=table.schema)}
        for column in table.columns:
            if column.name not in there and column.nullable:
                kind = column.type.compile(engine.dialect)
                with engine.begin() as connection:
                    connection.execute(
                        text(f"ALTER TABLE {quote.format_table(table)} ADD COLUMN {quote.quote(column.name)} {kind}")
                    )
