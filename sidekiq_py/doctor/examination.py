"""Run all checks on one Redis and collect their findings."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from sidekiq_py import program
from sidekiq_py.api.source import pool_for
from sidekiq_py.client.sync_client import Client
from sidekiq_py.clock import now_seconds
from sidekiq_py.doctor.checks import CHECKS, Check
from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, Level, unseen
from sidekiq_py.doctor.keyspace import Part
from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from sidekiq_py.extension import DoctorCheck
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import place
from sidekiq_py.registry import JobDefinition

_OF_A_KIND = 20
_ADVICE = {
    "NOPERM": "Let this user run that command, or run the doctor as a user who may.",
    "WRONGTYPE": "A key has a different type from the one Sidekiq gives it; see `types of keys`.",
}


class Examined(NamedTuple):
    """The findings of one check."""

    check: Check
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """
    The findings of all checks.

    Args:
        url: The URL of the Redis, without its password. A namespace follows a `#`.
        about: A few numbers: `server`, `ruby_processes`, `python_processes`, `queues`, `jobs_waiting`,
            `jobs_looked_at`, `keys_looked_at`. Those that could not be read are missing.
        keys_are_whole: True if every key name was looked at; otherwise as many as the time limit allowed.
    """

    url: str
    about: dict[str, Any]
    examined: tuple[Examined, ...]
    keys_are_whole: bool

    def findings(self, *levels: Level) -> Iterator[tuple[Check, Finding]]:
        """Yield the findings of these levels (all by default), each with the check that made it."""
        for examined in self.examined:
            for finding in examined.findings:
                if not levels or finding.level in levels:
                    yield examined.check, finding

    def first_findings(self, *levels: Level, rest: str) -> Iterator[tuple[Check, Finding]]:
        """
        Like `findings`, but of each check and level only the first twenty, then one that says how many more there are.

        Args:
            rest: What lists them all.
        """
        for (_, level), group in groupby(self.findings(*levels), key=lambda found: (found[0].name, found[1].level)):
            found = list(group)
            yield from found[:_OF_A_KIND]
            if len(found) > _OF_A_KIND:
                more = f"… and {len(found) - _OF_A_KIND:,} more like this ({rest} lists all)."
                yield found[0][0], Finding(level, more)

    def count(self, level: Level) -> int:
        """The number of findings of this level."""
        return sum(1 for _ in self.findings(level))

    def is_healthy(self, *, strict: bool = False) -> bool:
        """
        True if there is no problem.

        Args:
            strict: Count warnings as problems.
        """
        return not self.count(Level.PROBLEM) and not (strict and self.count(Level.WARNING))


def examine(
    *,
    pool: Any = None,
    client: Client | None = None,
    declared: Iterable[JobDefinition] | None = None,
    now: Callable[[], float] = now_seconds,
) -> Report:
    """
    Run every check. Only reads, with limits that hold on a Redis of any size.

    Args:
        pool: The Redis to examine: a `Pool`, a redis-py client, or a URL. Without *pool* and *client*, the program's
            own.
        client: A client whose Redis to examine, instead of *pool*.
        declared: The jobs of this program, such as `registry`. Their classes count as served, and their options are
            checked.
        now: This machine's clock, in seconds since the epoch.

    Raises:
        RedisConnectionError: Redis cannot be reached.
        ReplyLostError: The connection broke.
        RedisReplyError: Redis does not let this user in, or does not have the URL's database.
    """
    links = pool_for(pool, client)
    facts = Facts(
        links,
        pinned=program.settings().pinned_dialect(),
        declared=None if declared is None else _by_class(declared),
        now=now,
    )
    # A user without access gets the error here. For a server that cannot hold jobs, no other check makes sense.
    is_unfit = facts.server.mode in ("cluster", "sentinel")
    checks = CHECKS[:1] if is_unfit else (*CHECKS, *_of_extensions(links))
    examined = tuple(Examined(check, _look(check, facts)) for check in checks)
    return Report(place(links.settings), facts.describe(), examined, _are_keys_whole(facts))


def _of_extensions(pool: Pool) -> Iterator[Check]:
    program.extensions.load_installed()
    for extension in program.extensions:
        try:
            checks = [Check(one.name, one.group, one.topic, partial(_look_at, one, pool)) for one in extension.checks()]
        except Exception as error:  # noqa: BLE001 - as in `_look`
            topic = f"what the extension `{extension.name}` checks"
            failed = DoctorCheck(f"extension-{extension.name}", "Extensions", topic, partial(_fail, error))
            checks = [Check(failed.name, failed.group, topic, partial(_look_at, failed, pool))]
        yield from checks


def _look_at(check: DoctorCheck, pool: Pool, facts: Facts) -> Iterable[Finding]:
    try:
        yield from check.look(pool)
    except (RedisConnectionError, ReplyLostError) as error:
        # It may have asked another Redis. If it is this one that is out of reach, that raises here, too.
        with suppress(RedisReplyError):
            pool.command("PING")
        yield unseen(check.topic, f"the check `{check.name}` could not reach a Redis that it uses: {error}")


def _fail(error: Exception, pool: Pool) -> Iterable[Finding]:
    raise error


def _look(check: Check, facts: Facts) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    try:
        for finding in check.look(facts):
            if not isinstance(finding, Finding):
                raise TypeError(f"it yields {finding!r}, which is no Finding")
            findings.append(finding)
        gaps = [unseen(check.topic, gap) for gap in facts.gaps(check.needed, check.walked)] if findings else []
    except RedisReplyError as error:
        return (unseen(check.topic, f"Redis answered: {error}", _ADVICE.get(error.code, "")),)
    except RedisError:
        # Redis is out of reach, so no other check could look either.
        raise
    except Exception as error:  # noqa: BLE001 - whatever a check trips over, the others have to be shown
        because = f"the check `{check.name}` failed: {type(error).__name__}: {error}"
        gaps = [unseen(check.topic, because, "That is a fault of the check: report it, with this text.")]
    if not gaps:
        return tuple(findings)
    # A problem that was found is one even without the missing facts; an OK may not be.
    certain = [finding for finding in findings if finding.level is not Level.OK]
    return (*certain, *gaps)


def _by_class(declared: Iterable[JobDefinition]) -> dict[str, JobDefinition]:
    return {name: definition for definition in declared for name in definition.classes()}


def _are_keys_whole(facts: Facts) -> bool:
    try:
        return Part.ALL in facts.keyspace.whole
    except (RedisConnectionError, ReplyLostError):
        raise
    except Exception:  # noqa: BLE001 - the checks that need it have said why
        return False
