"""
A sentinel promotes a replica to primary while jobs of both languages are running.

Replication is asynchronous: Redis loses what the old primary had acknowledged but not replicated, and no client can
prevent that. The new primary's log shows which jobs it ever received, so jobs that Redis dropped are counted separately
from jobs that a worker lost. Jobs that the Ruby worker's own fetch (BRPOP) loses are also counted separately.
"""

import os
from collections.abc import Callable

from interop_tests.support import failover
from interop_tests.support.ruby import release
from kill_report.stage import Stage


def failovers(stage: Stage) -> set[int]:
    """The primary is killed, with or without having replicated all data, or told to hand over; one way per round."""
    way = stage.turn(failover.WAYS)
    # The failover has its own ledger and accounts. In the round's ledger, jobs whose end the new primary had not
    # received would count a second time, as repeats without a reason.
    folder = stage.folder / "failover"
    folder.mkdir()
    before = dict(os.environ)
    stage.exits.callback(os.environ.update, before)
    found = failover.Stage(release("8.1"), stage.start_redis, folder, stage.exits)
    os.environ.update(found.environment)
    books, ran_after = failover.play(found, way)
    stage.faults[f"Sentinel failover: {way.__name__.replace('_', ' ')}"] += 1
    stage.jobs_in_batches += books.acknowledged - books.dropped - books.lost_by_ruby
    stage.dropped["a primary had not handed them on when it failed"] += books.dropped
    stage.dropped["Ruby's BRPOP had taken them when its connection ended"] += books.lost_by_ruby
    stage.notes["runs too many after a failover: the new primary had not heard of their end"] += books.again
    stage.notes["jobs whose enqueuer did not know"] += books.doubtful
    if books.lost_by_python:
        stage.wrong.append(f"lost by Python: {books}")
    if books.ran + books.dropped + books.lost_by_ruby != books.acknowledged:
        stage.wrong.append(f"not accounted for: {books}")
    if {number % 2 for number in ran_after} != {0, 1}:
        stage.wrong.append("a worker did not go on after the failover")
    return set()


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("failovers", "Sentinel failovers under load", failovers, 4),
]
