"""Workers for tests: real ones, in threads of this process."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sidekiq_celery._send.clients import client_of
from sidekiq_celery.contrib.testing import private_broker
from sidekiq_celery.result import _set_task_join_will_block, allow_join_result
from sidekiq_celery.utils.dispatch import Signal
from sidekiq_celery.utils.nodenames import anon_nodename
from sidekiq_celery.worker import WorkController
from sidekiq_celery.worker.embedding import Embedding, use_threads
from sidekiq_celery.worker.engine_config import engine_config
from sidekiq_celery.worker.pools import slots
from sidekiq_celery.worker.worker import stop_steps
from sidekiq_py.api import Queue, Stats
from sidekiq_py.errors import RedisError
from sidekiq_py.worker import Launcher

__all__ = (
    "TestWorkController",
    "setup_app_for_worker",
    "start_worker",
    "test_worker_started",
    "test_worker_starting",
    "test_worker_stopped",
)

# The name that `contrib.testing.tasks` registers with every app; a worker only gives it to its own app.
_PING = "celery.ping"
# A task on its way to a worker that is free takes a few milliseconds. One that waits longer has another reason.
_ON_ITS_WAY_SECONDS = 1.0
WORKER_LOGLEVEL = os.environ.get("WORKER_LOGLEVEL", "error")

test_worker_starting = Signal(name="test_worker_starting", providing_args={})
test_worker_started = Signal(name="test_worker_started", providing_args={"worker", "consumer"})
test_worker_stopped = Signal(name="test_worker_stopped", providing_args={"worker"})
for _signal in (test_worker_starting, test_worker_started, test_worker_stopped):
    # Their names would make pytest collect them as tests.
    _signal.__test__ = False  # type: ignore[attr-defined]

private_broker.use_for_memory()


class TestWorkController(WorkController):
    """
    A worker that ignores the operating system's signals: `start` blocks until another thread calls `stop`.

    The pool `prefork` uses threads here, with a warning, because a fork within a test runner also forks its state.
    """

    __test__ = False
    logger_queue: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._on_started = threading.Event()
        self._wanted_end = threading.Event()
        self._failure: BaseException | None = None
        self._launcher: Launcher | None = None
        self._embedding = Embedding(self)
        super().__init__(*args, **kwargs)
        use_threads(
            self,
            "a test worker runs in threads of this process, also with the pool 'prefork'; name 'threads' or 'solo' in "
            "the fixture celery_worker_pool. Time limits that kill need a real worker",
        )

    def start(self) -> None:
        """Run tasks until `stop` is called."""
        try:
            self._launcher = self._launched()
        except BaseException as error:
            self._failure = error
            self._on_started.set()
            raise
        self.on_ready()
        self._wanted_end.wait()

    def on_failed_step(self, error: Exception) -> None:
        """Let `ensure_started` raise *error*."""
        self._failure = error
        self.stop(timeout_seconds=0.0)
        self._on_started.set()

    def on_consumer_ready(self, consumer: Any) -> None:
        """Let `ensure_started` return."""
        self._on_started.set()
        test_worker_started.send(sender=self.app, worker=self, consumer=consumer)

    def ensure_started(self) -> None:
        """
        Wait until the worker runs. It has to be started in another thread.

        Raises:
            Exception: The reason why it could not start.
        """
        self._on_started.wait()
        if self._failure is not None:
            raise self._failure

    def start_what_was_sent(self) -> None:
        """Wait until a task that was sent just now has started: Celery's worker looks whether to stop only after it."""
        end = time.monotonic() + _ON_ITS_WAY_SECONDS
        with suppress(RedisError):
            while self._has_task_to_start() and time.monotonic() < end:
                time.sleep(0.005)

    def _has_task_to_start(self) -> bool:
        launcher = self._launcher
        if launcher is None or launcher.is_quiet or launcher.state.busy:
            return False
        pool = client_of(self.app).pool
        return any(Queue(name, pool=pool).size for name in launcher.config.queue_names) or any(
            jobs.identity == launcher.identity for jobs in Stats(pool=pool).in_flight
        )

    def stop(self, in_sighandler: bool = False, exitcode: int | None = None, *, timeout_seconds: float = 10.0) -> None:
        """
        Stop the worker, and wait until it has stopped. Running tasks may finish until the timeout.

        Raises:
            RuntimeError: A task is still running.
        """
        launcher, self._launcher = self._launcher, None
        stubborn = []
        if launcher is not None:
            launcher.quiet()
            stop_steps(self)
            stubborn = launcher.stop(timeout_seconds=timeout_seconds)
            self.on_stopped()
        self._wanted_end.set()
        if stubborn:
            raise RuntimeError(
                "Worker thread failed to exit within the allocated timeout. Consider raising `shutdown_timeout` if "
                "your tasks take longer to execute."
            )

    def reload(self, modules: Any = None, reload: bool = False, reloader: Any = None) -> None:
        """Add tasks that were declared since the start. A payload that names such a task also triggers this."""
        for module in modules or ():
            self.app.loader.import_from_cwd(module)
        self._embedding.register_later_tasks()

    def terminate(self, in_sighandler: bool = False) -> None:
        """Stop at once: `Shutdown` is raised in running tasks, and their jobs are requeued."""
        self.stop(timeout_seconds=0.0)

    def _launched(self) -> Launcher:
        self.app.finalize()
        self._limit_tasks()
        self.on_start()
        return self._embedding.launch(engine_config(self.app, slots(self.pool_name, self.concurrency)))


