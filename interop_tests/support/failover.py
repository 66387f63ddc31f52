"""
A failover in the middle of 2,000 jobs, with a producer and a worker in each language connected through a sentinel; for
the tests and for `kill_report`.

Replication is asynchronous: Redis loses what the old primary had acknowledged but not replicated, and no client can
prevent that. The new primary logs everything it ever received (in its append-only file), so jobs that Redis dropped are
counted separately from jobs that a worker lost.
"""

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import sleep

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

import sidekiq_py as sidekiq
from interop_tests.support.ruby import RubyRelease, RubySidekiq, run_ruby
from sidekiq_py.errors import PushOutcomeUnknownError, RedisError
from tests.support.ledger import ENDED, STARTED, Ledger, number_of, stock
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

JOBS = 2_000
# For the jobs of each producer. Ruby runs the even numbers and Python the odd ones, so each is accountable for its own.
FAIL_OVER_AFTER = 200
# About 15 seconds for all jobs: an old primary that is still alive becomes a replica after ten.
PAUSE_SECONDS = 0.014
# A dead primary blocks everything immediately, and three seconds later its replica accepts writes.
PAUSE_BEFORE_A_CRASH_SECONDS = 0.007
QUEUES = ("ruby", "python")
# So many of each producer's jobs wait for the new primary, which may come late on a busy machine.
LAST = 50
# Pushed when the replica no longer receives anything.
UNREPLICATED = range(JOBS, JOBS + 100)

# Long enough for everything that the sentinel does.
PATIENCE_SECONDS = 90.0

_PAYLOAD = re.compile(rb'"class":"TickJob","args":\[(\d+)\]|"args":\[(\d+)\],"class":"TickJob"')

PUSH_IN_RUBY = """
acknowledged, doubtful = [], []
numbers.each do |number|
  begin
    queue = number.even? ? "ruby" : "python"
    Sidekiq::Client.push("class" => "TickJob", "args" => [number], "queue" => queue)
    acknowledged << number
  rescue StandardError
    doubtful << number
    sleep(0.2)
  end
  sleep(pause)
end
[acknowledged, doubtful]
"""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A producer's jobs: those that were acknowledged, and those whose outcome is unknown."""

    acknowledged: set[int]
    doubtful: set[int]


@dataclass(frozen=True, slots=True)
class Books:
    """
    What happened to the jobs that were acknowledged.

    Args:
        ran: The jobs that finished at least once.
        again: The jobs that ran more than once.
        dropped: The jobs that never ran, and that the new primary never received: Redis forgot them.
        lost_by_ruby: The jobs that never ran and are nowhere, although the new primary had them: BRPOP took them, and
            the reply was cut off.
        lost_by_python: The same for the jobs that Python should run.
        doubtful: The jobs that were not acknowledged; *doubtful_ran* of them ran anyway.
    """

    acknowledged: int
    ran: int
    again: int
    dropped: int
    lost_by_ruby: int
    lost_by_python: int
    doubtful: int
    doubtful_ran: int

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)


