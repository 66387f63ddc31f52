"""
Batches of a night in which workers, the processes that open them, and Redis are killed, and the books of the morning.

Killed are processes at random moments, or each at a step of a batch's way that was drawn for it.
"""

import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import Batches, Queue
from sidekiq_py.errors import RedisError
from sidekiq_py.extensions.batches import audit, ruby_runs
from sidekiq_py.extensions.batches.state import BatchStatus
from sidekiq_py.redis_access.connection.pool import Pool
from tests.support.batch_program import AFTER_CALLBACK, CALLBACKS, IN_CALLBACK, MOMENTS, OPENING, RUNNING
from tests.support.in_flight import jobs_in_flight
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, SidekiqProcess, WorkerProcess

WORKERS = 2
KILLED = -9
# Batches that one process opens where each is given a step to die at.
BATCHES_OF_AN_OPENER = 5
RUBY_MOMENTS = ("before", "after")
RUBY_OPENING = ("open", "reserve", "add", "leave")
RUBY_RUNNING = ("start", "perform", "finish", "working", "callback")

Start = Callable[[Mapping[str, str]], SidekiqProcess]
OpenerCommand = Callable[[list[str], Mapping[str, str]], subprocess.Popen[bytes]]


@dataclass(frozen=True)
class RubySide:
    """
    How Ruby's processes are started; `ruby_fixtures/batch_ledger.rb` is their program.

    Args:
        worker: A worker of the queue `ruby`, with these environment variables.
        opener: A process that opens batches: its arguments, the environment.
    """

    worker: Start
    opener: OpenerCommand


@dataclass
class Worker:
    """One that runs, and the step at which it is to die."""

    language: str
    process: SidekiqProcess
    fault: str


class Night:
    """
    Workers and an opener on one Redis, and those who kill them.

    Args:
        batches: To open, of so many *jobs*.
        is_stepped: Processes die at steps that are drawn; else at any moment.
        ruby: Ruby has a part in it.

    Attributes:
        kills: By what was killed.
        steps: At which processes died, by language, step and moment.
    """

    def __init__(
        self,
        server: RedisServer,
        exits: ExitStack,
        folder: Path,
        batches: int,
        jobs: int,
        seed: int,
        *,
        is_stepped: bool = False,
        ruby: RubySide | None = None,
    ) -> None:
        self.server = server
        self.batches = batches
        self.jobs = jobs
        self.draw = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.said = folder / "opened"
        self.ledger = folder / "started"
        self.ledger.touch()
        self._exits = exits
        self._is_stepped = is_stepped
        self._ruby = ruby
        self._next = 0
        self.workers = [self._worker("python") for _ in range(WORKERS)]
        if ruby is not None:
            self.workers += [self._worker("ruby") for _ in range(WORKERS)]
        self.opener, self._opener_step = self._open()

    def _worker(self, language: str) -> Worker:
        known, fault = {"BATCH_LEDGER": str(self.ledger)}, ""
        if self._is_stepped:
            fault = self._worker_fault(language)
            known["BATCH_FAULT"] = fault
        if language == "ruby":
            assert self._ruby is not None
            process = self._ruby.worker(known)
        else:
            arguments = ["-c", "4", "-q", "default"]
            process = WorkerProcess(
                "tests.support.batch_program", redis_url=self.server.url, arguments=arguments, environment=known
            )
        process.start()
        self._exits.callback(process.kill)
        return Worker(language, process, fault)

    def _worker_fault(self, language: str) -> str:
        if language == "ruby":
            step = self.draw.choice(RUBY_RUNNING)
            nth = 1 if step == "callback" else self.draw.randint(1, 300)
            return f"{step} {self.draw.choice(RUBY_MOMENTS)} {nth}"
        step = self.draw.choice([*RUNNING, IN_CALLBACK, AFTER_CALLBACK])
        nth = self.draw.randint(1, {"succeed": 60, "working": 300}.get(step, 2))
        return f"{step} {self.draw.choice(MOMENTS)} {nth}"

    def _open(self) -> tuple[subprocess.Popen[bytes], str]:
        words = [str(self._next), str(self.batches - self._next), str(self.jobs)]
        fault, language = "", "python"
        if self._ruby is not None and self.draw.random() < 0.5:
            language = "ruby"
        known: dict[str, str] = {"BATCH_LEDGER": str(self.ledger)}
        if self._is_stepped:
            words[1] = str(min(BATCHES_OF_AN_OPENER, self.batches - self._next))
            steps, moments = (RUBY_OPENING, RUBY_MOMENTS) if language == "ruby" else (tuple(OPENING), MOMENTS)
            fault = f"{self.draw.choice(steps)} {self.draw.choice(moments)} {self.draw.randint(1, 8)}"
            known["BATCH_FAULT"] = fault
        if language == "ruby":
            assert self._ruby is not None
            opener = self._ruby.opener(words, known)
        else:
            words = [sys.executable, "-m", "tests.support.batch_program", self.server.url, *words]
            words += ["ruby"] if self._ruby is not None else []
            with self.said.open("a") as lines:
                opener = subprocess.Popen(
                    words, stdout=lines, stderr=subprocess.DEVNULL, cwd=REPOSITORY, env={**os.environ, **known}
                )
        self._exits.callback(opener.wait)
        self._exits.callback(opener.kill)
        return opener, f"{language} opener: {_step_of(fault)}"

    @property
    def is_open(self) -> bool:
        """Not all batches were opened yet; one whose opener was killed is left as it is."""
        if self.opener.poll() is None:
            return True
        # What it said, and the one at which it was killed. Ruby's logger may have a say between.
        words = [line.split(maxsplit=1)[0] for line in self.said.read_text().splitlines() if line.strip()]
        numbers = [int(word) for word in words if word.isdigit()]
        self._next = max([self._next, *(number + 1 for number in numbers)])
        if self.opener.returncode != 0:
            self._next += 1
            if self._is_stepped and self.opener.returncode == KILLED:
                self.kills["opener"] += 1
                self.steps[self._opener_step] += 1
        if self._next >= self.batches:
            return False
        self.opener, self._opener_step = self._open()
        return True

    def go_on(self) -> None:
        """Open some more batches: too few have died yet."""
        self.batches += BATCHES_OF_AN_OPENER

    def replace_the_dead(self) -> None:
        """Those who have come to the step at which they were to die."""
        for at, one in enumerate(self.workers):
            if not one.process.is_running:
                self.kills[f"{one.language} worker"] += 1
                self.steps[f"{one.language} worker: {_step_of(one.fault)}"] += 1
                self.workers[at] = self._worker(one.language)

    def kill_one(self, *, kills_redis: bool) -> None:
        """A worker, the opener, or Redis."""
        what = self.draw.choices(["worker", "opener", "redis"], [5, 5, 1 if kills_redis else 0])[0]
        if what == "worker":
            at = self.draw.randrange(len(self.workers))
            one = self.workers[at]
            one.process.kill()
            self.workers[at] = self._worker(one.language)
            what = f"{one.language} worker"
        elif what == "opener":
            if self.opener.poll() is not None:
                return
            self.opener.kill()
            self.opener.wait()
        else:
            self.kill_redis()
            return
        self.kills[what] += 1

    def kill_redis(self) -> None:
        """It comes back with all that it had said was done."""
        self.server.restart(kill=True)
        self.kills["redis"] += 1

    def end(self) -> None:
        """From now on nobody dies: Ruby's workers are put in the place of those that may have kept marks of jobs."""
        self._is_stepped = False
        for at, one in enumerate(self.workers):
            if one.fault or one.language == "ruby":
                one.process.kill()
                self.workers[at] = self._worker(one.language)


