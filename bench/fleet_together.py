"""
Both fleets at work at the same time, each on a Redis of its own.

On a machine with other work, minutes apart are worlds apart: ratios of turns came out between 0.9 and 1.7 for one cell.
Whatever else runs now slows both sides alike.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from bench.fleet_counters import Counters, interval, ratio
from bench.fleet_loads import Work, of_backlog
from bench.fleet_sides import Server, Shape, fleet, pinned_server


def row(
    shape: Shape,
    work: Work,
    load: Callable[[Work, Server, int], Counters],
    *,
    count: int,
    rounds: int,
    sides: Sequence[str],
) -> str:
    """
    µs of Redis's CPU a job, rest not taken off: the median of each side, and ours to the other's round by round.

    Args:
        load: What gives the jobs, so many of them, and waits for their end.
        sides: Ours first.
    """
    costs: dict[str, list[float]] = {side: [] for side in sides}
    with ExitStack() as stack:
        servers = [stack.enter_context(pinned_server()) for _ in sides]
        at_once = stack.enter_context(ThreadPoolExecutor(len(sides)))
        for side, server in zip(sides, servers, strict=True):
            stack.enter_context(fleet(side, shape, server))
            # The first jobs of a process load code and scripts.
            of_backlog(work, server, 50 * shape.processes)
        for _ in range(rounds):
            for side, counters in zip(
                sides, at_once.map(lambda server: load(work, server, count), servers), strict=True
            ):
                costs[side].append(counters.cpu_us / count)
    shown = ", ".join(f"{side} {interval(values)[0]:.0f}" for side, values in costs.items())
    ours, theirs = costs.values()
    return f"{shown}, ratio {ratio(ours, theirs)}"
