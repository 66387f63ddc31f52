"""
The probes of one worker process.

*Live* means that the engine's loops turn. It is checked without asking Redis, and does not depend on how long jobs run.
*Ready* means that the process fetches and Redis answers.
"""

import threading

from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.errors import RedisError
from sidekiq_py.metrics.job_metrics import JobMetrics, families, start_family
from sidekiq_py.metrics.text import render
from sidekiq_py.probes.server import Answer, ProbeServer

# Redis is asked once a second at most, because there may be many probes, and gets a second to answer.
_REDIS_SECONDS = 1.0

STARTING = "starting: the program is being imported\n"


class WorkerProbes:
    """
    The probes of this process.

    Args:
        counts: Counts the jobs it has run.

    Attributes:
        launcher: None while the program is being imported; the process is then live but not ready.
    """

    def __init__(self, counts: JobMetrics) -> None:
        self.launcher: Launcher | None = None
        self._counts = counts
        self._started_at = now_seconds()
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._redis_error: str | None = None

    def live(self) -> Answer:
        """Good while the engine's loops turn."""
        launcher = self.launcher
        stalled = [] if launcher is None else launcher.liveness.stalled_loops()
        if stalled:
            return Answer(False, f"these loops have not turned for too long: {', '.join(stalled)}\n")
        return Answer(True, "live\n")

    def ready(self) -> Answer:
        """Good while the process fetches and Redis answers."""
        launcher = self.launcher
        if launcher is None:
            return Answer(False, STARTING)
        problem = launcher.liveness.why_not_fetching() or self._ask_redis(launcher)
        return Answer(True, "ready\n") if problem is None else Answer(False, f"{problem}\n")

    def metrics(self) -> str:
        """When it started, and counts of the jobs it has run, in Prometheus's text format."""
        return render([start_family(self._started_at), *families(self._counts.counts())])

    def _ask_redis(self, launcher: Launcher) -> str | None:
        with self._lock:
            if monotonic() - self._asked_at >= _REDIS_SECONDS:
                try:
                    launcher.liveness.ping(within_seconds=_REDIS_SECONDS)
                except RedisError as error:
                    self._redis_error = f"Redis does not answer: {error}"
                else:
                    self._redis_error = None
                self._asked_at = monotonic()
            return self._redis_error


def answer_probes(port: int) -> WorkerProbes:
    """Answer probes on this port from now on, because importing the program may take a while."""
    counts = JobMetrics()
    counts.attach()
    probes = WorkerProbes(counts)
    ProbeServer(port, probes).start()
    return probes