def _step_of(fault: str) -> str:
    return " ".join(fault.split()[:2])


def forget_beats_of_the_dead(client: redis.Redis) -> None:
    """What Redis does with the heartbeat of a Ruby process a minute after its death."""
    for identity in client.smembers("sidekiq_py:batches:ruby"):
        if not Path(f"/proc/{identity.decode().split(':')[1]}").exists():
            client.delete(identity)


def is_idle(client: redis.Redis) -> bool:
    """Nothing is queued but callbacks, nothing is in flight or run by Ruby, nothing waits."""
    for _ in range(3):
        if any(client.llen(f"queue:{name}") for name in ("default", "ruby")):
            return False
        if client.zcard("retry") or client.zcard("schedule"):
            return False
        identities = client.smembers("sidekiq_py:batches:ruby")
        if any(client.hlen(f"sidekiq_py:batches:ruby:{identity.decode()}") for identity in identities):
            return False
        owners = {*client.hkeys("sidekiq_py:owners"), *client.hkeys("sidekiq_py:departed")}
        if any(jobs_in_flight(client, owner.decode()) for owner in owners):
            return False
    return True


class Morning:
    """
    The books of a night.

    Attributes:
        left_open: Batches that a killed process has left open, closed by hand here.
        books: What stands in Redis, by batch.
        callbacks: How often each was enqueued, by batch and event.
        wrong: What does not add up.
    """

    def __init__(self, night: Night, client: redis.Redis, pool: Pool, within_seconds: float) -> None:
        runs, look = ruby_runs.RubyRuns(away_seconds=0.05), audit.Audit(quiet_seconds=-1)

        def is_over() -> bool:
            try:
                forget_beats_of_the_dead(client)
                runs.run(pool)
                return is_idle(client)
            except (redis.RedisError, RedisError):
                return False

        def is_audited() -> bool:
            look.run(pool)
            return is_over() and not any(audit.waiting_numbers(pool, one.bid) for one in Batches())

        eventually(is_over, within_seconds, every_seconds=0.2)
        left_open = list(Batches().in_state("open"))
        for status in left_open:
            sidekiq.Batch.find(status.bid).close()
        eventually(is_over, within_seconds, every_seconds=0.2)
        # What Ruby's BRPOP has lost.
        eventually(is_audited, within_seconds, every_seconds=0.2)
        self.left_open = len(left_open)
        self.books = {status.bid: status for status in Batches()}
        self.callbacks = Counter((job.args[0], job.args[1]) for job in Queue(CALLBACKS))
        unhappy = {status.bid for status in self.books.values() if status.pending}
        unhappy |= {one.parent_bid for one in self.books.values() if one.bid in unhappy and one.parent_bid}
        started = started_members(night.ledger)
        self.wrong = [
            text
            for status in self.books.values()
            for text in (
                *found_wrong(status, client, self.callbacks, ended=status.bid not in unhappy),
                *found_wrong_in_ledger(status, client, started[status.bid]),
            )
        ]
        self.is_happy = not unhappy

    @property
    def children(self) -> int:
        """How many of the batches are in another one."""
        return sum(1 for status in self.books.values() if status.parent_bid)

    @property
    def jobs(self) -> int:
        """Of all batches."""
        return sum(status.total for status in self.books.values())

    @property
    def lost(self) -> int:
        """Jobs that the audit has named."""
        return sum(status.lost for status in self.books.values())


