"""A program with tasks, as a worker's command line names it; it notes in Redis which signals were sent where."""

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import redis
from sidekiq_celery import Celery, signals
from sidekiq_celery.exceptions import SoftTimeLimitExceeded
from sidekiq_celery.utils.log import get_task_logger
from sidekiq_celery.worker import startup

from sidekiq_py.engine.upkeep import open_files

URL = os.environ["REDIS_URL"]

app = Celery("project", broker=URL, backend=URL)
app.conf.worker_max_tasks_per_child = int(os.environ.get("MOST_TASKS") or 0) or None
app.conf.worker_soft_shutdown_timeout = float(os.environ.get("SOFT_SHUTDOWN") or 0.0)
app.conf.worker_pool_restarts = "RESTARTS" in os.environ
app.conf.worker_enable_remote_control = "WITHOUT_REMOTE_CONTROL" not in os.environ
if "WORKER_POOL" in os.environ:
    app.conf.update(worker_pool=os.environ["WORKER_POOL"], worker_concurrency=3)
if "BROKER_SETTINGS" in os.environ:
    app.conf.update(json.loads(os.environ["BROKER_SETTINGS"]))
if "PAUSE_SECONDS" in os.environ:
    startup.STEP_SECONDS = float(os.environ["PAUSE_SECONDS"])
if "NOTICED_SOON" in os.environ:
    open_files.PATIENCE_SECONDS, open_files.LOOK_SECONDS = 0.4, 0.1
if "EVERY_SECONDS" in os.environ:
    app.conf.beat_schedule = {"tick": {"task": f"{__name__}.tick", "schedule": float(os.environ["EVERY_SECONDS"])}}
logger = get_task_logger(__name__)
_leaked: list[int] = []
_pool = ProcessPoolExecutor(1)


def note(key: str, text: Any) -> None:
    """Remember something for the test, where it has a Redis."""
    if "WITHOUT_NOTES" in os.environ:
        return
    client = redis.Redis.from_url(URL)
    client.rpush(f"noted:{key}", str(text))
    client.close()


def _noting(name: str) -> None:
    def receive(**about: Any) -> None:
        note("signals", f"{name} {os.getpid()}")
        note("senders", f"{name} {getattr(about['sender'], 'hostname', about['sender'])}")
        if name == "worker_shutting_down":
            note("how", f"{about['sig']} {about['how']}")

    getattr(signals, name).connect(receive, weak=False)


if "BROKEN_LOG" in os.environ:

    class _Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "shutdown" in record.getMessage():
                raise RuntimeError("the log server is gone")

    def _add_broken(logger: logging.Logger, **_: Any) -> None:
        logger.addHandler(_Broken())

    signals.after_setup_logger.connect(_add_broken)


if "HUP_AT_SHUTDOWN" in os.environ:
    print(f"TERM {'is ignored' if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN else 'ends this process'}")

    @signals.worker_shutting_down.connect(weak=False)
    def _hang_up(**_: Any) -> None:
        os.kill(os.getpid(), signal.SIGHUP)


if "REPLACED_INITIALIZER" in os.environ:
    from sidekiq_celery.concurrency import prefork

    _initialize, _destruct = prefork.process_initializer, prefork.process_destructor

    def _replaced_initializer(app: Any, hostname: str) -> None:
        note("initialized", hostname)
        _initialize(app, hostname)

    def _replaced_destructor(pid: int, exitcode: int) -> None:
        note("destructed", pid == os.getpid())
        _destruct(pid, exitcode)

    prefork.process_initializer, prefork.process_destructor = _replaced_initializer, _replaced_destructor


for _name in (
    *("celeryd_init", "celeryd_after_setup", "worker_init", "worker_process_init", "worker_process_shutdown"),
    *("worker_ready", "worker_shutting_down", "worker_shutdown"),
):
    _noting(_name)


@signals.worker_before_create_process.connect(weak=False)
def spoil_queues(**about: Any) -> None:
    """Bends what a child inherits."""
    if "ODD_QUEUE" in os.environ:
        app.amqp.queues.consume_from.update({5: None, "\ud800": None})


@app.task
def settled() -> int:
    """How many objects the garbage collector leaves alone here."""
    return gc.get_freeze_count()


@app.task
def add(a: int, b: int) -> int:
    """A sum."""
    print("printed by a task")
    logger.warning("logged by a task")
    return a + b


@app.task
def pid() -> int:
    """The process that runs it."""
    return os.getpid()


@app.task
def sleep_long(name: str = "slow") -> None:
    """Runs until something ends it."""
    note(name, os.getpid())
    time.sleep(600)


@app.task
def use_a_pool() -> list[int]:
    """Its processes, which wait for more to do."""
    _pool.submit(os.getpid).result()
    return list(_pool._processes)


@app.task
def leak_files() -> None:
    """Takes all file descriptors of its process."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    while True:
        _leaked.append(os.dup(0))


@app.task
def finish_when_told() -> str:
    """Runs until the test says so."""
    note("slow", os.getpid())
    client = redis.Redis.from_url(URL)
    while not client.lpop("finish"):
        time.sleep(0.01)
    client.close()
    return "finished"


@app.task
async def wait_on_loop() -> str:
    """The same, on the loop."""
    note("slow", os.getpid())
    client = redis.Redis.from_url(URL)
    while not client.lpop("finish"):
        await asyncio.sleep(0.01)
    client.close()
    return "finished"


@app.task(ignore_result=False)
def count_up(number: int) -> None:
    """Takes a moment, and notes that it ran."""
    time.sleep(0.01)
    note("counted", number)


@app.task(soft_time_limit=100, time_limit=200)
def limited() -> None:
    """Runs until a limit ends it."""
    for _ in range(600):
        time.sleep(0.1)


if "ODD_LIMIT" in os.environ:
    # What a call brings along from its declaration is none of this.
    limited.time_limit = os.environ["ODD_LIMIT"]


@app.task(soft_time_limit=100, time_limit=200)
async def limited_on_loop() -> None:
    """The same, on the loop."""
    await asyncio.sleep(60)


@app.task
def cleaned_up() -> str:
    """Handles its soft limit, which is raised between two steps of Python."""
    try:
        for _ in range(6000):
            time.sleep(0.1)
    except SoftTimeLimitExceeded:
        return "cleaned up"
    return "not limited"


@app.task
def slept(seconds: float) -> str:
    """Where it was woken by its soft limit."""
    try:
        time.sleep(seconds)
    except SoftTimeLimitExceeded:
        return f"woken in {threading.current_thread().name}"
    return "slept on"


@app.task(bind=True)
def where(self: Any) -> str:
    """The worker's name."""
    return str(self.request.hostname)


@app.task
async def coroutine() -> str:
    """Runs on the loop."""
    return "from the loop"


@app.task
def tick() -> None:
    """What beat sends."""
    note("ticks", os.getpid())
