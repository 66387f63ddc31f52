"""
Changes the size of a running worker: `pool_grow`, `pool_shrink`, `pool_restart`, `autoscale`.

With prefork the parent controls the number of children. It applies the policy of `--autoscale`, based on what the
children report once a second. With threads the process resizes itself.
"""

import logging
import os
import threading
from typing import Any

from sidekiq_celery.utils.text import pluralize
from sidekiq_celery.worker.commands import control_command, nok, ok
from sidekiq_celery.worker.control_channel import Recipient, on_message
from sidekiq_celery.worker.reloading import reload_modules
from sidekiq_py.extension import monotonic
from sidekiq_py.worker import Launcher, Load, ScalingPolicy

logger = logging.getLogger("celery.worker.autoscale")

AUTOSCALE_KEEPALIVE = float(os.environ.get("AUTOSCALE_KEEPALIVE", "30"))
"""How many seconds a worker must have had less to do before it shrinks."""

_LOOK_SECONDS = 1.0
_MOST_THREADS = 1_000


def scaling_policy(worker: Any) -> ScalingPolicy | None:
    """The policy that `--autoscale` sets for *worker*; None without that option."""
    if worker.autoscale is None:
        return None
    most, least = worker.autoscale
    return ScalingPolicy(most, least, keepalive_seconds=AUTOSCALE_KEEPALIVE)


class ThreadScaler:
    """
    Grows and shrinks a worker of threads.

    Args:
        policy: Decides the size.
    """

    def __init__(self, worker: Any, launcher: Launcher, policy: ScalingPolicy) -> None:
        self._worker = worker
        self._launcher = launcher
        self.policy = policy
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sidekiq.autoscale", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._pause.set()

    def look(self, now: float) -> int:
        """Check the load, adjust the number of threads, and return it. *now* is on the monotonic clock."""
        size = self._worker.concurrency
        running, *waiting = self._launcher.reconfiguration.load(size < self.policy.most)
        wanted = self.policy.wanted(Load(size, running, sum(waiting)), now)
        if wanted != size:
            logger.info("Scaling %s: %d %s", "up" if wanted > size else "down", wanted, pluralize(wanted, "thread"))
            _resize_here(self._worker, self._launcher, wanted)
        return wanted

    def _run(self) -> None:
        while not self._pause.wait(_LOOK_SECONDS):
            if not self._launcher.is_quiet:
                self.look(monotonic())


@control_command(args=[("n", int)], signature="[N=1]")
def pool_grow(state: Any, n: int = 1, **kwargs: Any) -> dict[str, str]:
    """Grow pool by n processes/threads."""
    return _grow(state, "pool_grow", int(n)) or ok("pool will grow")


@control_command(args=[("n", int)], signature="[N=1]")
def pool_shrink(state: Any, n: int = 1, **kwargs: Any) -> dict[str, str]:
    """Shrink pool by n processes/threads."""
    return _grow(state, "pool_shrink", -int(n)) or ok("pool will shrink")


@control_command(args=[("max", int), ("min", int)], signature="[max [min]]")
def autoscale(state: Any, max: int | None = None, min: int | None = None, **kwargs: Any) -> dict[str, str]:
    """Modify autoscale settings."""
    worker = state.remote_control.worker
    policy = scaling_policy(worker)
    if policy is None:
        raise ValueError("Autoscale not enabled")
    policy.change(max, min)
    state.remote_control.tell_all("autoscale", most=policy.most, least=policy.least)
    return ok(f"autoscale now max={policy.most} min={policy.least}")


@control_command()
def pool_restart(
    state: Any, modules: Any = None, reload: bool = False, reloader: Any = None, **kwargs: Any
) -> dict[str, str]:
    """Restart execution pool."""
    if not state.app.conf.worker_pool_restarts:
        raise ValueError("Pool restarts not enabled")
    worker = state.remote_control.worker
    if worker.pool_name != "prefork":
        return nok(f"pool_restart needs -P prefork: -P {worker.pool_name} has no child processes")
    answer = state.remote_control.ask_parent("restart", modules=modules, reload=reload)
    if answer is not None and answer.error:
        return nok(f"the children were not restarted: {answer.error}")
    state.remote_control.tell_here("restart", modules=modules, reload=reload)
    return ok("reload started")


def _grow(state: Any, command: str, by: int) -> dict[str, str] | None:
    worker = state.remote_control.worker
    if worker.autoscale is not None:
        return nok(f"{command} is not supported with autoscale. Adjust autoscale range instead.")
    if worker.pool_name == "solo":
        return nok(f"{command} is not supported by -P solo, which runs one task at a time; use -P threads or prefork")
    state.remote_control.tell_all("resize", by=by)
    return None


def scaling_facts(recipient: Recipient) -> dict[str, int] | None:
    """The autoscaler's entry in `inspect stats`, asked of the parent or the single process. None without autoscale."""
    if recipient.supervisor is not None:
        size = recipient.supervisor.size
        policy, busy, current = size.policy, sum(size.running.values()), len(recipient.supervisor.children)
    else:
        policy, current = recipient.worker.thread_policy, recipient.worker.concurrency
        busy = recipient.launcher.state.busy if recipient.launcher is not None else 0
    if policy is None:
        return None
    return {"max": policy.most, "min": policy.least, "current": current, "qty": busy}


# ---- where it is done


@on_message("resize")
def resize(recipient: Recipient, by: int) -> None:
    """Run *by* more tasks at once, or fewer if *by* is negative, but at least one."""
    worker = recipient.worker
    size = max(worker.concurrency + by, 1)
    if recipient.supervisor is not None:
        # A child that was stopped from a Web UI no longer counts.
        size = recipient.supervisor.size.resize(recipient.supervisor.size.wanted + by)
    elif recipient.launcher is not None and worker.pool_name != "prefork":
        _resize_here(worker, recipient.launcher, size)
        return
    worker.concurrency = size


@on_message("autoscale")
def change_scale(recipient: Recipient, most: int, least: int) -> None:
    """Set the range for autoscaling."""
    worker = recipient.worker
    worker.autoscale = (most, least)
    if recipient.supervisor is not None:
        recipient.supervisor.size.rescale(most, least)
    elif worker.thread_policy is not None:
        worker.thread_policy.change(most, least)


@on_message("restart")
def restart(recipient: Recipient, modules: Any = None, reload: bool = False) -> None:
    """Import or reload modules, then restart the children, which are forked with the new modules."""
    reload_modules(recipient.worker.app, modules, reload)
    if recipient.supervisor is not None:
        recipient.supervisor.restart()


def _resize_here(worker: Any, launcher: Launcher, size: int) -> None:
    if worker.pool_name == "asyncio":
        launcher.reconfiguration.resize_loop(size)
    else:
        size = min(size, _MOST_THREADS)
        launcher.reconfiguration.resize(size)
    worker.concurrency = size
