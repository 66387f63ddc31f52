"""Exceptions from outside strike a job while it runs: not its settling, not the next job."""

import ctypes
import gc
import random
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run import interrupts
from sidekiq_py.engine.run.interrupts import INTERRUPTS, Guard, SoftLimits, _set_async_exception
from sidekiq_py.engine.signals import WAKE
from sidekiq_py.errors import Shutdown, SoftTimeLimitError
from tests.support.strikes import strike_everywhere
from tests.support.waiting import eventually


def new_unit(number: int = 0) -> UnitOfWork:
    """Some job."""
    return UnitOfWork(b"%d" % number, "default", None, b"%d" % number, False, 0.0)


def spin(until: float) -> None:
    """Run Python code, where an exception can strike."""
    while monotonic() < until:
        pass


class Runner:
    """Runs one job after the other in a thread as a processor does, and notes how each ended."""

    def __init__(self) -> None:
        self.guard: Guard | None = None
        self.ended: list[tuple[UnitOfWork, BaseException | None]] = []
        self.stray: list[BaseException] = []

    def run(self, unit: UnitOfWork, job: Callable[[], None], settle: Callable[[], None] = lambda: None) -> None:
        """As `Processor._perform`, then the settling."""
        guard = self.guard = self.guard or Guard()
        failure: BaseException | None = None
        is_done = False
        try:
            guard.performing = unit
            try:
                job()
                is_done = True
            except BaseException as error:  # noqa: BLE001
                failure = error
            guard.performing = None
        except INTERRUPTS as error:
            guard.performing = None
            if not is_done and failure is None:
                failure = error
        while guard.is_requested:
            try:
                guard.absorb()
            except INTERRUPTS:
                continue
        try:
            settle()
        except BaseException as error:  # noqa: BLE001
            self.stray.append(error)
        self.ended.append((unit, failure))


@pytest.fixture
def limits() -> Iterator[SoftLimits]:
    """Closed after the test."""
    one = SoftLimits()
    yield one
    one.close()


def test_a_job_that_runs_is_struck() -> None:
    """With the exception that was asked for."""
    runner, unit = Runner(), new_unit()
    thread = threading.Thread(target=runner.run, args=(unit, lambda: spin(monotonic() + 10)))
    thread.start()
    eventually(lambda: runner.guard is not None and runner.guard.performing is unit)

    assert runner.guard is not None
    assert runner.guard.interrupt(unit, Shutdown)
    thread.join(5)

    [(_, failure)] = runner.ended
    assert isinstance(failure, Shutdown)


def test_a_job_that_has_ended_is_not_struck() -> None:
    """Nor the one that runs now in its place."""
    runner, before, now = Runner(), new_unit(1), new_unit(2)
    is_over = threading.Event()

    def wait() -> None:
        is_over.wait(5)

    def work() -> None:
        runner.run(before, lambda: None)
        runner.run(now, wait)

    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: runner.guard is not None and runner.guard.performing is now)

    assert runner.guard is not None
    assert not runner.guard.interrupt(before, SoftTimeLimitError)
    is_over.set()
    thread.join(5)

    assert [failure for _, failure in runner.ended] == [None, None]


@pytest.fixture
def _many_switches() -> Iterator[None]:
    """Threads take turns after 20 µs instead of 5 ms, so that they meet in the narrowest places."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00002)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_many_switches")
def test_jobs_that_end_just_at_their_limit_are_struck_themselves_or_not_at_all(limits: SoftLimits) -> None:
    """Thousands of jobs, each about as long as its limit: no settling and no neighbour is ever hit."""
    runners = [Runner() for _ in range(3)]
    draw = random.Random(7)

    def work(runner: Runner) -> None:
        runner.guard = Guard()
        for number in range(700):
            unit = new_unit(number)
            seconds = draw.uniform(0.0, 0.002)

            def job(unit: UnitOfWork = unit, seconds: float = seconds) -> None:
                assert runner.guard is not None
                limits.watch(runner.guard, unit, 0.001)
                spin(monotonic() + seconds)

            runner.run(unit, job, settle=lambda: spin(monotonic() + 0.0001))

    threads = [threading.Thread(target=work, args=(runner,)) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    failures = [failure for runner in runners for _, failure in runner.ended]
    assert len(failures) == 2100
    assert [runner.stray for runner in runners] == [[], [], []]
    assert {type(failure) for failure in failures} == {type(None), SoftTimeLimitError}


@pytest.fixture
def _wakeable() -> Iterator[None]:
    """The signal that has the main thread come back interrupts its system calls, and does nothing else."""
    before = signal.signal(WAKE, lambda *_: None)
    yield
    signal.signal(WAKE, before)


@pytest.fixture
def _no_collections() -> Iterator[None]:
    """An interrupt that strikes in a callback of the garbage collector, as hypothesis has one, is printed and lost."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_wakeable", "_many_switches")
@pytest.mark.usefixtures("_no_collections")
def test_jobs_of_the_main_thread_that_end_just_at_their_limit_are_struck_themselves_or_not_at_all(
    limits: SoftLimits,
) -> None:
    """Each waits in a system call for about as long as its limit; what comes after it is never hit."""
    runner, draw = Runner(), random.Random(7)
    runner.guard = guard = Guard()
    for number in range(300):
        unit, seconds = new_unit(number), draw.uniform(0.0, 0.004)

        def job(unit: UnitOfWork = unit, seconds: float = seconds) -> None:
            limits.watch(guard, unit, 0.002)
            select.select([], [], [], seconds)

        runner.run(unit, job, settle=lambda: spin(monotonic() + 0.0002))

    assert runner.stray == []
    assert {type(failure) for _, failure in runner.ended} == {type(None), SoftTimeLimitError}


