"""
A worker process that dies, on request, at a named step of a job's way.

Run as `python -m tests.support.kill_worker '<settings as JSON>'`; the settings are the fields of `Settings`. The only
module in here that imports the package under test: it is a program of its own, never imported by tests.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.fetch.exchange import Exchange
from sidekiq_py.engine.fetch.reliable import ReliableFetcher
from sidekiq_py.engine.fetch.settle import Settler
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.main_thread import run_worker
from sidekiq_py.engine.ownership.owner import Owner
from sidekiq_py.engine.prefork.child import run_child
from sidekiq_py.engine.prefork.pipes import Parent
from sidekiq_py.engine.prefork.supervisor import Supervisor
from sidekiq_py.engine.upkeep.poller import Poller
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain, ServerMiddleware
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path import in_flight, promote, recover, settle_script
from sidekiq_py.registry import FunctionDefinition, Registry
from tests.support.ledger import CUT_OFF, DIED, ENDED, GOES_ON, STARTED, LedgerWriter

# What occurs in the bytes of a request: a script's digest, or the name of a command.
REQUESTS: dict[str, bytes] = {
    "fetch": in_flight.FETCH.digest,
    "take": b"\r\nLMOVE\r\n",
    "take_in_order": in_flight.TAKE_IN_ORDER.digest,
    "wait": b"\r\nBLMOVE\r\n",
    "claim": in_flight.CLAIM.digest,
    "acknowledge": b"\r\nHDEL\r\n",
    "acknowledge_listed": b"\r\nLREM\r\n",
    "settle": settle_script.SETTLE.digest,
    "give_back": in_flight.GIVE_BACK.digest,
    "renew": in_flight.RENEW.digest,
    "fence": in_flight.FENCE.digest,
    "recover": recover.RECOVER.digest,
    "promote": promote.PROMOTE.digest,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """
    What the worker is told.

    Args:
        queues: Names and weights.
        fault: Where to die: a step (see `FAULTS`), or a request (see `REQUESTS`) and a moment, as in `settle sent`:
            `before` it is sent, once it is `sent`, when its reply has been `read`.
        nth: At which passage.
        timeout_seconds: The soft limit of the job `limited`.
        hard_timeout_seconds: That of the job `endless`; needs *processes*.
        death_handler_seconds: For how long the death handler blocks.
        capsules: Names to queues, instead of one capsule of *queues*; each has *concurrency* threads.
        extension_keys: Policies for keys of Pro, Enterprise and gems.
        moves_due_jobs: Whether what is due in `retry` and `schedule` is moved to its queue.
    """

    redis_url: str
    ledger: str
    queues: list[tuple[str, int]] = field(default_factory=lambda: [("default", 0)])
    concurrency: int = 5
    lease_seconds: float = 30.0
    beat_seconds: float | None = None
    shutdown_timeout_seconds: float = 25.0
    socket_timeout_seconds: float = 5.0
    processes: int | None = None
    fault: str | None = None
    nth: int = 1
    timeout_seconds: float | None = None
    hard_timeout_seconds: float | None = None
    death_handler_seconds: float = 0.0
    buffer_seconds: float = 0.010
    has_async_jobs: bool = False
    capsules: dict[str, list[tuple[str, int]]] | None = None
    extension_keys: dict[str, Any] = field(default_factory=dict)
    moves_due_jobs: bool = True


def die() -> None:
    """As by the OOM killer: nothing is flushed, nothing is closed."""
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown:
    """Dies at the nth call."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            die()


def after(owner: Any, name: str, countdown: Countdown) -> None:
    """Let the process die after a call of a method."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        countdown()
        return result

    setattr(owner, name, wrapped)


def before(owner: Any, name: str, countdown: Countdown) -> None:
    """Let the process die before a call of a method."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        countdown()
        return original(*args, **options)

    setattr(owner, name, wrapped)


