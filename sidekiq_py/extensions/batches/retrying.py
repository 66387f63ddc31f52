"""Find members in Redis: in `retry` and in the dead set to retry them, and anywhere by their jids."""

from collections.abc import Iterator, Sequence, Set
from itertools import chain

from sidekiq_py.api.bulk import BulkResult, slices
from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.api.job_sets import DeadSet, JobSet, RetrySet, ScheduledSet, SortedEntry
from sidekiq_py.api.queue import Queue
from sidekiq_py.client.sync_client import Client
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches import rows, state, steps
from sidekiq_py.extensions.batches.member import TRACKED_KEY, membership_of
from sidekiq_py.extensions.batches.pretending import pretending, waiting_payloads
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.redis_access.reads import in_flight_counts, queues

# How many rows one step changes, because a call costs Redis more than the change of a row.
_ROWS = 100
_SETS: tuple[type[RetrySet] | type[DeadSet] | type[ScheduledSet], ...] = (RetrySet, DeadSet, ScheduledSet)


def standing(pool: Pool) -> Iterator[JobRecord]:
    """
    Yield every job in Redis: in queues, in sets, in flight. Reads everything, so this is for people and for the audit.
    A job that moves meanwhile may be missed.
    """
    for name in queues.names(pool):
        yield from _readable(Queue(name, pool=pool))
    for kind in _SETS:
        yield from kind(pool=pool)
    owners = dict.fromkeys(count.owner for count in in_flight_counts.counts(pool))
    for owner in owners:
        for queue, raw in in_flight_counts.jobs(pool, owner):
            yield JobRecord(raw, queue)


def _readable(queue: Queue) -> Iterator[JobRecord]:
    """The jobs of a queue; none if its key has a wrong type, which the doctor reports."""
    try:
        yield from queue
    except RedisReplyError as error:
        # The jobs of a queue that this user may not read are not lost.
        if error.code != "WRONGTYPE":
            raise


def numbers_of(pool: Pool, bid: str, jids: Set[str]) -> list[int]:
    """The numbers of the members with these ids. Members that have not failed are searched for everywhere."""
    found = {one.jid: one.number for one in state.members(pool, bid) if one.jid in jids}
    if found.keys() != jids:
        payloads = waiting_payloads() if pretending() is not None else (record.item for record in standing(pool))
        for payload in payloads:
            membership = membership_of(payload)
            if membership is not None and membership.bid == bid and payload.get("jid") in jids:
                found[str(payload["jid"])] = membership.number
    return list(found.values())


def retry_failed(client: Client, bid: str) -> int:
    """Move the batch's members from `retry` and the dead set back to their queues. Returns how many there were."""
    if pretending() is not None:
        return 0  # The testing modes simulate no retries.
    count = 0
    sets: tuple[JobSet, ...] = (RetrySet(client=client), DeadSet(client=client))
    for one in sets:
        results = [_retry(client.pool, bid, one, part) for part in slices(_members(one, bid), None)]
        count += sum(result.moved for result in results)
        errors = [error for result in results for _, error in result.errors]
        if errors:
            raise errors[0]
    return count


def _members(one: JobSet, bid: str) -> Iterator[tuple[SortedEntry, int]]:
    """The batch's members in a set, with their numbers."""
    for entry in one.scan(f'*"{bid}"*'):
        membership = membership_of(entry.item)
        if membership is not None and membership.bid == bid:
            yield entry, membership.number


def _retry(pool: Pool, bid: str, one: JobSet, part: Sequence[tuple[SortedEntry, int]]) -> BulkResult:
    """Retry one slice of members. The rows of a tracked batch change with them."""
    tracked = [(entry, number) for entry, number in part if entry.get(TRACKED_KEY)]
    tracks = rows.tracks_of(pool, bid, [number for _, number in tracked])
    result = one.retry_many([entry for entry, _ in part])
    # A slice has no more entries than a result has errors. If an entry was gone, another program has retried it, or its
    # row has changed; only one that Ruby's Web UI has deleted at this very moment is shown as enqueued. If this process
    # is killed before this, the rows are corrected when the jobs begin.
    refused = {id(entry) for entry, _ in result.errors}
    again = [
        (number, track)
        for (entry, number), track in zip(tracked, tracks, strict=True)
        if track is not None and id(entry) not in refused
    ]
    for some in slices_of(again, _ROWS):
        steps.call(pool, "enqueued_again", bid, *chain.from_iterable(some))
    return result
