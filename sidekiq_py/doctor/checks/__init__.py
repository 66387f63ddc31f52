"""
All checks, by group, in the order of a report.

A check is a function from the facts to findings. It yields at least one finding, unless it does not apply.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sidekiq_py.doctor.checks import (
    classes,
    clocks,
    declared,
    foreign,
    in_flight,
    key_types,
    processes,
    queues,
    redis_server,
    times,
)
from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding
from sidekiq_py.doctor.keyspace import Part
from sidekiq_py.wire import keys


@dataclass(frozen=True, slots=True)
class Check:
    """
    One question about a Redis.

    Args:
        name: A short, stable name for programs.
        group: The heading under which it is shown.
        topic: What it looks at, to be followed by "... could not be looked at".
        needed: Keys that must be readable before the check can say that all is in order.
        walked: Key names that must have been scanned completely before it can say so.
    """

    name: str
    group: str
    topic: str
    look: Callable[[Facts], Iterable[Finding]]
    needed: tuple[str, ...] = ()
    walked: Part | None = None


_SETS = (keys.SCHEDULE, keys.RETRY)
_REGISTRY = (keys.OWNERS, keys.DEPARTED)

CHECKS: tuple[Check, ...] = (
    Check("redis-version", "Redis", "the server's version", redis_server.version),
    Check("eviction", "Redis", "eviction", redis_server.eviction),
    Check("memory", "Redis", "memory", redis_server.memory),
    Check("persistence", "Redis", "persistence", redis_server.persistence),
    Check("replication", "Redis", "replication", redis_server.replication),
    Check("key-types", "Redis", "types of keys", key_types.fitting),
    Check("processes", "Processes", "the processes", processes.present),
    Check("mixed-releases", "Processes", "releases of Sidekiq", processes.mixed_releases),
    Check("dialect", "Processes", "the dialect", processes.dialect),
    Check("writers", "Processes", "what Python processes write", processes.writers),
    Check("clock", "Clocks and times", "this machine's clock", clocks.this_machine),
    Check("process-clocks", "Clocks and times", "the processes' clocks", clocks.processes),
    Check("future-jobs", "Clocks and times", "jobs from the future", clocks.stamps),
    Check("time-units", "Clocks and times", "units of time", times.units),
    Check("unworked-queues", "Queues", "queues that no process serves", queues.unworked, walked=Part.QUEUES),
    Check("due-elsewhere", "Queues", "where due jobs go", queues.due_elsewhere, _SETS),
    Check("paused", "Queues", "paused queues", queues.paused, (keys.PAUSED,)),
    Check("latency", "Queues", "latency", queues.late),
    Check("overdue", "Queues", "overdue jobs", queues.overdue, _SETS),
    Check("unlisted-queues", "Queues", "the set of queues", queues.unlisted, (keys.QUEUES,), Part.QUEUES),
    Check("unreadable-jobs", "Jobs", "unreadable jobs", queues.unreadable),
    Check("dead-set", "Jobs", "the dead set", queues.dead_set, (keys.DEAD,)),
    Check("unserved-classes", "Jobs", "classes that no process serves", classes.unserved),
    Check("refused-classes", "Jobs", "retries of unknown classes", classes.refused, (keys.RETRY,)),
    Check("wrappers", "Jobs", "wrappers of Active Job", classes.wrappers),
    Check("declared-queues", "Jobs", "this program's queues", declared.queues),
    Check("declared-options", "Jobs", "this program's options", declared.options),
    Check("orphans", "In flight", "jobs of dead processes", in_flight.orphans, _REGISTRY),
    Check("unentered-owners", "In flight", "owners that are not registered", in_flight.unentered, _REGISTRY, Part.OURS),
    Check("suspects", "In flight", "suspects", in_flight.suspects, (keys.SUSPECTS,)),
    Check("orphans-of-ruby", "In flight", "private lists of Ruby's fetchers", in_flight.of_ruby, walked=Part.ALL),
    Check("products", "Others on this Redis", "Pro, Enterprise and gems", foreign.products, walked=Part.ALL),
    Check("marked-jobs", "Others on this Redis", "jobs for Ruby's middleware", foreign.marked_jobs),
    Check("extensions", "Others on this Redis", "delayed extensions", foreign.extensions),
    Check("namespaces", "Others on this Redis", "namespaces", foreign.namespaces, walked=Part.ALL),
)
