"""What Redis reports to have done, between two moments and per job."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import comb
from typing import Any

import redis


@dataclass(frozen=True, slots=True)
class Counters:
    """
    A server's counters at one moment, or their growth between two.

    Attributes:
        seconds: The time on this machine's clock.
        cpu_us: The server's user and system time.
        reads: How often it read from a socket.
        calls: The number of calls per command, including those sent by scripts.
        command_us: The time per command, likewise; a script's time includes that of its commands.
    """

    seconds: float
    cpu_us: float
    reads: int
    calls: Mapping[str, int] = field(default_factory=dict)
    command_us: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, client: "redis.Redis[bytes]") -> "Counters":
        """Read the current counters."""
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
        """The growth since *earlier*."""
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
    The cost of one job for Redis, beyond what the fleet costs at rest.

    Attributes:
        cpu_us: CPU time of the server process.
        gross_us: The same, including what the fleet at rest costs in that time. A busy fleet polls for jobs less often
            than one at rest, so if it is slow, as on a busy machine, the truth lies between the two.
        commands: All commands executed, including those inside scripts.
        sent: The commands that came from a client.
        evalsha: The scripts.
        command_us: The time inside commands, without reading, writing and polling. This is wall-clock time: if the
            server has to wait for its core, that counts too.
        reads: The reads from sockets; one read may bring several commands.
    """

    cpu_us: float
    gross_us: float
    commands: float
    sent: float
    evalsha: float
    command_us: float
    reads: float

    @classmethod
    def of(cls, work: Counters, rest: Counters, jobs: int, sent_shares: Mapping[str, float]) -> "Cost":
        """
        The cost of each of the *jobs* that were done during *work*.

        Args:
            rest: The counters for the same fleet with nothing to do.
            sent_shares: For each command, the share of its calls that came from a client; 1 if it is missing.
        """
        span = work.seconds / rest.seconds

        def per_job(at_work: float, at_rest: float) -> float:
            return (at_work - at_rest * span) / jobs

        def sent(counts: Mapping[str, int]) -> float:
            # EXEC's time includes that of the commands it runs, which are already counted as sent.
            return sum(count * sent_shares.get(name, 1) for name, count in counts.items() if name != "exec")

        return cls(
            per_job(work.cpu_us, rest.cpu_us),
            work.cpu_us / jobs,
            per_job(sum(work.calls.values()), sum(rest.calls.values())),
            per_job(sent(work.calls) + work.calls.get("exec", 0), sent(rest.calls) + rest.calls.get("exec", 0)),
            per_job(work.calls.get("evalsha", 0), rest.calls.get("evalsha", 0)),
            per_job(sent(work.command_us), sent(rest.command_us)),
            per_job(work.reads, rest.reads),
        )


MEASURES = tuple(measure.name for measure in fields(Cost))


def interval(values: list[float]) -> tuple[float, float, float]:
    """
    The median of a sample, and its 95 % confidence interval.

    Fewer than six values cannot give that confidence; the interval is then from the lowest to the highest.
    """
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    cut = 0
    while 2 * sum(comb(count, below) for below in range(cut + 2)) <= 0.05 * 2**count:
        cut += 1
    return middle, ordered[cut], ordered[-1 - cut]


def ratio(ours: list[float], theirs: list[float]) -> str:
    """The ratio of ours to theirs, pair by pair; empty if theirs is close to zero."""
    if not ours or len(ours) != len(theirs) or min(map(abs, theirs)) < 0.01:
        return ""
    middle, low, high = interval([one / other for one, other in zip(ours, theirs, strict=True)])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
