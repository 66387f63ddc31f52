"""
Measures both fleets at the same time, each on its own Redis.

On a machine with other load, measurements that are minutes apart cannot be compared: when the sides took turns, the
ratios came out between 0.9 and 1.7 for one cell. At the same time, other load slows both sides equally.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from bench.fleet_counters import Counters, interval, ratio
from bench.fleet_loads import Work, warm_up
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
    µs of Redis's CPU per job, without subtracting the cost at rest: the median of each side, and the ratio of ours to
    the other's, round by round.

    Args:
        load: Adds the given number of jobs and waits until they have ended.
        sides: The sides, ours first.
    """
    costs: dict[str, list[float]] = {side: [] for side in sides}
    with ExitStack() as stack:
        servers = [stack.enter_context(pinned_server()) for _ in sides]
        at_once = stack.enter_context(ThreadPoolExecutor(len(sides)))
        for side, server in zip(sides, servers, strict=True):
            stack.enter_context(fleet(side, shape, server))
            warm_up(work, server, shape.processes)
        for _ in range(rounds):
            for side, counters in zip(
                sides, at_once.map(lambda server: load(work, server, count), servers), strict=True
            ):
                costs[side].append(counters.cpu_us / count)
    shown = ", ".join(f"{side} {interval(values)[0]:.0f}" for side, values in costs.items())
    ours, theirs = costs.values()
    return f"{shown}, ratio {ratio(ours, theirs)}"