def started_members(ledger: Path) -> dict[str, dict[int, set[str]]]:
    """In which languages members have begun to run, by batch and number: what the jobs themselves have noted."""
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in ledger.read_text().splitlines():
        bid, number, language = line.split()
        found[bid][int(number)].add(language)
    return found


def members_in(client: redis.Redis, bid: str, state: str) -> set[int]:
    """The numbers of the members that Redis names with this state."""
    key = f"sidekiq_py:batch:{bid}:members"
    return {int(number) for number, text in client.hscan_iter(key) if text.startswith(f"{state}:".encode())}


def succeeded_members(client: redis.Redis, bid: str) -> Iterator[int]:
    """The numbers of those that have succeeded."""
    for place, byte in enumerate(client.get(f"sidekiq_py:batch:{bid}:succeeded") or b""):
        yield from (8 * place + bit for bit in range(8) if byte & (128 >> bit))


def found_wrong_in_ledger(status: BatchStatus, client: redis.Redis, started: Mapping[int, set[str]]) -> list[str]:
    """
    What Redis says of a batch's members that they themselves have not. One that Ruby has begun may be lost: its process
    was killed, it went back to its queue, and the next process was killed between BRPOP and the mark.
    """
    lost, succeeded = members_in(client, status.bid, "lost"), set(succeeded_members(client, status.bid))
    lost_by_python = {number for number in lost if "python" in started.get(number, ())}
    wrong = []
    if succeeded - started.keys():
        wrong.append(f"members {sorted(succeeded - started.keys())[:10]} succeeded and never ran")
    if lost_by_python:
        wrong.append(f"members {sorted(lost_by_python)[:10]} are lost, and Python has run them")
    if len(lost) != status.lost:
        wrong.append(f"{status.lost} are lost, and {len(lost)} named")
    return [f"{status!r}: {what}" for what in wrong]


def found_wrong(
    status: BatchStatus, client: redis.Redis, callbacks: Counter[tuple[str, str]], ended: bool
) -> list[str]:
    """What does not add up in the books of one batch."""
    key = f"sidekiq_py:batch:{status.bid}"
    succeeded = client.bitcount(f"{key}:succeeded")
    wrong = []
    if status.total - status.pending != succeeded:
        wrong.append(f"{status.total - status.pending} counted as succeeded, {succeeded} have")
    if audit.waiting_numbers(status.pool, status.bid):
        wrong.append("members wait that are nowhere")
    if status.pending != status.dead + status.failures + status.lost:
        wrong.append(f"{status.pending} pending, {status.dead} dead, {status.failures} failed, {status.lost} lost")
    if not status.complete:
        wrong.append("no complete")
    if status.jobs is not None:
        rows = {state: count for state, count in status.jobs.counts().items() if count}
        ends = {"finished": succeeded, "dead": status.dead, "error": status.failures, "lost": status.lost}
        if rows != {state: count for state, count in ends.items() if count}:
            wrong.append(f"rows say {rows}, and the books {ends}")
    if status.success != ended:
        wrong.append(f"success: {status.success}, though {ended}")
    if status.parent_bid is None:
        expected = {"complete": 1, "success": int(status.success), "death": int(status.death_at is not None)}
        for event, count in expected.items():
            if callbacks[status.bid, event] != count:
                wrong.append(f"{event} was enqueued {callbacks[status.bid, event]} times, not {count}")
    return [f"{status!r}: {what}" for what in wrong]
