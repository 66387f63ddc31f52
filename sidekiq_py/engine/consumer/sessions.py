"""The consumer sessions of this process: one for each Redis, shared by all connections to it."""

import atexit
import os
import threading
from collections.abc import Callable
from functools import partial

from sidekiq_py.engine.consumer.session import ConsumerSession
from sidekiq_py.redis_access.connection.settings import RedisSettings

_Key = tuple[RedisSettings, str | None, float]
_sessions: dict[_Key, ConsumerSession] = {}
_sessions_lock = threading.Lock()


def enter(
    settings: RedisSettings, sidekiq_version: str | None, lease_seconds: float
) -> tuple[ConsumerSession, Callable[[], None]]:
    """
    Get or create this process's session for a Redis.

    Args:
        settings, sidekiq_version, lease_seconds: As for `ConsumerSession`.

    Returns:
        The session, and a function to call when the session is no longer used.
    """
    key = settings, sidekiq_version, lease_seconds
    with _sessions_lock:
        session = _sessions.get(key)
        if session is None:
            session = _sessions[key] = ConsumerSession(*key)
        session.visit()
    return session, partial(_leave, key, session)


def _leave(key: _Key, session: ConsumerSession) -> None:
    with _sessions_lock:
        if session.leave() and _sessions.get(key) is session:
            del _sessions[key]


def _forget_inherited() -> None:
    global _sessions_lock
    _sessions_lock = threading.Lock()
    _sessions.clear()


def _leave_all() -> None:
    for session in list(_sessions.values()):
        if not session.is_inherited:
            session.leave_for_good()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_inherited)
atexit.register(_leave_all)
