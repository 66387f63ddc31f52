"""
Settles a job of another process that ran past its hard limit, or that someone terminated, before that process is
killed.

The job counts as failed, and its outcome follows from that: retry, dead, or what its definition decides. It is not
recovered as the job of a dead owner, which would run it again at once.
"""

from collections.abc import Sequence

from sidekiq_py.clock import now_seconds
from sidekiq_py.engine.run.attempt import Ended, Surroundings, push_back
from sidekiq_py.errors import HardTimeLimitError, PayloadError, ReplyLostError, SidekiqError, TerminatedError
from sidekiq_py.logs import log_context
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import in_flight
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire.payload import parse_job

BY_SIGNAL = "signal:"


def settle_past_time_limit(around: Surroundings, pool: Pool, owner: str, field: bytes, limit: str) -> bool:
    """
    Settle the job as failed.

    Args:
        owner: The owner that the job is in flight under.
        field: The job's in-flight field.
        limit: The seconds of its hard limit, or a `terminated_by` text.

    Returns:
        False if the job is not in flight: it had already ended, or another worker has it.

    Raises:
        RedisError: Redis is unreachable.
    """
    found = pool.run(lambda link: in_flight.find_job(link, owner, field))
    if found is None:
        return False
    raw, field, listed = found
    queue = in_flight.split_field(field)[2]
    try:
        payload = parse_job(raw)
        definition = around.registry.find_for(payload)
    except PayloadError:
        payload, definition = {}, None

    def settle(vital: Sequence[Effect], counters: Sequence[Effect]) -> bool:
        def once(link: Link) -> bool:
            return in_flight.settle(link, owner, field, vital=vital, counters=counters, listed=listed)

        try:
            return pool.run(once, idempotent=False)
        except ReplyLostError:
            # If the first script went through, the second one writes nothing. The job's own process is frozen, so no
            # one else can have ended the job.
            pool.run(once)
            return True

    error, now = _error_of(limit), now_seconds()
    with log_context(payload):
        outcome = around.after_failure(raw, queue, error, definition, now)
        if outcome.kind == "requeue":
            return settle(outcome.vital or push_back(queue, raw), ())
        ended = Ended(raw, payload, queue, error, now)
        return around.carry_out(ended, around.with_ends_of_extensions(ended, outcome), settle)


def _error_of(limit: str) -> SidekiqError:
    if limit.startswith(BY_SIGNAL):
        return TerminatedError(int(limit.removeprefix(BY_SIGNAL)))
    return HardTimeLimitError(f"the job ran longer than its hard_timeout of {limit} s; its process was killed")