def around_request(needle: bytes, moment: str, countdown: Countdown) -> None:
    """Let the process die at a moment of the round trip of a request that holds *needle*."""
    send, receive = Link.send, Link.receive
    waiting: set[Link] = set()

    def watched_send(link: Link, packed: Any) -> None:
        is_concerned = any(needle in bytes(part) for part in ([packed] if isinstance(packed, bytes) else packed))
        if is_concerned and moment == "before":
            countdown()
        send(link, packed)
        if is_concerned and moment == "sent":
            # What the kernel has taken it delivers, also for a process that is no more.
            countdown()
        if is_concerned and moment == "read":
            waiting.add(link)

    def watched_receive(link: Link) -> Any:
        reply = receive(link)
        if link in waiting:
            waiting.discard(link)
            countdown()
        return reply

    Link.send, Link.receive = watched_send, watched_receive  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[Countdown], None]] = {
    "after the fetch": lambda countdown: after(Exchange, "run", countdown),
    "when a job is taken": lambda countdown: after(ReliableFetcher, "take", countdown),
    "before settling a success": lambda countdown: before(Settler, "acknowledge", countdown),
    "after settling a success": lambda countdown: after(Settler, "acknowledge", countdown),
    "before settling a failure": lambda countdown: before(Settler, "settle", countdown),
    "after settling a failure": lambda countdown: after(Settler, "settle", countdown),
    "before a death is announced": lambda countdown: before(Hooks, "announce_death", countdown),
    "after a death is announced": lambda countdown: after(Hooks, "announce_death", countdown),
    "when a batch is closed": lambda countdown: before(Owner, "close_batch", countdown),
}


def swallow(*args: Any) -> None:
    """A job that takes whatever it is given."""


def choke(*args: Any) -> None:
    """A job that fails on whatever it is given."""
    raise ValueError(f"cannot take {args!r}")


