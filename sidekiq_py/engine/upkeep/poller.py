"""
Decides when due jobs are moved from `retry` and `schedule` to their queues; `promoter` moves them.

One process holds the lease `sidekiq_py:poller`. Every 100 ms it checks whether anything comes due before the next
check, and every 50 ms while something does. So a job that has to wait for longer than that is moved on time, and any
other within 100 ms. While nothing comes due within a second, it checks once a second, in the request that renews its
lease, and whenever Redis reports that a set has changed (`due_watch`). If Redis cannot report changes, it keeps
checking every 100 ms. An otherwise idle Redis wakes up for each request, which costs it 0.1 ms: checks every 100 ms
were all that two idle processes cost Redis more than Ruby's. The other processes keep Sidekiq's interval, which grows
with the number of processes. So does the interval at which they try to get the lease: together they try at most once a
second.
"""

import math
import threading
from collections.abc import Callable

from sidekiq_py import clock
from sidekiq_py.config import Config
from sidekiq_py.engine import draws
from sidekiq_py.engine.background import background_thread, started, wait_for_end
from sidekiq_py.engine.downtime import Outage
from sidekiq_py.engine.pulse import Pulse
from sidekiq_py.engine.upkeep.promoter import Promoter
from sidekiq_py.errors import RedisError, RedisReplyError
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.job_path import promote
from sidekiq_py.redis_access.job_path.due_watch import DueWatch
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.telemetry import Report
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect

LEASE_SECONDS = 3
# A third of the lease leaves room for two failed attempts before another process takes over.
LEASE_RENEWAL_SECONDS = LEASE_SECONDS / 3
LEASE_TRY_SECONDS = 2.0
# The limit for all processes together. When each process tried every two seconds, the tries of 20 processes were a
# fifth of the work of an idle Redis.
MOST_LEASE_TRIES_PER_SECOND = 1
# If the lease lapsed and only few of many processes are ours, Sidekiq's own interval has passed by then.
LONGEST_LEASE_TRY_SECONDS = 30.0
INITIAL_WAIT_SECONDS = 10
# From this number of processes on, their random intervals spread evenly by themselves.
MANY_PROCESSES = 10
# While nothing comes due before the next check, the interval of the quick poller is this many times longer.
LOOK_AHEAD = 2
# At rest, each check renews the lease. If Redis reports changes at all, it reports that renewal before the next check.
QUIET_SECONDS = LEASE_RENEWAL_SECONDS

_NO_LEASE = (
    f"{keys.POLLER_LEASE} cannot hold the lease, so due jobs are moved at Sidekiq's pace, and no periodic jobs fire. "
    "Rename or delete this key, or give this user its rights"
)


def initial_wait_seconds(config: Config, draw: float) -> float:
    """
    Return how long a process without the lease waits before its first pass.

    Args:
        draw: A random number from [0, 1).

    Source: Sidekiq 4.2 to 8.1.7, scheduled.rb, `initial_wait`.
    """
    return (0 if config.poll_interval_average_seconds else INITIAL_WAIT_SECONDS) + 5 * draw


def poll_interval_seconds(process_count: int, draw: float, *, config: Config, dialect: Dialect) -> float:
    """
    Return how long a process without the lease waits before its next pass. Ruby up to 6.5.3 computed the average once
    for the life of a process; here it follows the number of processes.

    Args:
        process_count: The number of all processes on this Redis, including Ruby's.
        draw: A random number from [0, 1).

    Source: Sidekiq 6.4.1 and 8.1.7, scheduled.rb, `random_poll_interval`.
    """
    average = config.poll_interval_average_seconds or process_count * config.average_scheduled_poll_seconds
    if process_count < MANY_PROCESSES:
        return average * draw + average / 2
    return average * draw * (2 if dialect.doubles_large_poll_interval else 1)


