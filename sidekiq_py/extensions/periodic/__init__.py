"""
Periodic jobs, on the keys of the Ruby gem sidekiq-cron: its Web tab shows and steers Python's jobs, and this Ruby's.

`cron_text` and `ticks` say when; `layout` is what stands in Redis; `declared` and `schedule_file` are ways to declare;
`store` reads and changes the timetable; `firing` pushes what is due; `cron_jobs` is the data API and `commands` the
command line; `checks` are the doctor's.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from sidekiq_py.config import Config
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import DoctorCheck, Effect, Extension, JobEnd, Maintenance
from sidekiq_py.extensions.periodic import verbs
from sidekiq_py.extensions.periodic.layout import DEFAULT_NAMESPACE, OWN_PREFIX, PAYLOAD_KEY, layout_of
from sidekiq_py.redis_access.connection.pool import Pool

__all__ = ["PeriodicJobs"]

_log = logging.getLogger("sidekiq")


class PeriodicJobs(Extension):
    """
    The extension; it is there without being asked for. Use one of your own to change a setting.

        sidekiq.use(PeriodicJobs(cron_version="1.8"))

    Args:
        cron_version: The release of sidekiq-cron that shares this Redis, such as "1.2", "1.8" or "2"; without it, the
            keys that are there decide.
        fire_ruby_jobs: Fire what Ruby has declared, too, where it does not need Ruby.
        namespaces: sidekiq-cron's, since 2.0.
    """

    name: ClassVar[str] = "periodic"
    phase = "count"
    payload_keys = {PAYLOAD_KEY: "its periodic job does not hear how it ended"}
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
            layout_of(cron_version)
        self.cron_version = cron_version
        self.fire_ruby_jobs = fire_ruby_jobs
        self._is_allowed = True
        self.namespaces = tuple(dict.fromkeys((DEFAULT_NAMESPACE, *namespaces)))

    def start(self, pool: Pool, config: Config) -> None:
        """Write what the program declares; `maintain` keeps it there."""
        from sidekiq_py.extensions.periodic import (
            loading,
        )  # a worker's; `--help` and programs that push load none of it

        try:
            loading.load(pool, config, cron_version=self.cron_version)
        except RedisReplyError as error:
            if error.code != "NOPERM":
                raise
            # Users whose rights are listed one by one were not given those of a later release.
            self._is_allowed = False
            _log.warning("periodic jobs neither are written nor fire here: %s; docs/redis.md lists the rights", error)

    def maintain(self) -> Sequence[Maintenance]:
        """Fire what is due; write again what was declared and is gone."""
        from sidekiq_py.extensions.periodic import loading  # as above
        from sidekiq_py.extensions.periodic.firing import EMPTY_SECONDS, Firing

        restore = partial(loading.restore, namespaces=self.namespaces)
        firing = Firing(fire_ruby_jobs=self.fire_ruby_jobs, namespaces=self.namespaces)
        return (
            self._maintenance("periodic jobs", EMPTY_SECONDS, firing.round),
            self._maintenance("declared periodic jobs", loading.RESTORE_EVERY_SECONDS, restore),
            self._maintenance("runs that must not overlap", loading.AUDIT_EVERY_SECONDS, loading.LostRuns().release),
        )

    def _maintenance(self, name: str, every_seconds: float, run: Callable[[Pool], float | None]) -> Maintenance:
        return Maintenance(name, every_seconds, lambda pool: run(pool) if self._is_allowed else None)

    def end(self, end: JobEnd) -> Iterable[Effect]:
        """Note how the run ended, and let the next one start."""
        key = end.payload.get(PAYLOAD_KEY)
        # Without the rights the whole end would be refused, and the job stay in flight.
        if not isinstance(key, str) or end.kind == "interrupted" or not self._is_allowed:
            return ()
        return ((verbs.ENDED.name, OWN_PREFIX + key, end.jid, end.kind, f"{end.now:.3f}", f"{end.seconds:.3f}"),)

    def checks(self) -> Sequence[DoctorCheck]:
        """What is wrong with the timetable."""
        from sidekiq_py.extensions.periodic.checks import CHECKS  # the doctor's

        return CHECKS

    def pages(self) -> Sequence[Any]:
        """The timetable in the dashboard."""
        from sidekiq_py.extensions.periodic import pages  # needs the extra `web`

        return pages.pages()
