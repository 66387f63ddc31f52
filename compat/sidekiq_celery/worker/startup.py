"""
Waiting for Redis before a worker starts its parts, as with docker-compose, where a worker often starts first.

As in Celery, the pauses are 2, 4, 6 and so on up to 30 seconds, `broker_connection_retry_on_startup` switches the wait
off, and `broker_connection_max_retries` ends it. Unlike there, a wrong password or database ends the worker at once.
Source: Celery 5.7.0, `Consumer.ensure_connected`; kombu 5.7.0, `retry_over_time`.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from types import FrameType
from typing import Any

from sidekiq_celery.platforms import signal_name
from sidekiq_celery.utils.time import humanize_seconds
from sidekiq_celery.worker.processes import term_is_quit
from sidekiq_py.errors import RedisError, RedisReplyError
from sidekiq_py.extension import Pool, place
from sidekiq_py.probes.server import Answer, ProbeServer
from sidekiq_py.worker import Config

logger = logging.getLogger("celery.worker")

STEP_SECONDS = 2.0
"""By how much each pause is longer than the one before it."""

_LONGEST_PAUSE_SECONDS = 30.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
# By default, they end or suspend a process. While the worker runs, they dump its threads, reopen its log or quiet it.
_OTHER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTSTP)


class _Stopped(BaseException):
    """Raised in the waiting thread by a signal or by `worker.stop`; its argument is the signal's name."""


def wait_for_redis(worker: Any, config: Config) -> bool:
    """
    Wait until Redis answers. The connection is closed again, so that children can be forked afterwards.

    Returns:
        False if the worker was stopped in the meantime, by a signal or by `stop`.

    Raises:
        RedisError: There is no Redis, and waiting any longer would not help or is not wanted.
    """
    is_stopped, waiting = threading.Event(), threading.current_thread()

    def stop_by(number: signal.Signals) -> None:
        # In this thread, it is a signal handler that stops the worker.
        if threading.current_thread() is waiting:
            raise _Stopped(signal_name(number))
        is_stopped.set()

    try:
        with ExitStack() as stack:
            # Whatever runs next looks by itself whether it should stop.
            stack.callback(setattr, worker, "stop_by", _do_nothing)
            if waiting is threading.main_thread():
                stack.enter_context(_raising_at_signals())
            pool = stack.enter_context(closing(Pool(config.redis)))
            worker.be_stopped_by(stop_by)
            for number in count(1):
                error = _why_there_is_no_redis(pool)
                if error is None or is_stopped.is_set():
                    break
                if number == 1 and worker.probe_port is not None:
                    _answer_probes(worker.probe_port, error, stack)
                is_stopped.wait(_pause_seconds(worker.app, config, error, number))
    except _Stopped as stopped:
        worker.on_shutting_down(*stopped.args)
        return False
    if is_stopped.is_set():
        worker.on_shutting_down("QUIT" if worker.state.should_terminate else "TERM")
    return not is_stopped.is_set()


def _do_nothing(number: int, frame: FrameType | None = None) -> None:
    """Take the place of a function that stops the worker."""


def _why_there_is_no_redis(pool: Pool) -> RedisError | None:
    try:
        pool.command("PING")
    except RedisReplyError as error:
        # The engine's checks say better what is wrong with a server that answers.
        return error if error.may_pass_at_start else None
    except RedisError as error:
        return error
    return None


def _pause_seconds(app: Any, config: Config, error: RedisError, number: int) -> float:
    """Log failed try *number*. Returns how long to wait before the next one, or raises *error* if there is none."""
    conf = app.conf
    at_startup, most = conf.broker_connection_retry_on_startup, conf.broker_connection_max_retries
    is_wanted = conf.broker_connection_retry if at_startup is None else at_startup
    if not (is_wanted and error.may_pass_at_start) or (most is not None and number > most):
        raise error
    seconds = min(STEP_SECONDS * number, _LONGEST_PAUSE_SECONDS)
    logger.error(
        "consumer: Cannot connect to %s: %s. Trying again %s... (%d/%s)",
        *(place(config.redis), str(error).rstrip("."), humanize_seconds(seconds, "in", " "), number, most),
    )
    return seconds


@contextmanager
def _raising_at_signals() -> Iterator[None]:
    """
    Let the signals that stop a worker end what the main thread does, even a connection that is being opened. Others
    that it has a use for while it runs do nothing.
    """
    before = {number: signal.getsignal(number) for number in (*_STOP_SIGNALS, *_OTHER_SIGNALS)}

    def stop(number: int, frame: FrameType | None) -> None:
        # Another signal must not end the process before its pidfile is removed. Unlike SIG_IGN, a function is not
        # inherited by the programs that this process starts, such as itself after HUP.
        for each in before:
            signal.signal(each, _do_nothing)
        raise _Stopped("QUIT" if number == signal.SIGTERM and term_is_quit() else signal_name(number))

    for number in before:
        signal.signal(number, stop if number in _STOP_SIGNALS else _do_nothing)
    try:
        yield
    finally:
        # Children are to inherit the handlers of before. After a signal, all of them stay without effect.
        if signal.getsignal(signal.SIGTERM) is stop:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)


class _WaitingProbes:
    """The probes of a worker that waits for Redis: it is live, but not ready, and has run nothing."""

    def __init__(self, error: RedisError) -> None:
        self._error = error

    def live(self) -> Answer:
        """Good."""
        return Answer(True, "live\n")

    def ready(self) -> Answer:
        """Not good."""
        return Answer(False, f"waiting for Redis: {self._error}\n")

    def metrics(self) -> str:
        """None yet."""
        return ""


def _answer_probes(port: int, error: RedisError, stack: ExitStack) -> None:
    server = ProbeServer(port, _WaitingProbes(error))
    server.start()
    stack.callback(server.close)
