"""The environment of a round: servers, workers, numbered jobs, and records of the faults."""

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from kill_report.books import Excuse, Incidents, Verdict, judge
from kill_report.stalls import stalls, stalls_noted, waits
from tests.kill.conftest import Fleet, KillWorker
from tests.support.ledger import ENDED, STARTED, Ledger, job_text, number_of, push_jobs, stock
from tests.support.process_states import children_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

Choice = TypeVar("Choice")

PATIENCE_SECONDS = 240.0
_NUMBER = re.compile(rb'"args":\[(\d+)')


class Tail:
    """Tracks the progress of a ledger's jobs. It reads incrementally, as the ledger of a long round has megabytes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self.started: set[int] = set()
        self.ended: set[int] = set()
        self.pids: set[int] = set()

    def look(self) -> "Tail":
        """Read what was added to the ledger."""
        lines = (self._rest + self._file.read()).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            event, number, pid = line.split()[:3]
            if event == STARTED.encode():
                self.started.add(int(number))
                self.pids.add(int(pid))
            elif event == ENDED.encode():
                self.ended.add(int(number))
        return self

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Stage:
    """
    The environment of one round, which ends when *exits* is closed.

    Args:
        folder: The folder for ledgers and logs.
        draw: The source of everything random.
        scale: A factor for the numbers of jobs and faults; 1 is a round of a campaign, and tests use a tiny one.
        number: The round's number in its campaign, from 0.

    Attributes:
        faults: The number of faults so far, by kind.
        kinds: The kind of each killed process.
        notes: Other counts.
        dropped: The number of jobs that Redis has forgotten, by reason.
        expected: The numbers of the jobs that were enqueued.
        booms: The numbers of the jobs that fail for good.
        jobs_in_batches: The number of jobs that are accounted for elsewhere than in the ledger.
        wrong: What was wrong in those accounts.
    """

    def __init__(self, folder: Path, draw: random.Random, scale: float, number: int, exits: ExitStack) -> None:
        self.folder = folder
        self.draw = draw
        self.scale = scale
        self.number = number
        self.exits = exits
        self.incidents = Incidents()
        self.faults: Counter[str] = Counter()
        self.kinds: dict[int, str] = {}
        self.notes: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.servers: list[str] = []
        self.expected: set[int] = set()
        self.booms: set[int] = set()
        self.jobs_in_batches = 0
        self.wrong: list[str] = []
        self.ledger = Ledger(folder / "ledger")
        self.tail = Tail(self.ledger.path)
        exits.callback(self.tail.close)
        self._stalls = folder / "stalls"
        exits.enter_context(stalls_noted(self._stalls))

    # ---- the environment

    def scaled(self, count: int) -> int:
        """A number of jobs or faults at this scale; at least one."""
        return max(1, round(count * self.scale))

    def turn(self, choices: Sequence[Choice]) -> Choice:
        """The choice whose turn it is in this round; a complete campaign has used each one."""
        return choices[self.number % len(choices)]

    def start_redis(self, **options: Any) -> RedisServer:
        """Start a server for this round; options are those of `RedisServer`."""
        server = self.exits.enter_context(RedisServer(**options))
        self.servers.append(str(server.program))
        return server

    def client(self, server: RedisServer) -> redis.Redis:
        """A client to push and inspect jobs; it survives restarts of the server."""
        patience = Retry(ConstantBackoff(0.05), 200)
        client = server.client(retry=patience, retry_on_error=[redis.ConnectionError], socket_timeout=30)
        self.exits.callback(client.close)
        return client

    def fleet(self, server: RedisServer | None = None, worker_url: str = "") -> Fleet:
        """Workers of `tests.support.kill_worker`, whose deaths are recorded in this round."""
        found = server or self.start_redis()
        fleet = Fleet(found.url, self.client(found), self.ledger, self.exits, worker_url)
        fleet.deaths = self.incidents.deaths
        return fleet

    # ---- jobs

    def push(self, fleet: Fleet, count: int, classes: Iterable[str] = ("tick", "tick", "tick", "boom")) -> None:
        """Push short jobs of these classes; one in ten is scheduled, and one in five goes to the queue `low`."""
        choices = list(classes)
        first = len(self.expected)
        texts: dict[str, list[str]] = {"default": [], "low": []}
        scheduled: dict[str, float] = {}
        for number in range(first, first + count):
            kind = self.draw.choice(choices)
            queue = "low" if self.draw.random() < 0.2 else "default"
            # A failure is final here, because the first retry would only be due after 15 seconds.
            more = {}
            if kind == "boom":
                more["retry"] = 0
                self.booms.add(number)
            text = job_text(number, kind, [self.draw.choice([0, 0, 0.001, 0.003])], queue, **more)
            if self.draw.random() < 0.1:
                scheduled[text] = time.time() + self.draw.uniform(0, 1)
            else:
                texts[queue].append(text)
        if scheduled:
            fleet.client.zadd("schedule", scheduled)
        for queue, found in texts.items():
            if found:
                push_jobs(fleet.client, found, queue)
        self.expected |= set(range(first, first + count))

    def push_long(self, fleet: Fleet, count: int, seconds: float) -> None:
        """Push jobs that are long enough for a kill to cut them off."""
        first = len(self.expected)
        push_jobs(fleet.client, [job_text(number, "tick", [seconds]) for number in range(first, first + count)])
        self.expected |= set(range(first, first + count))

    # ---- faults

    def kill(self, pid: int, kind: str) -> None:
        """Send SIGKILL to a process."""
        self.incidents.deaths[pid] = time.monotonic()
        self.kinds[pid] = kind
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.faults[f"SIGKILL: {kind}"] += 1

    def kill_tree(self, pid: int, kind: str) -> None:
        """Kill a parent and its children as one fault; the parent first, so that it does not notice their deaths."""
        children = children_of(pid)
        self.kill(pid, kind)
        for child in children:
            self.kinds[child] = kind
            # It is one fault, so all get the same time.
            self.incidents.deaths[child] = self.incidents.deaths[pid]
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    @staticmethod
    def end_tree(pid: int) -> None:
        """Kill a process and its children at the end of a round, when no job is waited for."""
        for one in (*children_of(pid), pid):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)

    def excuse(self, pid: int | None, begin: float, until: float, why: str) -> None:
        """Record a reason why jobs may run twice."""
        self.incidents.excuses.append(Excuse(pid, begin, until, why))

    # ---- the end

    def wait_until_done(self, fleet: Fleet) -> None:
        """
        Wait until no job is scheduled, queued or in flight.

        Raises:
            AssertionError: No job has finished for a long time. Even on a busy machine, some do.
        """
        client = fleet.client
        ended, since = -1, time.monotonic()
        while client.llen("queue:default") + client.llen("queue:low") + client.zcard("schedule") or not fleet.is_done:
            if (now_ended := len(self.tail.look().ended)) != ended:
                ended, since = now_ended, time.monotonic()
            if time.monotonic() - since > PATIENCE_SECONDS:
                raise AssertionError(f"no job has ended for {PATIENCE_SECONDS} s; {ended} of {len(self.expected)} have")
            time.sleep(0.1)

    def standing(self, client: redis.Redis) -> set[int]:
        """The numbers of the jobs that are in Redis."""
        return {number_of(raw) for jobs in stock(client).values() for raw in jobs}

    def missing(self, standing: set[int]) -> set[int]:
        """The numbers of the jobs that neither finished nor are in Redis."""
        return self.expected - self.tail.look().ended - standing

    def drop(self, numbers: set[int], why: str) -> None:
        """Count jobs as forgotten by Redis, and not as lost."""
        if numbers:
            self.dropped[why] += len(numbers)
        self.expected -= numbers

    def verdict(self, standing: set[int]) -> Verdict:
        """Settle the accounts."""
        self.incidents.stalls, self.incidents.waits = stalls(self._stalls), waits(self._stalls)
        if self.incidents.stalls:
            self.notes["the machine stood still, times"] = len(self.incidents.stalls)
        return judge(self.ledger.runs(), self.expected, standing, self.incidents)


def at_work(fleet: Fleet, workers: Iterable[KillWorker], draw: random.Random) -> KillWorker:
    """Choose one of the workers, usually one that has jobs in flight."""
    choices = list(workers)
    if draw.random() < 0.15:
        return draw.choice(choices)

    def busy() -> list[KillWorker]:
        return [worker for worker in choices if fleet.in_flight_of(worker.pid)]

    return draw.choice(
        eventually(lambda: busy() or (_is_idle(fleet) and choices), PATIENCE_SECONDS, every_seconds=0.05)
    )


def _is_idle(fleet: Fleet) -> bool:
    return not fleet.client.llen("queue:default")


def numbers_in_log(folder: Path) -> set[int]:
    """The number of every job that a server has ever written to its append-only log."""
    logs = [path for path in folder.rglob("*.aof*") if path.is_file()]
    return {int(number) for path in logs for number in _NUMBER.findall(path.read_bytes())}


Play = Callable[[Stage], set[int]]
"""Runs a round of a campaign. Returns the numbers of the jobs that are in Redis at the end."""
