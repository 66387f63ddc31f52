"""The doctor's checks of batches."""

from collections.abc import Iterator
from itertools import islice

from sidekiq_py.doctor.finding import Finding, listed, note, ok, verb, warning
from sidekiq_py.extension import DoctorCheck
from sidekiq_py.extensions.batches import state
from sidekiq_py.extensions.batches.ruby_processes import without_support
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.connection.pool import Pool

_MOST_LOOKED_AT = 500


def batches(pool: Pool) -> Iterator[Finding]:
    """Batches that cannot end on their own."""
    found = [one for one in state.read_many(pool, list(islice(state.bids(pool, running=True), _MOST_LOOKED_AT))) if one]
    if not found:
        return
    bare = without_support(pool)
    if bare:
        queues = sorted({queue for _, served in bare for queue in served})
        yield warning(
            f"{counted(len(bare), 'Ruby process does', 'Ruby processes do')} not know batches: "
            f"{listed(identity for identity, _ in bare)}. Batch jobs that they fetch from {listed(queues)} are not "
            "counted.",
            "Load the file that `sidekiq-py ruby-support` prints in each Ruby process, or push to other queues.",
            [identity for identity, _ in bare],
        )
    lost = [one for one in found if one.lost]
    if lost:
        jobs = sum(one.lost for one in lost)
        yield warning(
            f"{counted(jobs, 'job')} of {counted(len(lost), 'batch', 'batches')} {verb(jobs, 'is', 'are')} lost, not "
            f"found anywhere in Redis: {listed(one.bid for one in lost)}.",
            "`sidekiq-py batches show BID` lists them. Push them again, or drop the batch with `batches delete BID`.",
            [one.bid for one in lost],
        )
    opened = [one for one in found if one.openers]
    if opened:
        yield note(
            f"{counted(len(opened), 'batch is', 'batches are')} open: {listed(one.bid for one in opened)}. A program "
            "may still add jobs, or has died while adding.",
            "`sidekiq-py batches show BID` shows which; `batches close BID` closes a batch whose program is gone.",
            [one.bid for one in opened],
        )
    damaged = [one for one in found if one.damaged]
    if damaged:
        yield warning(
            f"{counted(len(damaged), 'batch is', 'batches are')} damaged ({listed(one.bid for one in damaged)}): "
            "another program has written to "
            f"{listed(sorted({name for one in damaged for name in one.damaged}))}. The jobs still run, but "
            "callbacks may never be enqueued.",
            "Find the program that writes to keys of `sidekiq_py:batch:*`; `batches delete BID` drops a batch.",
            [one.bid for one in damaged],
        )
    if not bare and not lost and not damaged:
        yield ok(f"{counted(len(found), 'batch', 'batches')} can end.")


CHECKS = (DoctorCheck("batches", "Batches", "the batches", batches),)
