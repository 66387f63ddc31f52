"""
Periodic jobs, stored in the keys of the Ruby gem sidekiq-cron. Its Web tab shows and controls Python's jobs, and Python
does the same with Ruby's.

`cron_text` and `ticks` compute times; `layout` describes the data in Redis; `declared` and `schedule_file` are the ways
to declare jobs; `store` reads and changes the timetable; `firing` pushes what is due; `cron_jobs` is the data API,
`commands` the command line and `checks` the doctor's checks. A worker loads none of these except `keys` until there are
periodic jobs.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from sidekiq_py.config import Config
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import DoctorCheck, Effect, Extension, JobEnd, Maintenance
from sidekiq_py.extensions.periodic import verbs
from sidekiq_py.extensions.periodic.keys import (
    CHANGES,
    DEFAULT_NAMESPACE,
    OWN_PREFIX,
    PAYLOAD_KEY,
    all_sets,
    named_file,
    usual_places,
)
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool

__all__ = ["PeriodicJobs"]

_EMPTY_SECONDS = 5.0
_KEEP_SECONDS = 30.0

_Round = Callable[[Pool], float | None]


class PeriodicJobs(Extension):
    """
    The extension for periodic jobs, which is always active. Register one of your own to change a setting.

        sidekiq.use(PeriodicJobs(cron_version="1.8"))

    Args:
        cron_version: The release of sidekiq-cron that shares this Redis, such as "1.2", "1.8" or "2"; without it, the
            release is detected from the existing keys.
        fire_ruby_jobs: Also fire the jobs that Ruby declares, unless they need Ruby.
        namespaces: The namespaces of sidekiq-cron (since 2.0).
    """

    name: ClassVar[str] = "periodic"
    phase = "count"
    payload_keys = {PAYLOAD_KEY: "its periodic job does not record how it ended"}
    verbs = verbs.ALL
    public_names = {"periodic": "sidekiq_py.extensions.periodic.declared"}
    api_names = {
        "CronJobs": "sidekiq_py.extensions.periodic.cron_jobs",
        "CronJob": "sidekiq_py.extensions.periodic.cron_jobs",
    }
    commands = {
        "cron": ("sidekiq_py.extensions.periodic.commands:cron", "List, run, enable and disable periodic jobs."),
    }

    def __init__(
        self,
        *,
        cron_version: str | None = None,
        fire_ruby_jobs: bool = False,
        namespaces: Iterable[str] = (DEFAULT_NAMESPACE,),
    ) -> None:
        if cron_version is not None:
            from sidekiq_py.extensions.periodic.layout import layout_of  # as in `start`

            layout_of(cron_version)
        self.cron_version = cron_version
        self.fire_ruby_jobs = fire_ruby_jobs
        self._is_allowed = True
        self._declaring: Config | None = None
        self.namespaces = tuple(dict.fromkeys((DEFAULT_NAMESPACE, *namespaces)))

    def start(self, pool: Pool, config: Config) -> None:
        """Write what the program declares; `maintain` restores it if it is deleted."""
        try:
            if _has_declared(config) or self._are_any(pool):
                from sidekiq_py.extensions.periodic import loading  # only loaded if there are periodic jobs

                self._declaring = config if loading.load(pool, config, cron_version=self.cron_version) else None
        except RedisReplyError as error:
            if error.code != "NOPERM":
                raise
            # A user with individually listed rights may lack those that a later release needs.
            self._is_allowed = False
            log.warning(
                "periodic jobs are neither written nor fired here: %s; docs/redis.md lists the rights. Start this "
                "worker again when its user has them",
                error,
            )

    def maintain(self) -> Sequence[Maintenance]:
        """Fire what is due, and write again what was declared and is gone."""
        return (
            Maintenance("a timetable that Redis has lost", _KEEP_SECONDS, self._write_again),
            self._maintenance("periodic jobs", _EMPTY_SECONDS, self._firing),
            self._maintenance("declared periodic jobs", _KEEP_SECONDS, self._restoring),
            self._maintenance("records of deleted periodic jobs", _KEEP_SECONDS, self._forgetting),
            self._maintenance("runs that must not overlap", _KEEP_SECONDS, self._releasing),
        )

    def _write_again(self, pool: Pool) -> None:
        """Write what the program declares if Redis has lost its data: the counter of changes is never deleted."""
        if self._declaring and self._is_allowed and not pool.command("EXISTS", CHANGES):
            log.warning("Redis has lost the periodic jobs; those that this program declares are written again")
            self.start(pool, self._declaring)

    def _maintenance(self, name: str, every_seconds: float, make: Callable[[], _Round]) -> Maintenance:
        """A maintenance task that calls *make* once there are periodic jobs."""
        made: list[_Round] = []

        def run(pool: Pool) -> float | None:
            if not self._is_allowed:
                return None
            if not made and self._are_any(pool):
                made.append(make())
            return made[0](pool) if made else None

        return Maintenance(name, every_seconds, run)

    def _are_any(self, pool: Pool) -> bool:
        # TIME is included, so that a user without the right to call it gets the error before the first job is due.
        _, there = pool.batch([("TIME",), ("EXISTS", *all_sets(self.namespaces))])
        return bool(there)

    def _firing(self) -> _Round:
        from sidekiq_py.extensions.periodic.firing import Firing  # as in `start`

        return Firing(fire_ruby_jobs=self.fire_ruby_jobs, namespaces=self.namespaces).round

    def _restoring(self) -> _Round:
        from sidekiq_py.extensions.periodic.loading import restore  # as in `start`

        return partial(restore, namespaces=self.namespaces)

    def _forgetting(self) -> _Round:
        from sidekiq_py.extensions.periodic.loading import DeletedJobs  # as in `start`

        return DeletedJobs(self.namespaces).forget

    def _releasing(self) -> _Round:
        from sidekiq_py.extensions.periodic.loading import LostRuns  # as in `start`

        return LostRuns().release

    def end(self, end: JobEnd) -> Iterable[Effect]:
        """Record how the run ended, and let the next one start."""
        key = end.payload.get(PAYLOAD_KEY)
        # Without the rights the whole script would be refused, and the job would stay in flight.
        if not isinstance(key, str) or end.kind == "interrupted" or not self._is_allowed:
            return ()
        return ((verbs.ENDED.name, OWN_PREFIX + key, end.jid, end.kind, f"{end.now:.3f}", f"{end.seconds:.3f}"),)

    def checks(self) -> Sequence[DoctorCheck]:
        """The doctor's checks of the timetable."""
        from sidekiq_py.extensions.periodic.checks import CHECKS  # the doctor's

        return CHECKS

    def pages(self) -> Sequence[Any]:
        """The timetable in the dashboard."""
        from sidekiq_py.extensions.periodic import pages  # needs the extra `web`

        return pages.pages()


def _has_declared(config: Config) -> bool:
    """True if jobs are declared in code (`sidekiq.periodic`) or in a schedule file."""
    declared = sys.modules.get(f"{__name__}.declared")
    if declared is not None and declared.declarations:
        return True
    named = named_file(config.extra) is not None
    return named or any(os.path.isfile(place) for place in usual_places(config.extra))
