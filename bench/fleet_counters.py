"""What Redis says that it has done, between two moments and per job."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import comb
from typing import Any

import redis


@dataclass(frozen=True, slots=True)
class Counters:
    """
    A server's counters at a moment, or what they grew by.

    Attributes:
        seconds: On this machine's clock.
        cpu_us: User and system time of the server.
        reads: How often it read from a socket.
        calls: Per command, those that a script sends included.
        command_us: Per command, likewise; a script's own holds that of the commands it sends.
    """

    seconds: float
    cpu_us: float
    reads: int
    calls: Mapping[str, int] = field(default_factory=dict)
    command_us: Mapping[str, int] = field(default_factory=dict)

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
    What one job cost Redis, above what the fleet costs when it is at rest.

    Attributes:
        cpu_us: Time of the server's process.
        gross_us: The same with what the fleet at rest costs in that time. A fleet at work looks for jobs less often
            than one at rest, so where it is slow, as on a busy machine, the truth lies between the two.
        commands: All that were executed, those inside scripts included.
        sent: Those that came from a client.
        evalsha: Scripts.
        command_us: Time inside commands, without what reading, writing and polling take. By the clock on the wall: a
            server that is made to wait for its core counts that, too.
        reads: From sockets; several commands may come in one.
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
        Of each of *jobs* that were done in the time of *work*.

        Args:
            rest: The same fleet with nothing to do.
            sent_shares: Of each command, which share of its calls came from a client; 1 where it is not named.
        """
        span = work.seconds / rest.seconds

        def per_job(at_work: float, at_rest: float) -> float:
            return (at_work - at_rest * span) / jobs

        def sent(counts: Mapping[str, int]) -> float:
            # EXEC's time holds that of the commands it runs, which are counted as sent.
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


def ratio(ours: list[float], theirs: list[float]) -> str:
    """Ours to theirs, pair by pair; empty where theirs is next to nothing."""
    if not ours or len(ours) != len(theirs) or min(map(abs, theirs)) < 0.01:
        return ""
    middle, low, high = interval([one / other for one, other in zip(ours, theirs, strict=True)])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
