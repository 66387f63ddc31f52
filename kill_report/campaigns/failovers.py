"""
A sentinel makes a replica the primary in the middle of jobs of both languages.

Replication is asynchronous: what the old primary had answered and not handed on, Redis forgets, and no client can keep.
The new primary's log tells which jobs it ever heard of, so what Redis dropped is counted apart from what a worker lost.
The jobs of the Ruby worker that its own fetch (BRPOP) loses are counted apart, too.
"""

import os
from collections.abc import Callable

from interop_tests.support import failover
from interop_tests.support.ruby import release
from kill_report.stage import Stage


def failovers(stage: Stage) -> set[int]:
    """The primary is killed, with or without having handed on what it had, or told to hand over; a way a round."""
    way = stage.turn(failover.WAYS)
    # The failover has a ledger of its own, with its own books: in the round's own what the new primary had not heard of
    # would count a second time, as a repeat without a reason.
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