class Poller:
    """
    A thread that has due jobs moved. Starting does not block; stopping twice, or before a start, is fine.

    Args:
        config: The intervals.
        pool: Connections to the Redis whose sets are watched.
        identity: The process's identity, for the lease.
        promoter: Moves the jobs.
        dialect: Returns the Sidekiq release to follow; called each time.
        report: Called with an error and its context.
        now: Returns the seconds since the epoch.
        monotonic: Returns the time in monotonic seconds.
        draw: Returns a random number from [0, 1).

    Attributes:
        pulse: The thread's pulse.
        is_quick: True while this process holds the lease.
    """

    def __init__(
        self,
        config: Config,
        *,
        pool: Pool,
        identity: str,
        promoter: Promoter,
        dialect: Callable[[], Dialect],
        report: Report,
        now: Callable[[], float] = clock.now_seconds,
        monotonic: Callable[[], float] = clock.monotonic,
        draw: Callable[[], float] = draws.draw,
    ) -> None:
        self._config = config
        self._pool = pool
        self._identity = identity
        self._promoter = promoter
        self._dialect = dialect
        self._now = now
        self._monotonic = monotonic
        self._draw = draw
        self._end = threading.Event()
        self._watch = DueWatch(pool)
        # True while nothing comes due soon and Redis would report a change.
        self._is_at_rest = False
        self.pulse = Pulse()
        self._thread: threading.Thread | None = None
        self._outage = Outage(report, "Error moving due jobs")
        self._lease_outage = Outage(report, _NO_LEASE)
        # From then on, a check renews the lease as well. At `_lease_at`, it is renewed without a check.
        self._renew_at = 0.0
        self._lease_at = self._look_at = self._looked_at = self._clean_at = 0.0
        # The number of processes in the fleet at the last try for the lease.
        self._processes = 1
        self.is_quick = False

    def start(self) -> None:
        """Start the thread. It tries to get the lease at once; without the lease it waits as Sidekiq does."""
        if self._thread is None:
            began = self._lease_at = self._monotonic()
            self._look_at = self._clean_at = began + initial_wait_seconds(self._config, self._draw())
            self._thread = started(background_thread("sidekiq.poller", self._run))

    def terminate(self) -> None:
        """Ask the thread to end after the current slice. Returns at once."""
        self._end.set()
        self._watch.abandon()

    def stop(self) -> None:
        """End the thread and release the lease, so that another process goes on. Does not wait for a hanging Redis."""
        self.terminate()
        wait_for_end(self._thread, self._pool.join_seconds)

    # The thread

    def _run(self) -> None:
        pause = 0.0
        while not self._waited(self.pulse.waits(pause)):
            pause = self._turn()
        self._watch.close()
        self._leave()

    def _waited(self, seconds: float) -> bool:
        """Wait until the next turn. Returns True if it is time to end."""
        if not self._is_at_rest:
            return self._end.wait(seconds)
        if not self._end.wait(0) and self._watch.wait(seconds):
            # One check covers everything that changes until then.
            self._look_at = min(self._look_at, self._looked_at + self._config.poll_seconds * LOOK_AHEAD)
            self._is_at_rest = False
            return self._end.wait(max(0.0, min(self._look_at, self._lease_at) - self._monotonic()))
        return self._end.wait(0)

    def _turn(self) -> float:
        """Do the work that is due. Returns the seconds until the next turn."""
        try:
            self._keep_lease()
            self._look()
            self._clean()
        except Exception as error:  # noqa: BLE001 - the thread must survive whatever fails in it
            # After a failure, this process no longer knows whether it holds the lease.
            self.is_quick = self._is_at_rest = False
            self._lease_at = self._monotonic()
            return self._outage.failed(error)
        self._outage.over()
        return max(0.0, min(self._lease_at, self._look_at, self._clean_at) - self._monotonic())

    def _keep_lease(self) -> None:
        at = self._monotonic()
        if at < self._lease_at or self._thread is None:
            return
        was_quick = self.is_quick
        self.is_quick = self._holds_lease()
        if self.is_quick:
            self._note_renewal(at)
        else:
            self._lease_at = at + self._lease_try_seconds()
        if self.is_quick and not was_quick:
            self._look_at = at
        elif was_quick and not self.is_quick:
            self._watch.close()
            self._is_at_rest = False
            self._look_at = at + self._interval(process_set.count(self._pool))

    def _note_renewal(self, at: float) -> None:
        self._renew_at = at + LEASE_RENEWAL_SECONDS
        self._lease_at = at + 1.5 * LEASE_RENEWAL_SECONDS

    def _look(self) -> None:
        at = self._monotonic()
        if at < self._look_at:
            return
        is_due, pause = self._look_ahead(at) if self.is_quick else self._poll()
        at = self._looked_at = self._monotonic()
        if is_due:
            pause = max(0.0, min(pause, self._promoter.continues_at - at))
        else:
            self._promoter.start_over()
        self._look_at = at + pause

    def _look_ahead(self, at: float) -> tuple[bool, float]:
        """
        Check as the holder of the lease, and renew it if it is time.

        Returns:
            Whether a job was due, and the seconds until the next check.
        """
        # Unless Redis reports changes, a job may be scheduled for a time before the next check.
        ahead_seconds = self._config.poll_seconds * LOOK_AHEAD
        renews = at >= self._renew_at
        look = self._watch.look(
            self._now(), (0.0, ahead_seconds, QUIET_SECONDS), renew_for=LEASE_SECONDS if renews else 0
        )
        if look.holder != self._identity.encode():
            self._lease_at = at
        elif look.is_renewed:
            # Otherwise, the script renews it in time.
            self._note_renewal(at)
        due, due_soon, due_later = look.dues
        # What stays in its set is due all the time. It is tried again after a second or more, so it alone is no reason
        # to look twenty times a second: that was 180 commands a second for a single job.
        has_moved = due > 0 and self._promoter.move_due(self._goes_on)
        self._is_at_rest = look.will_notice and not has_moved and due_later == due
        if has_moved or due_soon > due:
            return due > 0, self._config.poll_seconds
        return due > 0, QUIET_SECONDS if self._is_at_rest else ahead_seconds

    def _poll(self) -> tuple[bool, float]:
        """Check as Sidekiq does, without the lease. Returns the same as `_look_ahead`."""
        *counts, processes = self._pool.replies([*promote.due_commands(self._now(), (0.0,)), process_set.COUNT])
        [due] = promote.noted_due(counts)
        if due:
            self._promoter.move_due(self._goes_on)
        [process_count] = raise_first([processes])
        return due > 0, self._interval(process_count)

    def _goes_on(self) -> bool:
        """Keep the lease during a long pass. Returns False if it is time to end."""
        if self._end.is_set():
            return False
        self._keep_lease()
        return True

    def _interval(self, process_count: int) -> float:
        return poll_interval_seconds(max(1, process_count), self._draw(), config=self._config, dialect=self._dialect())

    def _holds_lease(self) -> bool:
        """Take or renew the lease. Returns False if another process holds it, or if the key cannot hold it."""
        try:
            holds = self._may_take_lease() and promote.hold_poller(self._pool, self._identity, LEASE_SECONDS * 1000)
        except RedisReplyError as error:
            # Without the lease, this process still moves due jobs, if only at Sidekiq's pace.
            if error.is_about_server:
                raise
            self._lease_outage.failed(error)
            return False
        self._lease_outage.over()
        return holds

    def _may_take_lease(self) -> bool:
        if self.is_quick:
            return True
        holder, self._processes = promote.look_at_poller(self._pool, LEASE_SECONDS * 1000)
        return holder in (None, self._identity.encode())

    def _lease_try_seconds(self) -> float:
        """Return a random interval, so that the tries of processes that started together spread out."""
        average = max(LEASE_TRY_SECONDS, self._processes / MOST_LEASE_TRIES_PER_SECOND)
        return min(average, LONGEST_LEASE_TRY_SECONDS) * (0.5 + self._draw())

    def _clean(self) -> None:
        """
        Prune the process set once: the number of processes decides how often each one polls, so dead ones should not
        count.
        """
        if self._monotonic() >= self._clean_at:
            process_set.prune(self._pool)
            self._clean_at = math.inf

    def _leave(self) -> None:
        if not self.is_quick:
            return
        self.is_quick = False
        try:
            promote.leave_poller(self._pool, self._identity)
        except RedisError:
            log.debug("the poller's lease was not released; it expires by itself within %s s", LEASE_SECONDS)
