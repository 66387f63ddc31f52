"""What workers hold, wherever it stands in flight."""

import redis


def jobs_in_flight(client: redis.Redis, owner: str = "*", *, prefix: str = "") -> list[bytes]:
    """The bytes of all jobs in flight: those in owners' hashes, and those in their inboxes."""
    hashes = client.keys(f"{prefix}sidekiq_py:inflight:{owner}")
    inboxes = client.keys(f"{prefix}sidekiq_py:inbox:{owner}:*")
    in_hashes = [job for key in hashes for job in client.hvals(key)]
    return in_hashes + [job for key in inboxes for job in client.lrange(key, 0, -1)]
