"""
Do the clocks agree?

Each process computes schedules, retries and latencies by its own clock. Here they are compared with Redis's. A
process's clock is read from its heartbeat: the time it states, against the time at which the key was written, which its
remaining time to live (of a minute) shows.
"""

from collections.abc import Iterator

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, Level, listed, ok, span
from sidekiq_py.logs import counted

# A smaller difference does not matter beside the interval at which due jobs are polled.
WARNING_SECONDS = 5.0
PROBLEM_SECONDS = 60.0
_ADVICE = "Synchronize all machines with NTP (chrony, systemd-timesyncd)."
_MEANS = "Scheduled jobs and retries start that much too early or too late, and latencies are off by the same amount."


def this_machine(facts: Facts) -> Iterator[Finding]:
    """Compare this machine's clock with Redis's."""
    reading = facts.clock
    surplus = abs(reading.ahead_seconds) - reading.error_seconds
    seen = f"The clock of this machine is {_apart(reading.ahead_seconds)} that of Redis."
    if surplus < WARNING_SECONDS:
        yield ok(f"The clock of this machine and that of Redis differ by {span(reading.ahead_seconds)}.")
    else:
        yield Finding(_level(surplus), f"{seen} {_MEANS}", _ADVICE)


def processes(facts: Facts) -> Iterator[Finding]:
    """Compare each process's clock with Redis's."""
    readings = [(worker, worker.ahead_seconds) for worker in facts.fleet.workers]
    known = [(worker, ahead) for worker, ahead in readings if ahead is not None]
    off = [(worker, ahead) for worker, ahead in known if abs(ahead) >= WARNING_SECONDS]
    if not off:
        worst = max((abs(ahead) for _, ahead in known), default=0.0)
        yield ok(f"The clocks of {counted(len(known), 'process', 'processes')} are within {span(worst)} of Redis's.")
        return
    named = listed(f"{worker.title} is {_apart(ahead)} it" for worker, ahead in off)
    yield Finding(
        _level(max(abs(ahead) for _, ahead in off)),
        f"Some clocks differ from that of Redis: {named}. {_MEANS}",
        _ADVICE,
        tuple(worker.identity for worker, _ in off),
    )


def stamps(facts: Facts) -> Iterator[Finding]:
    """Jobs with a time in the future: their producer's clock is ahead."""
    now = facts.clock.redis_seconds
    late = [(job, stamp - now) for job in facts.sample.jobs if (stamp := job.latest_stamp()) is not None]
    future = [(job, ahead) for job, ahead in late if ahead >= WARNING_SECONDS]
    if not future:
        yield ok("No job has a time in the future.")
        return
    classes = sorted({job.job_class for job, _ in future})
    worst = max(ahead for _, ahead in future)
    yield Finding(
        _level(worst),
        f"{counted(len(future), 'job has', 'jobs have')} a time in the future, by up to {span(worst)}: "
        f"{listed(classes)}. The clock of the machine that pushed them is ahead.",
        _ADVICE,
        tuple(classes),
    )


def _apart(ahead: float) -> str:
    return f"{span(ahead)} {'ahead of' if ahead > 0 else 'behind'}"


def _level(seconds: float) -> Level:
    return Level.PROBLEM if seconds >= PROBLEM_SECONDS else Level.WARNING
