"""Processes of every kind are killed at random while they run jobs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

from kill_report.stage import PATIENCE_SECONDS, Stage, at_work
from tests.kill.conftest import Fleet, KillWorker
from tests.support.ports import free_port
from tests.support.process_states import children_of
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, WorkerProcess

WORKERS = 3
KILLS = 20
JOBS_PER_KILL = 1000
# Three workers run this many within the second or two that the next one needs to start.
JOBS_PER_KILL_OF_A_WORKER = 3500
QUEUES = [["default", 2], ["low", 1]]
CHILDREN = 3


def finish(stage: Stage, fleet: Fleet) -> set[int]:
    """Wait for the remaining jobs. Returns the numbers of the jobs that are in Redis."""
    stage.wait_until_done(fleet)
    return stage.standing(fleet.client)


def threads(stage: Stage) -> set[int]:
    """Three workers with five threads; one of them is killed and replaced repeatedly."""
    return _workers(stage, "worker with threads", ["tick", "tick", "tick", "boom"])


def event_loops(stage: Stage) -> set[int]:
    """The same with `async def` jobs, a hundred on each event loop."""
    return _workers(stage, "worker with an event loop", ["atick", "atick", "atick", "tick"], has_async_jobs=True)


def _workers(stage: Stage, kind: str, classes: list[str], **settings: object) -> set[int]:
    fleet = stage.fleet()
    fleet.defaults = {"queues": QUEUES, **settings}
    workers = [fleet.start(wait=False) for _ in range(WORKERS)]
    for _ in range(stage.scaled(KILLS)):
        stage.push(fleet, stage.scaled(JOBS_PER_KILL_OF_A_WORKER), classes)
        victim = at_work(fleet, workers, stage.draw)
        time.sleep(stage.draw.uniform(0, 0.1))
        stage.kill(victim.pid, kind)
        victim.wait()
        workers[workers.index(victim)] = fleet.start(wait=False)
    return finish(stage, fleet)


def children(stage: Stage) -> set[int]:
    """Children of `--processes 3`, which their parent replaces, are killed; sometimes two at a time."""
    fleet = stage.fleet()
    parent = _parent(fleet)
    for _ in range(stage.scaled(KILLS)):
        stage.push(fleet, stage.scaled(JOBS_PER_KILL))
        family = eventually(lambda: _busy_children(fleet, parent), PATIENCE_SECONDS, every_seconds=0.02)
        for victim in stage.draw.sample(family, min(len(family), 2 if stage.draw.random() < 0.2 else 1)):
            stage.kill(victim, "child of --processes")
    found = finish(stage, fleet)
    if not parent.is_running:
        raise AssertionError(f"the parent ended; its log:\n{parent.log_tail()}")
    return found


def parents(stage: Stage) -> set[int]:
    """The parent is killed alone, and its children finish their jobs; or with them, as by a machine's OOM killer."""
    fleet = stage.fleet()
    other = _parent(fleet)
    parent = _parent(fleet)
    for number in range(stage.scaled(KILLS // 2)):
        stage.push(fleet, stage.scaled(2 * JOBS_PER_KILL))
        eventually(lambda parent=parent: _busy_children(fleet, parent), PATIENCE_SECONDS, every_seconds=0.02)
        time.sleep(stage.draw.uniform(0, 0.1))
        if number % 2:
            stage.kill(parent.pid, "parent of --processes alone")
        else:
            stage.kill_tree(parent.pid, "parent and children together")
        parent.wait()
        other, parent = _parent(fleet), other
    return finish(stage, fleet)


def _parent(fleet: Fleet) -> KillWorker:
    return fleet.start(wait=False, processes=CHILDREN, concurrency=3, queues=QUEUES)


def _busy_children(fleet: Fleet, parent: KillWorker) -> list[int]:
    if not parent.is_running:
        raise RuntimeError(f"the parent ended; its log:\n{parent.log_tail()}")
    family = [pid for pid in children_of(parent.pid) if fleet.in_flight_of(pid)]
    return family or (not fleet.waiting and children_of(parent.pid)) or []


def sidecars(stage: Stage) -> set[int]:
    """The process that answers probes is killed, in a worker started from the command line as users do."""
    fleet = stage.fleet()
    worker = WorkerProcess(
        "kill_report.programs.jobs",
        redis_url=fleet.redis_url,
        arguments=["-c", "3", "--processes", "2", "--probe-port", str(free_port()), "-q", "default,2", "-q", "low,1"],
        environment={"LEDGER": str(stage.ledger.path)},
    ).start()
    stage.exits.callback(_end_tree, worker)
    worker.wait_until_ready(processes=2, within_seconds=PATIENCE_SECONDS)
    for _ in range(stage.scaled(KILLS // 2)):
        stage.push(fleet, stage.scaled(JOBS_PER_KILL), ["tick"])
        [victim] = eventually(lambda: _sidecar(fleet, worker), PATIENCE_SECONDS, every_seconds=0.05)
        stage.kill(victim, "sidecar of --processes")
        eventually(
            lambda victim=victim: _sidecar(fleet, worker) not in (None, [victim]), PATIENCE_SECONDS, every_seconds=0.05
        )
    return finish(stage, fleet)


def _sidecar(fleet: Fleet, worker: WorkerProcess) -> list[int] | None:
    """The one child that owns no jobs, once the two others do."""
    family = children_of(worker.pid)
    without = [pid for pid in family if not fleet.owners_of(pid)]
    return without if len(family) == 3 and len(without) == 1 else None


def _end_tree(worker: WorkerProcess) -> None:
    if worker.is_running:
        Stage.end_tree(worker.pid)
        worker.wait()


def enqueuers(stage: Stage) -> set[int]:
    """Programs push one by one, in bulk, scheduled and awaited, and are killed; every confirmed job must run."""
    fleet = stage.fleet()
    for _ in range(2):
        fleet.start(wait=False, queues=QUEUES)
    for number in range(stage.scaled(KILLS)):
        _enqueue_until_killed(stage, fleet, "async" if number % 2 else "sync")
    return finish(stage, fleet)


def _enqueue_until_killed(stage: Stage, fleet: Fleet, mode: str) -> None:
    report_file = stage.folder / "told"
    report_file.touch()
    first = 10_000_000 * (1 + stage.faults.total())
    command = [
        sys.executable,
        "-m",
        "kill_report.programs.enqueuer",
        fleet.redis_url,
        str(report_file),
        mode,
        str(first),
    ]
    enqueuer = subprocess.Popen(command, cwd=REPOSITORY)
    try:
        eventually(lambda: _acknowledged(report_file, first), 60)
        time.sleep(stage.draw.uniform(0.0, 0.3))
    finally:
        enqueuer.kill()
        enqueuer.wait()
    stage.faults[f"SIGKILL: enqueuer ({mode})"] += 1
    acknowledged = _acknowledged(report_file, first)
    tried = {int(line.split()[1]) for line in report_file.read_text().splitlines() if line.startswith("tries")}
    stage.notes["jobs whose enqueuer was killed before it knew"] += len({n for n in tried if n >= first} - acknowledged)
    stage.expected |= acknowledged


def _acknowledged(report_file: "os.PathLike[str]", first: int) -> set[int]:
    with open(report_file) as lines:
        numbers = {int(line.split()[1]) for line in lines if line.startswith("knows")}
    return {number for number in numbers if number >= first}


def recovery(stage: Stage) -> set[int]:
    """One process at a time is killed while others are busy; the next one once all its jobs have started again."""
    fleet = stage.fleet()
    fleet.defaults = {"queues": QUEUES}
    single_workers = [fleet.start(wait=False) for _ in range(2)]
    parent = _parent(fleet)
    for number in range(stage.scaled(KILLS)):
        pids = [worker.pid for worker in single_workers]
        eventually(lambda pids=pids: _are_at_work(stage, fleet, pids, parent), PATIENCE_SECONDS, every_seconds=0.1)
        family = _busy_children(fleet, parent)
        time.sleep(stage.draw.uniform(0.1, 0.4))
        if number % 2:
            victim = stage.draw.choice(family)
            stage.kill(victim, "child of --processes, others at work")
        else:
            victim = single_workers[0].pid
            stage.kill(victim, "worker with threads, others at work")
            single_workers[0].wait()
        eventually(lambda victim=victim: _began_again(stage, victim), PATIENCE_SECONDS, every_seconds=0.1)
        if not number % 2:
            single_workers = [single_workers[1], fleet.start()]
    return finish(stage, fleet)


def _are_at_work(stage: Stage, fleet: Fleet, pids: list[int], parent: KillWorker) -> bool:
    """Whether all of them are busy. As some start later than others, they are given jobs until then."""
    if fleet.waiting < 20:
        stage.push_long(fleet, 20, 0.5)
    return all(fleet.in_flight_of(pid) for pid in pids) and bool(_busy_children(fleet, parent))


def _began_again(stage: Stage, victim: int) -> bool:
    runs = stage.ledger.runs_by_number().values()
    return all(found[-1].pid != victim or found[-1].end is not None for found in runs)


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("threads", "Workers with threads", threads, 8),
    ("recovery", "One process at a time, others at work", recovery, 4),
    ("event-loops", "Workers with an event loop", event_loops, 4),
    ("children", "Children of `--processes`", children, 6),
    ("parents", "Parents of `--processes`, alone and with all their children", parents, 5),
    ("sidecars", "The sidecar of `--processes`", sidecars, 2),
    ("enqueuers", "Programs that enqueue", enqueuers, 3),
]