class Stage:
    """Two servers, a sentinel, and the processes that are connected to them."""

    def __init__(
        self, release: RubyRelease, new_server: Callable[..., RedisServer], folder: Path, exits: ExitStack
    ) -> None:
        self.release = release
        self.folder = folder
        self.exits = exits
        self.ledger = Ledger(folder / "ledger")
        self.pause_seconds = PAUSE_SECONDS
        self.has_failed_over = Event()
        self.primary = new_server()
        self.before = self.client_of(self.primary)
        self.before.execute_command("ACL", "SETUSER", "replica", "on", ">hush", "+@all")
        settings = {"appendfsync": "no", "aof-use-rdb-preamble": "no", "auto-aof-rewrite-percentage": "0"}
        link = {"replicaof": f"127.0.0.1 {self.primary.port}", "masteruser": "replica", "masterauth": "hush"}
        self.replica = new_server(appendonly=True, config={**settings, **link})
        self.after = self.client_of(self.replica)
        eventually(self._replicates, PATIENCE_SECONDS)
        self.sentinel = exits.enter_context(Sentinel(self.primary, folder))
        self.sentinel.wait_for_replicas()

    def client_of(self, server: RedisServer) -> redis.Redis:
        """A client to inspect a server."""
        # A server that changes its role closes all connections.
        patience = Retry(ConstantBackoff(0.05), 100)
        client = server.client(socket_timeout=10, retry=patience, retry_on_error=[redis.ConnectionError])
        self.exits.callback(client.close)
        return client

    def _replicates(self) -> bool:
        link = self.after.info("replication")["master_link_status"]
        # The log only contains what arrives after its rewrite.
        return link == "up" and self.after.info("persistence")["aof_rewrite_in_progress"] == 0

    @property
    def environment(self) -> dict[str, str]:
        """The environment for the programs in both languages."""
        return {
            "FIXTURE_SENTINEL": f"127.0.0.1:{self.sentinel.port}",
            "FIXTURE_LEDGER": str(self.ledger.path),
            "FIXTURE_SIDEKIQ_VERSION": self.release.sidekiq_version,
        }

    def start_workers(self) -> None:
        """Start one worker in each language, each with its own queue."""
        self.ruby = RubySidekiq(
            self.release,
            redis_url=self.primary.url,
            queues=["ruby"],
            program="sentinel.rb",
            log_path=self.folder / "ruby.log",
        )
        self.python = WorkerProcess(
            "interop_tests.support.tick_jobs",
            redis_url=self.primary.url,
            arguments=["-q", "python"],
            environment={"REDIS_URL": self.sentinel.url},
            log_path=self.folder / "python.log",
        )
        for worker in (self.ruby, self.python):
            self.exits.callback(worker.print_log_tail)
            self.exits.enter_context(worker)

    def part_replica(self) -> None:
        """Make the primary reject its replica from now on."""
        self.before.execute_command("ACL", "SETUSER", "replica", "off")
        self.before.client_kill_filter(_type="replica")
        eventually(lambda: self.before.info("replication")["connected_slaves"] == 0, PATIENCE_SECONDS)

    def push_in_python(self, numbers: range) -> Pushed:
        """Push one by one, and push again what was certainly not enqueued."""
        client = sidekiq.Client(self.sentinel.url, sidekiq_version=self.release.sidekiq_version)
        pushed = Pushed(set(), set())
        for number in numbers:
            if number == numbers[-LAST]:
                self.has_failed_over.wait(PATIENCE_SECONDS)
            while not self._try_to_push(client, number, pushed):
                sleep(0.2)
            sleep(self.pause_seconds)
        client.close()
        return pushed

    def _try_to_push(self, client: sidekiq.Client, number: int, pushed: Pushed) -> bool:
        try:
            client.push({"class": "TickJob", "args": [number], "queue": QUEUES[number % 2]})
        except PushOutcomeUnknownError:
            pushed.doubtful.add(number)
        except RedisError:
            return False
        else:
            pushed.acknowledged.add(number)
        return True

    def push_in_ruby(self, numbers: range) -> Pushed:
        """Push one by one. Ruby does not report whether a job may have been enqueued, so nothing is pushed again."""
        pushed = Pushed(set(), set())
        # In two halves and a rest, because a Ruby program has one minute to run.
        middle = len(numbers) // 2
        for part in (numbers[:middle], numbers[middle:-LAST], numbers[-LAST:]):
            if part[-1] == numbers[-1]:
                self.has_failed_over.wait(PATIENCE_SECONDS)
            acknowledged, doubtful = run_ruby(
                self.release,
                PUSH_IN_RUBY,
                self.primary.url,
                also=["sentinel.rb"],
                numbers=list(part),
                pause=self.pause_seconds,
            )
            pushed.acknowledged.update(acknowledged)
            pushed.doubtful.update(doubtful)
        return pushed

    def is_promoted(self) -> bool:
        """Whether the replica has been promoted."""
        return self.after.info("replication")["role"] == "master" and self.sentinel.primary_port() == self.replica.port

    def is_over(self) -> bool:
        """Whether the old primary is a replica or gone, and no job is waiting on the new one."""
        if self.primary.is_running and self.before.info("replication")["role"] == "master":
            return False
        return not any(jobs for name, jobs in stock(self.after).items() if name not in ("retry", "dead"))

    def received_jobs(self) -> set[int]:
        """Every job that the new primary has ever received."""
        logs = [path for path in self.replica.directory.rglob("*.aof*") if path.is_file()]
        return {int(first or second) for path in logs for first, second in _PAYLOAD.findall(path.read_bytes())}

    def books(self, pushed: list[Pushed]) -> Books:
        """Settle the accounts."""
        acknowledged = set().union(*(each.acknowledged for each in pushed))
        doubtful = set().union(*(each.doubtful for each in pushed))
        ran = set(self.ledger.numbers(ENDED))
        standing = {number_of(raw) for jobs in stock(self.after).values() for raw in jobs}
        gone = acknowledged - ran - standing
        lost = gone & self.received_jobs()
        return Books(
            acknowledged=len(acknowledged),
            ran=len(ran & acknowledged),
            again=sum(1 for times in self.ledger.numbers(STARTED).values() if times > 1),
            dropped=len(gone - lost),
            lost_by_ruby=sum(1 for number in lost if number % 2 == 0),
            lost_by_python=sum(1 for number in lost if number % 2),
            doubtful=len(doubtful),
            doubtful_ran=len(doubtful & ran),
        )