@contextmanager
def start_worker(
    app: Any,
    concurrency: int = 1,
    pool: Any = "solo",
    loglevel: Any = WORKER_LOGLEVEL,
    logfile: str | None = None,
    perform_ping_check: bool = True,
    ping_task_timeout: float = 10.0,
    shutdown_timeout: float = 10.0,
    WorkController: Any = TestWorkController,
    **kwargs: Any,
) -> Iterator[Any]:
    """
    Run a worker for *app* within the block.

    Args:
        concurrency, pool, kwargs: As for `WorkController`, but without heartbeats unless `without_heartbeat` is False.
        perform_ping_check: Let it run `celery.ping` first; an app without that task gets it.
        ping_task_timeout: Seconds to wait for that.
        shutdown_timeout: Seconds for tasks that are still running after the block.
        WorkController: The worker's class.

    Raises:
        RuntimeError: A task did not end in time.
    """
    test_worker_starting.send(sender=app)
    worker = None
    try:
        setup_app_for_worker(app, loglevel, logfile)
        if perform_ping_check and _PING not in app.tasks:
            app.task(name=_PING)(lambda: "pong")
        made = WorkController(
            app=app,
            concurrency=concurrency,
            hostname=kwargs.pop("hostname", anon_nodename()),
            pool=pool,
            loglevel=loglevel,
            logfile=logfile,
            ready_callback=None,
            without_heartbeat=kwargs.pop("without_heartbeat", True),
            **kwargs,
        )
        thread = threading.Thread(target=_run, args=(made,), name="celery-test-worker", daemon=True)
        thread.start()
        made.ensure_started()
        worker = made
        _set_task_join_will_block(False)
        try:
            if perform_ping_check:
                with allow_join_result():
                    answer = app.tasks[_PING].delay().get(timeout=ping_task_timeout)
                assert answer == "pong", f"{_PING} gave {answer!r}"
            yield worker
        finally:
            worker.start_what_was_sent()
            worker.stop(timeout_seconds=shutdown_timeout)
            thread.join(shutdown_timeout)
    finally:
        test_worker_stopped.send(sender=app, worker=worker)


def _run(worker: Any) -> None:
    try:
        worker.start()
    except BaseException:
        logging.getLogger("celery.worker").debug("the test worker did not start", exc_info=True)


def setup_app_for_worker(app: Any, loglevel: Any, logfile: str | None) -> None:
    """Make *app* the current app, and set up its log."""
    app.finalize()
    app.set_current()
    app.set_default()
    type(app.log)._setup = False
    app.log.setup(loglevel=loglevel, logfile=logfile)