class Program:
    """What a user would write: jobs, middleware, handlers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ledger = LedgerWriter(settings.ledger)
        self._countdown = Countdown(settings.nth)
        self.registry = Registry()
        self.hooks = Hooks()
        self.chain: Chain[ServerMiddleware] = Chain()
        jobs = (self.tick, self.boom, self.stubborn, self.heedful, self.poison, self.limited, self.hog, swallow, choke)
        for function in jobs:
            self.registry.add(FunctionDefinition(function.__name__, {}, function, function))
        if settings.has_async_jobs:
            self.registry.add(FunctionDefinition("atick", {}, self.atick, self.atick, is_async=True))
        if settings.timeout_seconds is not None:
            found = self.registry.find("limited")
            assert found is not None
            found.timeout_seconds = settings.timeout_seconds
        if settings.hard_timeout_seconds is not None:
            endless = FunctionDefinition("endless", {}, self.stubborn, self.stubborn)
            endless.hard_timeout_seconds = settings.hard_timeout_seconds
            self.registry.add(endless)
        self.chain.add(self.middleware)
        self.hooks.on_death(self.mourn)

    # ---- jobs; the first argument is the job's number

    def tick(self, number: int, until: float | str = 0.0) -> None:
        """Takes that many seconds, or until a file of that name is there, and succeeds."""
        self._ledger.note(STARTED, number)
        if self._settings.fault == "in perform":
            self._countdown()
        if isinstance(until, str):
            while not os.path.exists(until):
                time.sleep(0.01)
        elif until:
            time.sleep(until)
        self._ledger.note(ENDED, number)

    async def atick(self, number: int, until: float | str = 0.0) -> None:
        """The same on the event loop."""
        self._ledger.note(STARTED, number)
        if isinstance(until, str):
            while not os.path.exists(until):
                await asyncio.sleep(0.01)
        else:
            await asyncio.sleep(until)
        self._ledger.note(ENDED, number)

    def boom(self, number: int, until: float | str = 0.0) -> None:
        """As long as `tick`, and fails."""
        self.tick(number, until)
        raise ValueError("boom")

    def stubborn(self, number: int, seconds: float) -> None:
        """Takes *seconds*, whatever is raised in it."""
        self._ledger.note(STARTED, number)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                time.sleep(0.001)
                self._ledger.note(GOES_ON, number)
            except BaseException:  # noqa: BLE001 — that is the point
                pass
        self._ledger.note(ENDED, number)

    def heedful(self, number: int, until: float | str) -> None:
        """As long as `tick`, or less when it is told to stop."""
        self._ledger.note(STARTED, number)
        begun = time.monotonic()
        try:
            while not os.path.exists(until) if isinstance(until, str) else time.monotonic() < begun + until:
                time.sleep(0.01)
        except BaseException:
            self._ledger.note(CUT_OFF, number)
            raise
        self._ledger.note(ENDED, number)

    def poison(self, number: int, seconds: float = 0.05) -> None:
        """Kills its process, by default not before the innocents around it are at work, too."""
        self._ledger.note(STARTED, number)
        time.sleep(seconds)
        die()

    def limited(self, number: int, seconds: float) -> None:
        """Runs Python code for *seconds* under a soft limit."""
        self._ledger.note(STARTED, number)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        self._ledger.note(ENDED, number)

    def hog(self, number: int, seconds: int) -> None:
        """Sleeps with the interpreter lock: no other thread of its process runs for *seconds*."""
        self._ledger.note(STARTED, number)
        ctypes.PyDLL(None).sleep(seconds)
        self._ledger.note(ENDED, number)

    # ---- around them

    def middleware(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        """Passes everything on."""
        if self._settings.fault == "in middleware":
            self._countdown()
        return call_next()

    def mourn(self, payload: dict[str, Any], error: BaseException) -> None:
        """Notes the death, and takes its time."""
        self._ledger.note(DIED, int(payload["args"][0]))
        time.sleep(self._settings.death_handler_seconds)


def arm(settings: Settings) -> None:
    """Prepare the process, and the fault that was asked for."""
    if not settings.moves_due_jobs:
        Poller.start = lambda poller: None  # type: ignore[method-assign]
    if settings.fault is None or settings.fault in ("in perform", "in middleware"):
        return
    countdown = Countdown(settings.nth)
    if settings.fault in FAULTS:
        FAULTS[settings.fault](countdown)
        return
    name, _, moment = settings.fault.partition(" ")
    around_request(REQUESTS[name], moment, countdown)


def make_launcher(settings: Settings, on_epoch: Callable[[str], None] = lambda owner: None) -> Launcher:
    """The worker, or a child of one."""
    program = Program(settings)
    redis = RedisSettings(settings.redis_url, socket_timeout_seconds=settings.socket_timeout_seconds)
    config = Config(
        redis=redis,
        sidekiq_version="6.4.1",
        capsules=tuple(
            CapsuleConfig(name, settings.concurrency, tuple(QueueConfig(queue, weight) for queue, weight in queues))
            for name, queues in (settings.capsules or {"default": settings.queues}).items()
        ),
        job_log=False,
        lease_seconds=settings.lease_seconds,
        beat_seconds=settings.beat_seconds,
        buffer_seconds=settings.buffer_seconds,
        shutdown_timeout_seconds=settings.shutdown_timeout_seconds,
        extension_keys=settings.extension_keys,
        is_single_slot_child=settings.processes is not None and settings.concurrency == 1,
    )
    return Launcher(
        WorkerParts(
            config,
            registry=program.registry,
            hooks=program.hooks,
            server_middleware=program.chain,
            client=Client(settings.redis_url, sidekiq_version="6.4.1"),
            on_epoch=on_epoch,
        )
    )


def main() -> int:
    """Run until told to stop."""
    settings = Settings(**json.loads(sys.argv[1]))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(threadName)s %(levelname)s %(message)s")
    arm(settings)
    if settings.processes is None:
        return run_worker(make_launcher(settings))

    def child(parent: Parent) -> int:
        return run_child(parent, lambda on_epoch: make_launcher(settings, on_epoch))

    config = Config(shutdown_timeout_seconds=settings.shutdown_timeout_seconds)
    return Supervisor(config, settings.processes, child, None).run()


if __name__ == "__main__":
    sys.exit(main())