def crash(stage: Stage) -> None:
    """The primary is killed; the sentinel finds out."""
    stage.primary.kill()


def crash_alone(stage: Stage) -> None:
    """The same, but the last jobs were never replicated, and no worker has run them by then."""
    stage.part_replica()
    stage.python.freeze()
    client = sidekiq.Client(stage.primary.url, sidekiq_version=stage.release.sidekiq_version)
    client.push_bulk({"class": "TickJob", "args": [[number] for number in UNREPLICATED], "queue": "python"})
    client.close()
    stage.primary.kill()
    stage.python.thaw()


def order(stage: Stage) -> None:
    """The sentinel is told to fail over; the old primary continues for a while, and becomes a replica."""
    stage.sentinel.fail_over()


def order_with_enough_replicas(stage: Stage) -> None:
    """The same with `min-replicas-to-write 1`: a primary without a replica accepts no writes."""
    stage.sentinel.fail_over()


def play(stage: Stage, fail_over: Callable[[Stage], None]) -> tuple[Books, set[int]]:
    """Push, fail over in the middle, and wait for the end. Returns the books, and the jobs that ran afterwards."""
    if fail_over is order_with_enough_replicas:
        for client in (stage.before, stage.after):
            client.config_set("min-replicas-to-write", 1)
            client.config_set("min-replicas-max-lag", 1)
    if fail_over in (crash, crash_alone):
        stage.pause_seconds = PAUSE_BEFORE_A_CRASH_SECONDS
    stage.start_workers()
    with ThreadPoolExecutor(2) as producers:
        pushing: list[Future[Pushed]] = [
            producers.submit(stage.push_in_python, range(JOBS // 2)),
            producers.submit(stage.push_in_ruby, range(JOBS // 2, JOBS)),
        ]
        eventually(lambda: stage.ledger.count(ENDED) >= 2 * FAIL_OVER_AFTER, PATIENCE_SECONDS)
        fail_over(stage)
        eventually(stage.is_promoted, PATIENCE_SECONDS)
        ran_before = {run.number for run in stage.ledger.runs()}
        stage.has_failed_over.set()
        pushed = [each.result(2 * PATIENCE_SECONDS) for each in pushing]
    if fail_over is crash_alone:
        pushed.append(Pushed(set(UNREPLICATED), set()))
    eventually(stage.is_over, PATIENCE_SECONDS)
    return stage.books(pushed), {run.number for run in stage.ledger.runs()} - ran_before


WAYS = (crash, crash_alone, order, order_with_enough_replicas)
