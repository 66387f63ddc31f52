"""
Calls death handlers at least once, even if the process that has to call them is killed.

1. The script that settles the dead job also writes a record to Redis: the handlers of this job are pending, and which
   owner has to call them.
2. That process calls the handlers and then deletes the record. If it is killed in between, they are called twice.
3. At each beat, every process that has death handlers looks for records whose owner is gone, takes them over and
   continues with step 2.

No record is written if the process has no handler for the error, or with the basic fetcher, whose jobs are lost with
their process, too.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.errors import LateDeathError, PoisonPillError, RedisError, RedisReplyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import log, log_context
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import pending_deaths
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import error_class_name, error_text

# The most records taken over per beat: the handlers may be so slow that they are why the other process was killed.
_MOST_AT_A_TIME = 100
_POISON_PILL = error_class_name(PoisonPillError())


class PendingDeaths:
    """
    The pending death handlers of one process.

    Args:
        is_kept: Whether any records are written.
        must_keep: Whether to write records even if this process has no handlers; the next process that has some calls
            them.
    """

    def __init__(
        self,
        pool: Pool,
        ownership: Ownership,
        hooks: Hooks,
        dialect: Callable[[], Dialect],
        *,
        is_kept: bool = True,
        must_keep: bool = False,
    ) -> None:
        self._pool = pool
        self._ownership = ownership
        self._hooks = hooks
        self._dialect = dialect
        self._is_kept = is_kept
        self._must_keep = must_keep
        self._numbers = itertools.count(1)
        # Fields that hold no record of ours, and were logged as such.
        self._unreadable: set[bytes] = set()
        self._is_refused = False

    def prepare(self, payload: Mapping[str, Any], raw: bytes, error: BaseException) -> "PendingDeath":
        """Return what to write when a job is settled that will not be retried."""
        has_handler = self._must_keep or self._hooks.has_death_handler_for(error)
        if not self._is_kept or not has_handler or "class" not in payload:
            return PendingDeath(self._pool, self._hooks, None)
        text = pending_deaths.record_of(payload, raw, error_class_name(error), error_text(error), self._dialect())
        field = self._new_field()
        return PendingDeath(self._pool, self._hooks, field, pending_deaths.commands_of(field, text))

    @property
    def questions(self) -> Sequence[Command]:
        """What to ask Redis before `take_over`, which is only needed if the reply is not 0."""
        return [("EXISTS", keys.DEATHS)] if self._may_take_over else []

    @property
    def _may_take_over(self) -> bool:
        return self._is_kept and self._hooks.has_death_handlers

    def take_over(self, link: Link) -> Iterator[tuple["PendingDeath", dict[str, Any], BaseException]]:
        """
        Take over the records of processes that are gone. Each has to be announced.

        Raises:
            RedisError: Redis is unreachable.
        """
        if not self._may_take_over:
            return
        try:
            yield from itertools.islice(self._taken_over(link), _MOST_AT_A_TIME)
            self._is_refused = False
        except RedisReplyError as error:
            if error.is_about_server:
                raise
            if not self._is_refused:
                self._is_refused = True
                log.error(
                    "death handlers that other processes left uncalled cannot be called: %s; check that the key %s is "
                    "a hash and that this Redis user may read and write it",
                    error,
                    keys.DEATHS,
                )

    def _taken_over(self, link: Link) -> Iterator[tuple["PendingDeath", dict[str, Any], BaseException]]:
        fields = pending_deaths.fields(link)
        own = self._ownership.current.name
        owners = {pending_deaths.owner_in(field) for field in fields} - {own}
        alive = pending_deaths.entered(link, owners) | {own}
        for field in fields:
            if pending_deaths.owner_in(field) in alive or field in self._unreadable:
                continue
            text = pending_deaths.record(link, field)
            if text is None:
                continue
            death = pending_deaths.death_of(text)
            if death is None:
                self._unreadable.add(field)
                log.error("the field %r of %s is not the death of a job; it is ignored", field, keys.DEATHS)
                continue
            error = _error_of(death)
            new = self._new_field()
            if self._hooks.has_death_handler_for(error) and pending_deaths.take_over(link, field, new, text):
                with log_context(death.payload):
                    log.info("%s ended before it called the death handlers", pending_deaths.owner_in(field))
                yield PendingDeath(self._pool, self._hooks, new), death.payload, error

    def _new_field(self) -> bytes:
        return pending_deaths.field_of(self._ownership.current.name, next(self._numbers))


class PendingDeath:
    """
    One job's death whose handlers have not been called yet.

    Args:
        field: The field of the record in Redis, or None if there is no record.
        commands: Commands to send when the job is settled, in a place where they may fail.
    """

    __slots__ = ("_field", "_hooks", "_pool", "commands")

    def __init__(self, pool: Pool, hooks: Hooks, field: bytes | None, commands: Sequence[Command] = ()) -> None:
        self._pool = pool
        self._hooks = hooks
        self._field = field
        self.commands = commands

    def announce(self, payload: dict[str, Any], error: BaseException) -> None:
        """Call the handlers, then delete the record if there is one."""
        self._hooks.announce_death(payload, error)
        if self._field is None:
            return
        try:
            pending_deaths.remove(self._pool, self._field)
        except RedisError as failure:
            log.warning(
                "death handlers were called, but Redis could not record it; they may be called again: %s", failure
            )


def _error_of(death: pending_deaths.Death) -> BaseException:
    if death.error_class == _POISON_PILL:
        return PoisonPillError(death.message)
    return LateDeathError(death.message, death.error_class)
