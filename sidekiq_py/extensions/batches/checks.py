"""What the doctor says of batches."""

from collections.abc import Iterator
from itertools import islice

from sidekiq_py.doctor.finding import Finding, counted, listed, note, ok, warning
from sidekiq_py.extension import DoctorCheck
from sidekiq_py.extensions.batches import state
from sidekiq_py.extensions.batches.ruby_processes import without_support
from sidekiq_py.redis_access.connection.pool import Pool

_MOST_LOOKED_AT = 500


def batches(pool: Pool) -> Iterator[Finding]:
    """Batches that cannot end by themselves."""
    found = [one for one in state.read_many(pool, list(islice(state.bids(pool, running=True), _MOST_LOOKED_AT))) if one]
    if not found:
        return
    bare = without_support(pool)
    if bare:
        queues = sorted({queue for _, served in bare for queue in served})
        yield warning(
            f"{counted(len(bare), 'Ruby process does', 'Ruby processes do')} not know batches: "
            f"{listed(identity for identity, _ in bare)}. What they take of a batch from {listed(queues)} is not "
            "counted.",
            "Load in each Ruby process the file that `sidekiq-py ruby-support` prints, or push to other queues.",
            [identity for identity, _ in bare],
        )
    lost = [one for one in found if one.lost]
    if lost:
        yield warning(
            f"{counted(sum(one.lost for one in lost), 'job')} of {counted(len(lost), 'batch', 'batches')} "
            f"{'is' if sum(one.lost for one in lost) == 1 else 'are'} lost: Redis holds them nowhere.",
            "`sidekiq-py batches show BID` names them; push them again, or close the case by `batches delete BID`.",
            [one.bid for one in lost],
        )
    opened = [one for one in found if one.openers]
    if opened:
        yield note(
            f"{counted(len(opened), 'batch is', 'batches are')} open: somebody may still add jobs, or has died while "
            "adding.",
            "`sidekiq-py batches show BID` says who; `batches close BID` closes one whose program is gone.",
            [one.bid for one in opened],
        )
    damaged = [one for one in found if one.damaged]
    if damaged:
        yield warning(
            f"{counted(len(damaged), 'batch is', 'batches are')} damaged: another program has written to "
            f"{listed(sorted({name for one in damaged for name in one.damaged}))}. The jobs run all the same; "
            "callbacks may never come.",
            "Find the program that writes to keys of `sidekiq_py:batch:*`; `batches delete BID` gives a batch up.",
            [one.bid for one in damaged],
        )
    if not bare and not lost and not damaged:
        yield ok(f"{counted(len(found), 'batch', 'batches')} can end.")


CHECKS = (DoctorCheck("batches", "Batches", "the batches", batches),)
