"""
Calls death handlers at least once, though the process that owes it to a job may be killed.

1. The script that ends the job writes down in Redis that its death is to be announced, and who is to do that.
2. The handlers are called; then the record is struck off. Killed between, the handlers are called twice.
3. Every process that has handlers looks at each beat for records whose owner has gone, takes them over, and goes on
   with step 2.

Nothing is written where the process has no handler for this error, and none with the basic fetcher, whose jobs are lost
with their process as well.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.errors import LateDeathError, PoisonPillError, RedisError, RedisReplyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import log_context
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import owed_deaths
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import error_class_name, error_text

_log = logging.getLogger("sidekiq")

# What one beat takes over: the handlers of others may be as slow as those that killed them.
_MOST_AT_A_TIME = 100
_POISON_PILL = error_class_name(PoisonPillError())


class OwedDeaths:
    """
    Args:
        is_kept: Whether anything is written down.
        must_keep: Whether for a process that calls no handlers itself; the next that has some does.
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
        # What stands there and is none of ours, once that was logged.
        self._unreadable: set[bytes] = set()
        self._is_refused = False

    def owe(self, payload: Mapping[str, Any], raw: bytes, error: BaseException) -> "OwedDeath":
        """What to write along with the end of a job that will not be tried again."""
        is_minded = self._must_keep or self._hooks.minds_death(error)
        if not self._is_kept or not is_minded or "class" not in payload:
            return OwedDeath(self, None, ())
        text = owed_deaths.record_of(payload, raw, error_class_name(error), error_text(error), self._dialect())
        field = self._new_field()
        return OwedDeath(self, field, tuple(owed_deaths.owe(field, text)))

    def announce(self, field: bytes | None, payload: dict[str, Any], error: BaseException) -> None:
        """Call the handlers, and strike off *field*, if the death is written down."""
        self._hooks.announce_death(payload, error)
        if field is None:
            return
        try:
            owed_deaths.strike_off(self._pool, field)
        except RedisError as failure:
            _log.warning("death handlers were called, which Redis was not told: they may be called again: %s", failure)

    def take_over(self, link: Link) -> Iterator[tuple["OwedDeath", dict[str, Any], BaseException]]:
        """
        What processes have left that are gone, each for `announce`.

        Raises:
            RedisError: Redis is out of reach.
        """
        if not self._is_kept or not self._hooks.has_death_handlers:
            return
        try:
            yield from itertools.islice(self._taken_over(link), _MOST_AT_A_TIME)
            self._is_refused = False
        except RedisReplyError as error:
            if error.is_about_server:
                raise
            if not self._is_refused:
                self._is_refused = True
                _log.error(
                    "death handlers that others have not called cannot be called: %s; look at the key %s, which is to "
                    "be a hash that this Redis user may read and write",
                    error,
                    keys.DEATHS,
                )

    def _taken_over(self, link: Link) -> Iterator[tuple["OwedDeath", dict[str, Any], BaseException]]:
        fields = owed_deaths.fields(link)
        own = self._ownership.current.name
        owners = {owed_deaths.owner_in(field) for field in fields} - {own}
        alive = owed_deaths.entered(link, owners) | {own}
        for field in fields:
            if owed_deaths.owner_in(field) in alive or field in self._unreadable:
                continue
            text = owed_deaths.record(link, field)
            if text is None:
                continue
            death = owed_deaths.death_of(text)
            if death is None:
                self._unreadable.add(field)
                _log.error("the field %r of %s is no death of a job; it is left alone", field, keys.DEATHS)
                continue
            error = _error_of(death)
            new = self._new_field()
            if self._hooks.minds_death(error) and owed_deaths.take_over(link, field, new, text):
                with log_context(death.payload):
                    _log.info("%s was gone before it had called the death handlers", owed_deaths.owner_in(field))
                yield OwedDeath(self, new, ()), death.payload, error

    def _new_field(self) -> bytes:
        return owed_deaths.field_of(self._ownership.current.name, next(self._numbers))


class OwedDeath:
    """
    Handlers that are to be called.

    Args:
        field: Names the death in Redis; None: it is not written down.
        commands: To be sent with the end of the job, where they may fail.
    """

    __slots__ = ("_deaths", "_field", "commands")

    def __init__(self, deaths: OwedDeaths, field: bytes | None, commands: tuple[Command, ...]) -> None:
        self._deaths = deaths
        self._field = field
        self.commands = commands

    def announce(self, payload: dict[str, Any], error: BaseException) -> None:
        """Call the handlers."""
        self._deaths.announce(self._field, payload, error)


def _error_of(death: owed_deaths.Death) -> BaseException:
    if death.error_class == _POISON_PILL:
        return PoisonPillError(death.message)
    return LateDeathError(death.message, death.error_class)