def test_an_exception_that_is_lost_in_a_finalizer_does_not_hold_up_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints what a finalizer raises, and nothing is left to end the wait for it."""
    lost: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: lost.append(failure.exc_type))
    guard, finalized = Guard(), dict[int, object]()

    class Finalizer:
        def __del__(self) -> None:
            pass

    main_id = threading.get_ident()
    give_up = threading.Timer(20, lambda: _set_async_exception(ctypes.c_ulong(main_id), ctypes.py_object(TimeoutError)))
    # Replacing an entry finalizes the one before, in the middle of whatever the signal interrupts.
    before = signal.signal(signal.SIGALRM, finalized.__setitem__)
    give_up.start()
    signal.setitimer(signal.ITIMER_REAL, 0.00005, 0.00005)
    try:
        while len(lost) < 10:
            finalized[signal.SIGALRM] = Finalizer()
            guard.absorb()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        give_up.cancel()
        signal.signal(signal.SIGALRM, before)

    assert {kind.__name__ for kind in lost} == {"_Absorbed"}


def test_a_job_that_starts_a_thread_is_struck_when_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Up to Python 3.11, the thread would get the exception, and the job would wait for its beginning for ever. If the job
    held a lock, all jobs of the worker would stand still.
    """
    starting = {threading.Thread(): None}
    monkeypatch.setattr(interrupts, "_STARTING", starting.keys())
    runner, unit = Runner(), new_unit()
    job = threading.Thread(target=runner.run, args=(unit, lambda: spin(monotonic() + 10)))
    job.start()
    eventually(lambda: runner.guard is not None and runner.guard.performing is unit)
    assert runner.guard is not None
    interrupter = threading.Thread(target=runner.guard.interrupt, args=(unit, SoftTimeLimitError))

    interrupter.start()
    job.join(0.1)
    has_waited = interrupter.is_alive() and job.is_alive()
    starting.clear()
    job.join(5)

    assert has_waited
    assert isinstance(runner.ended[0][1], SoftTimeLimitError)


def test_a_thread_that_never_begins_holds_up_one_limit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose start was cut short by an exception."""
    monkeypatch.setattr(interrupts, "_STARTING", {threading.Thread(): None}.keys())
    monkeypatch.setattr(interrupts, "_NEVER_BEGAN", set())
    monkeypatch.setattr(interrupts, "_LONGEST_START_SECONDS", 0.01)
    runner = Runner()
    for number in range(2):
        job = threading.Thread(target=runner.run, args=(new_unit(number), lambda: spin(monotonic() + 10)))
        runner.guard = None
        job.start()
        eventually(lambda: runner.guard is not None and runner.guard.performing is not None)
        assert runner.guard is not None
        assert runner.guard.performing is not None
        assert runner.guard.interrupt(runner.guard.performing, SoftTimeLimitError)
        job.join(5)
        monkeypatch.setattr(interrupts, "_LONGEST_START_SECONDS", 1000)

    assert [type(failure) for _, failure in runner.ended] == [SoftTimeLimitError] * 2


@pytest.mark.usefixtures("_wakeable")
def test_a_system_call_of_the_main_thread_ends_at_its_limit(limits: SoftLimits) -> None:
    """Although nothing else would end it."""
    runner, unit = Runner(), new_unit()
    runner.guard = guard = Guard()

    def job() -> None:
        limits.watch(guard, unit, 0.01)
        threading.Event().wait(60)

    began = monotonic()
    runner.run(unit, job)

    assert monotonic() - began < 30
    assert isinstance(runner.ended[0][1], SoftTimeLimitError)


def test_limits_of_jobs_that_ended_are_not_kept(limits: SoftLimits) -> None:
    """Behind one long job millions of short ones may come, each with its payload."""
    guard, long, short = Guard(), new_unit(), Guard()
    guard.performing = long
    limits.watch(guard, long, 3600)

    for number in range(5000):
        unit = short.performing = new_unit(number)
        limits.watch(short, unit, 7200)
        short.performing = None

    assert limits.watched < 1000
    guard.performing = None


def test_a_job_that_ended_before_it_was_struck_leaves_debuggers_working() -> None:
    """Under a debugger, Python 3.11 would loop at the next call, looking for an exception that has been cancelled."""
    Guard().absorb()

    def debugged() -> None:
        sys.settrace(lambda frame, event, argument: None)
        new_unit()

    thread = threading.Thread(target=debugged, daemon=True)
    thread.start()
    thread.join(10)

    assert not thread.is_alive()


def test_a_job_that_is_struck_while_its_limit_is_noted_leaves_the_limits_to_others() -> None:
    """Shutdown may strike just then."""
    limits = SoftLimits()
    guard, other = Guard(), Guard()
    long = guard.performing = new_unit()
    limits.watch(guard, long, 3600)

    def others_note_theirs() -> None:
        noted = threading.Thread(target=limits.watch, args=(other, new_unit(), 3600), daemon=True)
        noted.start()
        noted.join(10)
        assert not noted.is_alive()

    assert strike_everywhere(lambda: limits.watch(guard, long, 3600), others_note_theirs) > 1
    guard.performing = None
    limits.close()
