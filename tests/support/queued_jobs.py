"""The jobs that wait in a queue."""

import json
from typing import Any

import redis


def queued_jobs(client: redis.Redis, queue: str = "default") -> list[dict[str, Any]]:
    """The payloads of a queue, next to run first."""
    return [json.loads(raw) for raw in client.lrange(f"queue:{queue}", 0, -1)][::-1]
