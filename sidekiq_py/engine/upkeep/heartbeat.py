"""
The thread that tells Redis every few seconds that this process is alive and what it runs, and receives signals.

1. Write the beat, which Ruby's Web UI shows on its Busy page.
2. Fire `heartbeat` if Redis did not know the process (any more), then `beat`, then call `on_beat`.
3. Pass on a signal if the Web UI has sent one.

The lease on the process's jobs is not renewed here, so the program's hooks cannot delay it.

Source: Sidekiq 6.4.1 and 8.1.7, launcher.rb.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from sidekiq_py import clock
from sidekiq_py.engine.background import background_thread, started, wait_for_end
from sidekiq_py.engine.downtime import Downtime, Outage
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.engine.run.work_state import RunningJob
from sidekiq_py.errors import RedisError
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import beats
from sidekiq_py.wire.dialect import Dialect, version_text
from sidekiq_py.wire.process_info import ProcessFacts, info_json
from sidekiq_py.wire.work import dump_work

RTT_READINGS = 5
RTT_WARNING_US = 50_000


class Heartbeat:
    """
    The heartbeat of one process. Starting does not block; stopping twice, or before a start, is fine.

    Args:
        process: The facts that this process publishes about itself.
        pool: Connections to the Redis where the process is registered.
        dialect: Returns the Sidekiq release whose Web UI reads the beat; called each time.
        running: Returns the running jobs.
        is_quiet: Returns True once no more jobs are fetched.
        hooks: Fires `heartbeat` and `beat`, and reports errors.
        on_signal: Called with a signal's name: `TSTP` or `USR1` (quiet), `TERM` (stop), `TTIN` (thread dump).
        on_beat: Called after each successful beat, with True if Redis still knew the process.
        period_seconds: The time between two beats; `None` for the release's own.
        now: Returns the seconds since the epoch.
        downtime: The process's record of outages, which it shares with other parts.

    Attributes:
        pulse: The thread's pulse.
    """

    def __init__(
        self,
        process: ProcessFacts,
        *,
        pool: Pool,
        dialect: Callable[[], Dialect],
        running: Callable[[], Sequence[RunningJob]],
        is_quiet: Callable[[], bool],
        hooks: Hooks,
        on_signal: Callable[[str], None],
        on_beat: Callable[[bool], None] = lambda was_known: None,
        period_seconds: float | None = None,
        now: Callable[[], float] = clock.now_seconds,
        downtime: Downtime | None = None,
    ) -> None:
        self._process = process
        self._downtime = downtime or Downtime()
        self._pool = pool
        self._dialect = dialect
        self._running = running
        self._is_quiet = is_quiet
        self._hooks = hooks
        self._on_signal = on_signal
        self._on_beat = on_beat
        self._period_seconds = period_seconds
        self._now = now
        self._outage = Outage(hooks.report, "heartbeat")
        self._hook_outage = Outage(hooks.report, "Error after a heartbeat")
        self._rtt_us = 0
        self._rtts_us: deque[int] = deque(maxlen=RTT_READINGS)
        self._info: tuple[ProcessFacts, Dialect, bytes] | None = None
        self._changing = threading.Lock()
        self._pause = threading.Event()
        self._is_ended = False
        self.pulse = Pulse()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. The first beat comes at once."""
        if self._thread is None:
            self._thread = started(background_thread("sidekiq.heartbeat", self._run))

    def beat_soon(self) -> None:
        """Beat now, before the period is over, because something that the Web UI shows has changed."""
        self._pause.set()

    def change(self, changed: Callable[[ProcessFacts], ProcessFacts]) -> None:
        """From now on, publish what *changed* makes of the facts."""
        with self._changing:
            self._process = changed(self._process)
        self.beat_soon()

    def stop(self) -> None:
        """End the thread and remove the process from the process set. If Redis is down, its entry expires by itself."""
        self._is_ended = True
        self._pause.set()
        if self._thread is None:
            return
        wait_for_end(self._thread, self._pool.join_seconds)
        try:
            beats.clear(self._pool, self._process.identity, dialect=self._dialect())
        except RedisError:
            log.debug("the process stays in the list of processes until its last beat expires")

    def beat(self) -> None:
        """
        Beat once, in the calling thread.

        Raises:
            RedisError: Redis is unreachable or refuses the command.
        """
        reply = beats.beat(self._pool, self._facts(), dialect=self._dialect())
        self._outage.over()
        self._downtime.works("heartbeat")
        self._note_rtt(reply.rtt_us)
        if not reply.was_known:
            self._hooks.fire("heartbeat")
        self._hooks.fire("beat")
        self._after_beat(reply.was_known)
        if reply.signal is not None:
            self._on_signal(reply.signal)

    def _run(self) -> None:
        self.pulse.waits(0.0)
        while not self._is_ended:
            self._pause.wait(self.pulse.waits(self._turn()))
            # If `stop` ended the wait, the loop ends anyway; if `beat_soon` did, the next wait must block again.
            self._pause.clear()

    def _turn(self) -> float:
        """Beat. Returns the seconds until the next beat."""
        try:
            self.beat()
            return self._period_seconds or self._dialect().beat_seconds
        except Exception as error:  # noqa: BLE001 - a process that does not beat counts as dead
            if isinstance(error, RedisError):
                self._downtime.failed(error, "heartbeat")
            return self._outage.failed(error)

    def _facts(self) -> beats.Beat:
        dialect = self._dialect()
        running = self._running()
        return beats.Beat(
            identity=self._process.identity,
            info=self._info_for(dialect),
            concurrency=self._process.concurrency,
            busy=len(running),
            is_quiet=self._is_quiet(),
            rss_kb=beats.rss_kb(),
            now=self._now(),
            work={
                job.tid: dump_work(job.unit.queue, job.unit.raw, int(job.started_at), dialect=dialect)
                for job in running
            },
            rtt_us=self._rtt_us,
        )

    def _info_for(self, dialect: Dialect) -> bytes:
        process = self._process
        if self._info is None or self._info[0] is not process or self._info[1] != dialect:
            # The release that it writes for now: Ruby's release may have been detected, or changed, since the start.
            published = replace(process, version=version_text(dialect.version))
            self._info = (process, dialect, info_json(published, dialect))
        return self._info[2]

    def _after_beat(self, was_known: bool) -> None:
        try:
            self._on_beat(was_known)
        except Exception as error:  # noqa: BLE001 - the beat itself succeeded
            self._hook_outage.failed(error)
        else:
            self._hook_outage.over()

    def _note_rtt(self, rtt_us: int) -> None:
        self._rtt_us = rtt_us
        self._rtts_us.append(rtt_us)
        if len(self._rtts_us) == RTT_READINGS and min(self._rtts_us) > RTT_WARNING_US:
            log.warning(
                "Your Redis network connection is performing extremely poorly. Last round trips took %s µs, ideally "
                "they should take less than 1000. Have Redis and the workers in the same data centre; values near "
                "100,000 mean that this process has too little CPU: lower its concurrency",
                list(self._rtts_us),
            )
            self._rtts_us.clear()
