"""What Redis says that it has done, between two moments and per job."""

import time
from dataclasses import dataclass, field, fields
from math import comb
from typing import Any

import redis

# What a script or a transaction does is counted under its own commands as well.
_SCRIPTS = ("evalsha", "eval", "fcall")


@dataclass(frozen=True, slots=True)
class Counters:
    """
    A server's counters at a moment, or what they grew by.

    Attributes:
        seconds: On this machine's clock.
        cpu_us: User and system time of the server.
        reads: How often it read from a socket.
        calls: Per command, those that a script sends included.
        command_us: Per command, likewise.
    """

    seconds: float
    cpu_us: float
    reads: int
    calls: dict[str, int] = field(default_factory=dict)
    command_us: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, client: "redis.Redis[bytes]") -> "Counters":
        """As of now."""
        info: dict[str, Any] = client.info("all")
        commands = {name.removeprefix("cmdstat_"): row for name, row in info.items() if name.startswith("cmdstat_")}
        return cls(
            time.monotonic(),
            (info["used_cpu_user"] + info["used_cpu_sys"]) * 1e6,
            info["total_reads_processed"],
            {name: row["calls"] for name, row in commands.items()},
            {name: row["usec"] for name, row in commands.items()},
        )

    def since(self, earlier: "Counters") -> "Counters":
        """What was added."""
        return Counters(
            self.seconds - earlier.seconds,
            self.cpu_us - earlier.cpu_us,
            self.reads - earlier.reads,
            {name: calls - earlier.calls.get(name, 0) for name, calls in self.calls.items()},
            {name: us - earlier.command_us.get(name, 0) for name, us in self.command_us.items()},
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """
    What one job cost Redis, above what the fleet costs when it is idle.

    Attributes:
        cpu_us: Time of the server's process.
        commands: All that were executed, those inside scripts included.
        evalsha: Scripts.
        command_us: Time inside commands, as the server measures it; without what reading, writing and polling take.
        reads: Reads from sockets: some turns of the server's loop.
    """

    cpu_us: float
    commands: float
    evalsha: float
    command_us: float
    reads: float

    @classmethod
    def of(cls, work: Counters, idle: Counters, jobs: int) -> "Cost":
        """Of each of *jobs* that were done in the time of *work*."""
        share = work.seconds / idle.seconds

        def per_job(at_work: float, at_rest: float) -> float:
            return (at_work - at_rest * share) / jobs

        return cls(
            per_job(work.cpu_us, idle.cpu_us),
            per_job(sum(work.calls.values()), sum(idle.calls.values())),
            per_job(work.calls.get("evalsha", 0), idle.calls.get("evalsha", 0)),
            per_job(_inside_us(work), _inside_us(idle)),
            per_job(work.reads, idle.reads),
        )


MEASURES = tuple(measure.name for measure in fields(Cost))


def _inside_us(counters: Counters) -> float:
    """
    Time inside commands, once each: EXEC's holds that of the commands it runs.

    A script's time holds that of its commands too, but those are also sent without one, and both are counted together.
    """
    return sum(us for name, us in counters.command_us.items() if name != "exec")


def interval(values: list[float]) -> tuple[float, float, float]:
    """
    The median of some draws, and between which of them the true one lies in 95 of 100 cases.

    With fewer than six draws nothing is that sure, and these are the lowest and the highest.
    """
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    cut = 0
    while 2 * sum(comb(count, below) for below in range(cut + 2)) <= 0.05 * 2**count:
        cut += 1
    return middle, ordered[cut], ordered[-1 - cut]
