"""
Do two hundred processes that start, idle and stop together disturb Redis or each other?

Workers with five threads, alternately ours and the real Sidekiq's, are forked from one that has imported everything
they need. This measures what they do with Redis, and not how an interpreter starts. Redis has its own core, and all
workers share the other one. `start`: the time until the last one is registered. `idle`: Redis's CPU. `stop`: the time
from TERM to all until the last one has ended; after that no worker may be left in Redis.
"""

import time

import redis

from bench import ground
from bench.fleet_loads import at_rest
from bench.fleet_sides import SETTLE_SECONDS, Shape, fleet, has_ruby, pinned_server

PROCESSES = 200
# Longer than Ruby's pause of 10 s between beats.
IDLE_SECONDS = 22.0


def run(processes: int = PROCESSES, idle_seconds: float = IDLE_SECONDS) -> list[tuple[str, str]]:
    """The rows of the table."""
    rows: list[tuple[str, str]] = []
    for side in ("ours", *(["ruby"] if has_ruby() else [])):
        with pinned_server() as server:
            began = time.monotonic()
            with fleet(side, Shape(processes), server):
                started = time.monotonic() - began - SETTLE_SECONDS
                idle = at_rest(server, idle_seconds)
                began = time.monotonic()
            stopped = time.monotonic() - began
            name = f"{processes} processes together, {'ours' if side == 'ours' else 'Ruby'}"
            rows.append((f"{name}: start, stop", f"{started:.1f} s, {stopped:.1f} s"))
            rows.append(("… Redis's CPU while they idle", f"{idle.cpu_us / idle.seconds / 1e6:.2%} of a core"))
            rows.append(("… left in Redis after stopping", _left(server.client)))
    return rows


def _left(client: "redis.Redis[bytes]") -> str:
    leases = sum(1 for _ in client.scan_iter("sidekiq_py:lease:*", count=1000))
    return f"{client.scard('processes')} processes, {client.hlen('sidekiq_py:owners')} owners, {leases} leases"


if __name__ == "__main__":
    ground.main(run)
