"""The step that kills a Python worker while it runs a job."""

import time
from collections.abc import Callable

from sidekiq_py.demo.programs import Program
from sidekiq_py.demo.record import NotSeenError
from sidekiq_py.demo.stage import Sent, Stage
from sidekiq_py.engine.run.processed_count import PERIOD_SECONDS
from sidekiq_py.wire import keys

_MARGIN_SECONDS = 0.5


def kill_and_recover(
    stage: Stage,
    job: Sent,
    worker: Program,
    *,
    start: Callable[[], Program],
    begun: str,
    let_go: str,
    done: str,
) -> None:
    """
    Kill *worker* with SIGKILL while it runs *job*, and verify that a new worker runs the job again.

    Args:
        start: Starts the new worker.
        begun, done: What the job prints when it starts and when it ends.
        let_go: The file in the stage's folder that keeps the job waiting; deleting it lets the job finish.
    """
    screen = stage.screen
    screen.output(worker.label, worker.said(job.jid, begun))
    _show_in_flight(stage, job)
    # A worker writes its count of successes a little later, and the demo checks the totals at the end.
    time.sleep(PERIOD_SECONDS + _MARGIN_SECONDS)
    worker.kill()
    screen.command(f"kill -KILL {worker.pid}")
    screen.say(
        "The worker is gone, and had no time to clean up. A job that Ruby fetches with BRPOP exists only in its "
        "process; this one is still in Redis:"
    )
    _show_in_flight(stage, job)
    (stage.folder / let_go).unlink()
    successor = start()
    seen = stage.tape.wait_for("RPUSH", job.seen.key, job.jid, after=job.seen)
    if seen.payload != job.seen.payload:
        raise NotSeenError(f"the job came back with different bytes: {seen.payload}")
    screen.say(f"A new Python worker (pid {successor.pid}) sees that the owner is dead, and requeues the same bytes:")
    screen.redis(seen.line, seen.payload)
    stage.performed(successor, job, done)


def _show_in_flight(stage: Stage, job: Sent) -> None:
    for owner in map(bytes.decode, stage.pool.command("HKEYS", keys.OWNERS)):
        inbox = keys.inbox(owner, job.seen.key.removeprefix(keys.queue("")))
        for command in (("HVALS", keys.in_flight(owner)), ("LRANGE", inbox, "0", "-1")):
            for raw in stage.pool.command(*command):
                if job.jid.encode() in raw:
                    stage.screen.redis(" ".join(command), raw.decode())
                    return
    raise NotSeenError(f"{job.jid} in flight, in the hash or an inbox of any owner")
