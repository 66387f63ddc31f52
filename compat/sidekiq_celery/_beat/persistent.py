"""
Beat's default scheduler. It stores in Redis when each entry was last sent.

Any number of beats may run for one app. Each determines by itself what is due. To send an entry, a beat advances the
time of the last run from the value it has read and enqueues the task, in one step. So each run is sent once, even if a
beat is killed, and an entry that was due while no beat was running is sent once when one starts.
"""

import time
from datetime import datetime
from typing import Any

from sidekiq_celery._beat import as_data, listing, turns
from sidekiq_celery._beat.runs import Runs, read_runs
from sidekiq_celery._beat.scheduler import Scheduler, SchedulingError, logger
from sidekiq_celery._send import pipeline_buffer
from sidekiq_celery._send.clients import client_of
from sidekiq_celery.schedules import schedstate, schedule
from sidekiq_celery.utils.time import maybe_make_aware
from sidekiq_py.errors import RedisError
from sidekiq_py.extension import Pool

# How far the last run may be ahead of the clock. Like cron: if a clock is set back by less than three hours, jobs for a
# time of day wait, so that they do not run twice.
_PATIENCE_SECONDS = 3 * 3600
_LEAST_PATIENCE_SECONDS = 60
_SHOW_EVERY_SECONDS = 3600


def turns_key(app: Any) -> str:
    """The key that holds the state of an app's beats; see `turns`."""
    return f"sidekiq_py:beat:{app.main or 'default'}"


