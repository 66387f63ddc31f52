"""Chains and chords of the Celery API, and periodic jobs, while workers and the processes that fire them are killed."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sidekiq_celery import Celery, chain, chord

from kill_report.stage import PATIENCE_SECONDS, Stage
from sidekiq_py.extensions.periodic import store
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.kill.conftest import Fleet
from tests.support.celery_program import command, environment
from tests.support.ledger import number_of
from tests.support.process_states import children_of
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess, WorkerProcess

KILLS = 10
# Workflows for each kill: half are chains, half chords.
WORKFLOWS = 60
PARTS = 5
WORKERS = 2

TICK_SECONDS = 60.0
TICK_KEY = "cron_job:default:each second"


def celery_threads(stage: Stage) -> set[int]:
    """Celery workers with `-P threads` are killed."""
    return _celery(stage, "threads")


def celery_prefork(stage: Stage) -> set[int]:
    """Celery workers with `-P prefork`: a child is killed, or the parent with all its children."""
    return _celery(stage, "prefork")


def _celery(stage: Stage, pool: str) -> set[int]:
    fleet = stage.fleet()
    app = Celery("campaign", broker=fleet.redis_url, backend=fleet.redis_url, set_as_current=False, fixups=[])
    stage.exits.callback(app.close)
    workers = [celery_worker(stage, fleet, pool) for _ in range(WORKERS)]
    behind: dict[int, set[int]] = {}
    for number in range(stage.scaled(KILLS)):
        behind |= start_workflows(stage, app, stage.scaled(WORKFLOWS))
        at = stage.draw.randrange(WORKERS)
        worker = workers[at]
        eventually(partial(_is_at_work, fleet, worker), PATIENCE_SECONDS, every_seconds=0.05)
        if pool == "threads":
            stage.kill(worker.pid, "Celery API, -P threads")
        elif number % 3 and (family := children_of(worker.pid)):
            stage.kill(stage.draw.choice(family), "Celery API, child of -P prefork")
            continue
        else:
            stage.kill_tree(worker.pid, "Celery API, -P prefork, parent and children")
        worker.wait()
        workers[at] = celery_worker(stage, fleet, pool)
    return finish(stage, fleet, behind)


def finish(stage: Stage, fleet: Fleet, behind: dict[int, set[int]]) -> set[int]:
    """
    Wait until all workflows have ended.

    Args:
        behind: The numbers of the tasks that do not run if a task fails, by its number.

    Returns:
        The numbers of the tasks that four processes were killed while running, and of those behind them.
    """

    def failed() -> set[int]:
        dead = {number_of(raw) for raw in fleet.client.zrange("dead", 0, -1)}
        return dead.union(*(behind[number] for number in dead))

    eventually(lambda: stage.tail.look().ended >= stage.expected - failed(), PATIENCE_SECONDS, every_seconds=0.2)
    eventually(
        lambda: not fleet.client.llen("queue:celery") and not fleet.in_flight, PATIENCE_SECONDS, every_seconds=0.1
    )
    return failed()


def _is_at_work(fleet: Fleet, worker: SidekiqProcess) -> bool:
    if not worker.is_running:
        raise RuntimeError(f"the worker ended; its log:\n{worker.log_tail()}")
    return not fleet.client.llen("queue:celery") or any(
        fleet.in_flight_of(pid) for pid in (worker.pid, *children_of(worker.pid))
    )


def celery_worker(stage: Stage, fleet: Fleet, pool: str) -> SidekiqProcess:
    """Start a worker that runs the steps."""
    words = command("-A", "kill_report.programs.tasks", "worker", "-P", pool, "-c", "3", "-l", "WARNING")
    known = environment(LEDGER=str(stage.ledger.path))
    worker = SidekiqProcess(words, redis_url=fleet.redis_url, environment=known).start()
    stage.exits.callback(_end, worker)
    return worker


def _end(worker: SidekiqProcess) -> None:
    if worker.is_running:
        Stage.end_tree(worker.pid)
        worker.wait()


def start_workflows(stage: Stage, app: Celery, count: int) -> dict[int, set[int]]:
    """Start chords and chains. Returns, by the number of each task, the numbers of those that wait for its success."""
    behind: dict[int, set[int]] = {}

    def step(number: int) -> object:
        stage.expected.add(number)
        return app.signature("step", (number, stage.draw.choice([0, 0.001, 0.003])), immutable=True)

    for place in range(count):
        first = len(stage.expected)
        numbers = range(first, first + PARTS)
        if place % 2:
            chain([step(number) for number in numbers], app=app).apply_async()
            behind |= {number: set(numbers[at + 1 :]) for at, number in enumerate(numbers)}
        else:
            body = first + PARTS
            chord([step(number) for number in numbers], step(body), app=app).apply_async()
            behind |= {number: {body} for number in numbers} | {body: set()}
    return behind


def periodic(stage: Stage) -> set[int]:
    """Workers fire a tick every second, and usually the one that fires is killed. Each tick must fire once."""
    fleet = stage.fleet()
    ticks = stage.folder / "ticks"
    ticks.touch()
    pool = Pool(RedisSettings(fleet.redis_url))

    def start() -> WorkerProcess:
        known = {"TICKS": str(ticks)}
        worker = WorkerProcess(
            "kill_report.programs.timetable", redis_url=fleet.redis_url, arguments=["-q", "ticks"], environment=known
        ).start()
        stage.exits.callback(worker.stop)
        return worker

    workers = [start() for _ in range(3)]
    eventually(lambda: store.runs(pool, TICK_KEY))
    until = time.monotonic() + max(5.0, TICK_SECONDS * stage.scale)
    while time.monotonic() < until:
        time.sleep(stage.draw.uniform(0.3, 2))
        holder = fleet.client.get("sidekiq_py:poller") or b""
        firing = [worker for worker in workers if f":{worker.pid}:".encode() in holder]
        victim = stage.draw.choice(firing or workers)
        stage.kill(victim.pid, "worker that fires periodic jobs" if firing else "worker with threads")
        victim.wait()
        workers[workers.index(victim)] = start()
    stopped_at = int(time.time())
    eventually(lambda: store.runs(pool, TICK_KEY)[0].tick >= stopped_at + 1)
    runs = store.runs(pool, TICK_KEY)
    eventually(lambda: _all_ran({run.jid for run in runs if run.jid and run.tick <= stopped_at}, ticks))
    fired = sorted(run.tick for run in runs)
    stage.jobs_in_batches += len(fired)
    stage.notes["ticks"] += len(fired)
    stage.notes["ticks whose run a kill cut off, and which ran again"] += sum(
        count - 1 for count in Counter(ticks.read_text().split()).values()
    )
    stage.wrong += [
        f"ticks {one} and {two} follow each other" for one, two in itertools.pairwise(fired) if two != one + 1
    ]
    return set()


def _all_ran(jids: set[str], ticks: Path) -> bool:
    return jids <= set(ticks.read_text().split())


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("celery-threads", "Chains and chords of the Celery API, `-P threads`", celery_threads, 4),
    ("celery-prefork", "Chains and chords of the Celery API, `-P prefork`", celery_prefork, 4),
    ("periodic", "Periodic jobs", periodic, 3),
]