class PersistentScheduler(Scheduler):
    """
    A scheduler that keeps its state in the broker's Redis.

    Args:
        schedule_filename: An option of Celery's scheduler; it has no effect here.
    """

    max_interval: Any = 5

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.schedule_filename = kwargs.get("schedule_filename")
        # The text that was read for each entry; the names of paused entries; those that settings and Redis describe.
        self._seen: dict[str, bytes] = {}
        self._paused: set[str] = set()
        self._described: set[str] = set()
        # For each entry whose last run is far ahead of the clock: its text, and from when this beat counts.
        self._counted_here: dict[str, tuple[bytes, datetime]] = {}
        # The texts that describe no entry, as logged already.
        self._ignored: dict[str, bytes] = {}
        self._refreshed_at: float | None = None
        self._shown: dict[str, tuple[str, str]] | None = None
        self._shown_at = 0.0
        super().__init__(*args, **kwargs)

    @property
    def info(self) -> str:
        """A line for beat's banner."""
        return f"    . state -> {turns_key(self.app)}"

    def setup_schedule(self) -> None:
        """
        Read the entries and their state. During an outage of Redis, that is left to `tick`.

        Raises:
            RedisError: Redis refuses the user or the commands.
        """
        try:
            self.refresh()
        except RedisError as error:
            if not error.may_pass_at_start:
                raise

    def refresh(self) -> None:
        """
        Read the settings and Redis. The first time, the state of entries that are no longer described is removed.

        Raises:
            RedisError: As `Pool.run` does.
        """
        values, self._paused, added = turns.read(self._pool, self._turns_key)
        self.describe(added)
        gone = values.keys() - self._described - added.keys()
        if gone and self._shown is None:
            turns.remove(self._pool, self._turns_key, sorted(gone))
        new = {name: Runs(one.last_run_at).text() for name, one in self.schedule.items() if name not in values}
        if new:
            turns.start(self._pool, self._turns_key, new)
            values, self._paused, _ = turns.read(self._pool, self._turns_key)
        for name, entry in self.schedule.items():
            self._adopt(entry, values.get(name, b""))
            self._adjust_to_clock(entry)
        self._heap = None
        self._refreshed_at = time.monotonic()
        self._show()

    def _show(self) -> None:
        """Write what is sent and when for listings; repeatedly, as they drop it after a day."""
        shown = {name: (entry.task, as_data.schedule_text(entry.schedule)) for name, entry in self.schedule.items()}
        if shown != self._shown or time.monotonic() - self._shown_at > _SHOW_EVERY_SECONDS:
            listing.write(self._pool, self.app.main or "default", shown)
            self._shown, self._shown_at = shown, time.monotonic()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Check the next entry, and send it if it is due. Returns the seconds to sleep."""
        try:
            if self._refreshed_at is None or time.monotonic() - self._refreshed_at >= self.max_interval:
                self.refresh()
            return super().tick(*args, **kwargs)
        except RedisError as error:
            return self._try_later(error)

    def is_due(self, entry: Any) -> Any:
        """Whether to send *entry* now; never while it is paused."""
        if entry.name in self._paused:
            return schedstate(is_due=False, next=self.max_interval)
        return super().is_due(entry)

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        """
        Send *entry*, unless another beat has done so since its state was read.

        Returns:
            A handle for the result; None if another beat has sent it.

        Raises:
            SchedulingError: It could not be sent.
            RedisError: Redis cannot be reached, or refuses writes; it is tried again.
        """
        following = self.reserve(entry) if advance else self.schedule[entry.name]
        try:
            with pipeline_buffer.buffering(takes_locks=True) as wanted:
                result = super().apply_async(entry, producer=producer, advance=False, **kwargs)
        except SchedulingError:
            # Skip this run, or it would be tried forever.
            self._take(following, [], is_sent=False)
            raise
        try:
            is_taken = self._take(following, pipeline_buffer.commands(self.app, wanted), is_sent=True)
        except turns.EffectsRefusedError as error:
            raise SchedulingError(f"Couldn't apply scheduled task {entry.name}: {error}") from error
        return result if is_taken else None

    def _send_due(self, entry: Any) -> None:
        if self._is_ours(entry):
            # Without a kombu producer, because the engine does the push.
            self.apply_entry(entry)

    def _is_ours(self, entry: Any) -> bool:
        """Whether no other beat has sent it yet. Checked first, so that signals and logs report a run once."""
        current, is_paused = turns.read_one(self._pool, self._turns_key, entry.name)
        if current == self._seen.get(entry.name, b"") and not is_paused:
            return True
        logger.debug("beat: %s was sent by another beat, or is paused.", entry.name)
        self._adopt(self.schedule[entry.name], current)
        return False

    def _take(self, following: Any, commands: Any, *, is_sent: bool) -> bool:
        """Advance an entry's last run and write *commands*, if its state has not changed since it was read."""
        name = following.name
        sent_at = following.last_run_at if is_sent else self._sent_at(name)
        value = Runs(following.last_run_at, following.total_run_count, sent_at).text()
        try:
            if turns.take(self._pool, self._turns_key, name, self._seen.get(name, b""), value, commands):
                self._seen[name] = value
                return True
        finally:
            # Its current state is read before the next tick.
            if self._seen.get(name) != value:
                self._refreshed_at = None
        return False

    def _sent_at(self, name: str) -> datetime | None:
        runs = read_runs(self._seen.get(name, b""), self.app.timezone)
        return None if runs is None else runs.sent_at

    def _adopt(self, entry: Any, value: bytes) -> None:
        self._seen[entry.name] = value
        if value:
            runs = read_runs(value, self.app.timezone) or self._begun_anew(entry.name, value)
            entry.last_run_at, entry.total_run_count, _ = runs

    def _begun_anew(self, name: str, value: bytes) -> Runs:
        """Start the count of an entry's runs anew if another program has overwritten it; the others run on."""
        logger.error("beat: another program has overwritten the state of %s (%.100r); counting from now.", name, value)
        runs = Runs(self.app.now())
        text = runs.text()
        if turns.take(self._pool, self._turns_key, name, value, text, []):
            self._seen[name] = text
        return runs

    def _adjust_to_clock(self, entry: Any) -> None:
        """
        If the last run is far ahead of the clock, the clock was set back since then: count from now. Other beats are
        not told, because it may be that only this clock is behind: for them the entry would be due at once.
        """
        when = entry.schedule
        patience = max(when.seconds, _LEAST_PATIENCE_SECONDS) if isinstance(when, schedule) else _PATIENCE_SECONDS
        now = maybe_make_aware(entry.default_now())

        def is_ahead(moment: datetime) -> bool:
            return (maybe_make_aware(moment) - now).total_seconds() > patience

        if not is_ahead(entry.last_run_at):
            self._counted_here.pop(entry.name, None)
            return
        if entry.name not in self._counted_here:
            logger.warning("beat: the last run of %s is ahead of the clock (%s); counting from now.", entry.name, now)
        seen, since = self._counted_here.get(entry.name, (b"", now))
        if seen != self._seen[entry.name] or is_ahead(since):
            since = now
        self._counted_here[entry.name] = self._seen[entry.name], since
        entry.last_run_at = since

    def describe(self, added: dict[str, bytes]) -> None:
        """Set the schedule to what the settings and Redis describe, plus entries that were passed to `add`."""
        described = self._of_redis(added)
        described.update(self._default_entries(self.app.conf.beat_schedule))
        described.update(self.app.conf.beat_schedule)
        others = {name: dict(entry) for name, entry in self.schedule.items() if name not in self._described}
        self.merge_inplace({**others, **described})
        self._described = set(described)

    def _of_redis(self, added: dict[str, bytes]) -> dict[str, Any]:
        entries = {}
        for name, text in added.items():
            try:
                entries[name] = as_data.entry_of(text)
            except ValueError as error:
                # Redis is read every few seconds.
                if self._ignored.get(name) != text:
                    self._ignored[name] = text
                    logger.error("beat: Entry %r is ignored: %s. Remove it with `beat remove`.", name, error)
        return entries

    def _try_later(self, error: Exception) -> float:
        self._refreshed_at = None
        logger.error("beat: %s. Trying again in %s seconds.", str(error).removesuffix("."), self.max_interval)
        return float(self.max_interval)

    @property
    def _turns_key(self) -> str:
        return turns_key(self.app)

    @property
    def _pool(self) -> Pool:
        return client_of(self.app).pool
