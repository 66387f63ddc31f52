"""
Everything that differs between Sidekiq releases, as one frozen value.

A `Dialect` is pinned by a setting, or detected from what live Ruby processes publish. If nothing is known, it is what
most releases read correctly. Every difference is a property computed from the version, so that no other module compares
versions.
"""

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidekiq_py.errors import ConfigError

Version = tuple[int, int, int]

OLDEST: Version = (6, 0, 0)
NEWEST: Version = (8, 1, 7)
# A process that publishes no version is older than 7.0.2: probably one of this span. We write for the first of it.
SILENT: tuple[Version, Version] = ((6, 4, 1), (7, 0, 1))
# Written if nothing is known: the order of keys is that of 6.4 to 8.1, and all releases read float seconds.
UNKNOWN: Version = (7, 3, 2)

# The release that a major or minor version alone means.
_RELEASES: dict[tuple[int, ...], Version] = {
    (6,): (6, 4, 1),
    (7,): (7, 3, 2),
    (8,): (8, 1, 7),
    (6, 0): (6, 0, 4),
    (6, 1): (6, 1, 3),
    (6, 2): (6, 2, 2),
    (6, 3): (6, 3, 1),
    (6, 4): (6, 4, 1),
    (6, 5): (6, 5, 12),
    (7, 0): (7, 0, 9),
    (7, 1): (7, 1, 6),
    (7, 2): (7, 2, 4),
    (7, 3): (7, 3, 2),
    (8, 0): (8, 0, 10),
    (8, 1): (8, 1, 7),
}
_VERSION_TEXT = re.compile(
    r"\s*v?(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?(?:[.-]?(?:alpha|beta|rc|pre)[\w.]*)?\s*", re.A
)

BULK_SLICE = 1000
"""How many jobs one bulk push has at most."""

OLD_WRAPPER = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
NEW_WRAPPER = "Sidekiq::ActiveJob::Wrapper"


class FloatText(enum.Enum):
    """How the json gem that Sidekiq uses writes a float."""

    RUBY = "ruby"
    """`Float#to_s`: json before 2.11, so every Debian release up to trixie."""
    JSON3 = "json3"
    """fpconv: json 3.x."""


def version_text(version: tuple[int, ...]) -> str:
    """A version as people write it: `8.1.7`."""
    return ".".join(map(str, version))


if TYPE_CHECKING:

    class since:
        def __init__(self, *release: int) -> None: ...
        def __get__(self, of: object, owner: type) -> bool: ...

else:

    def since(*release: int) -> property:
        """A property that is True from a release on."""
        return property(lambda of: of.version >= release)


@dataclass(frozen=True, slots=True)
class Dialect:
    """
    The format of one release.

    Create one with `pinned`, `detect` or `unknown`.

    Args:
        version: The release whose rules to follow.
        float_text: How to write floats in JSON.
        readers: The oldest and the newest release that may read the data. If they differ, anything that is harmless to
            write twice is written twice: the work hash under both of its names, the concurrency in both of its places.
    """

    version: Version
    float_text: FloatText
    readers: tuple[Version, Version]

    @classmethod
    def pinned(cls, text: str, float_text: FloatText | None = None) -> "Dialect":
        """
        The dialect of a named release. A release newer than `NEWEST` gets the newest rules.

        Args:
            text: `"8"`, `"7.1"` or `"6.4.1"`. A major or minor version alone means one release (for the majors: 6.4.1,
                7.3.2, 8.1.7).
            float_text: Set it if the json gem is not the one that Debian ships with that release.

        Raises:
            ConfigError: *text* is not a version, or is older than 6.0.
        """
        if not isinstance(text, str):
            raise ConfigError(f"sidekiq_version is {text!r}; give it as a string, such as '8' or '7.3.2'")
        version = _parse_version(text)
        if version is None:
            raise ConfigError(
                f"sidekiq_version is {text!r}; give a major version such as '8' or a full version such as '7.3.2', "
                "or leave it out to have it detected"
            )
        if version < OLDEST:
            raise ConfigError(
                f"sidekiq_version is {text!r}; Sidekiq 6.0 is the oldest that this library writes for. "
                "Upgrade the Ruby side, or pin '6.0' if only its workers are older"
            )
        return cls(version, float_text or _float_text_of(version), (version, version))

    @classmethod
    def asked_for(cls, text: str | None, float_text: FloatText | None, *, namespace: str) -> "Dialect | None":
        """
        The dialect of the release that a setting names; None if it names none.

        Args:
            namespace: The namespace of all keys; empty for none.

        Raises:
            ConfigError: As `pinned`, or the release does not support namespaces.
        """
        if text is None:
            return None
        dialect = cls.pinned(text, float_text)
        if namespace and not dialect.knows_namespaces:
            raise ConfigError(
                f"namespace is {namespace!r} and sidekiq_version {text!r}, but Sidekiq 7 and later refuse a namespace "
                "and would never see these keys. Leave the namespace out, or pin a release up to 6.5"
            )
        return dialect

    @classmethod
    def unknown(cls, float_text: FloatText | None = None) -> "Dialect":
        """A dialect that most releases read correctly, if the reader's release is unknown."""
        return cls(UNKNOWN, float_text or FloatText.RUBY, (OLDEST, NEWEST))

    @classmethod
    def detect(cls, versions: Iterable[str | None], float_text: FloatText | None = None) -> "Dialect":
        """
        The dialect for the Ruby processes that are alive.

        If there are several releases, it follows the *oldest* one: a newer Sidekiq reads what an older one wrote (it
        must, because jobs outlive upgrades), while an older one misreads the newer one's milliseconds and does not know
        its wrapper class.

        Args:
            versions: The `version` of each process's `info`; `None` for a process that does not publish one, which is
                therefore older than 7.0.2. Anything that is not a version is ignored.
            float_text: As in `pinned`.
        """
        known = [SILENT if text is None else (_parse_version(text),) for text in versions]
        found = sorted(max(version, OLDEST) for possible in known for version in possible if version is not None)
        if not found:
            return cls.unknown(float_text)
        return cls(found[0], float_text or _float_text_of(found[0]), (found[0], found[-1]))

    @property
    def rules(self) -> Version:
        """The release whose rules apply: `version`, or the last known one before it if `version` is unknown here."""
        return self.version if _is_known(self.version) else max(v for v in _RELEASES.values() if v < self.version)

    def unknown_releases(self) -> tuple[Version, ...]:
        """The `readers` that did not exist when this was written, and that may read some things differently."""
        return tuple(dict.fromkeys(reader for reader in self.readers if not _is_known(reader)))

    @property
    def knows_namespaces(self) -> bool:
        """True if its processes support a namespace for all keys (before 7.0)."""
        return self.version < (7, 0, 0)

    # Payload

    millisecond_times = since(8, 0, 0)
    """
    True if payload timestamps are whole milliseconds (8.0) rather than float seconds. Scores are float seconds in
    all releases.
    """

    def stamp(self, now: float) -> float | int:
        """
        A payload timestamp.

        Args:
            now: Seconds since the epoch.
        """
        return int(now * 1000) if self.version >= (8, 0, 0) else now

    defaults_first = since(6, 0, 4)
    """True if `retry` and `queue` come before the caller's keys (6.0.4) rather than after them."""

    args_before_class = since(6, 4, 0)
    """
    True if `perform_async` writes `args` before `class` (6.4.0). Scheduled and bulk pushes write `class` first in
    all releases.
    """

    def writes_args_first(self, *, is_set: bool, is_scheduled: bool) -> bool:
        """
        True if a call writes `args` before `class`.

        Args:
            is_set: True if the call goes through `set(...)`, which has always done so for immediate pushes.
            is_scheduled: True for `perform_in` and `perform_at`, which do so only after `set(...)`, since 6.3.0.
        """
        if is_scheduled:
            return is_set and self.version >= (6, 3, 0)
        return is_set or self.args_before_class

    @property
    def bulk_stamps_first(self) -> bool:
        """
        True if a bulk push sets `enqueued_at` before client middleware, and keeps it in scheduled jobs (before 6.4.1).
        """
        return self.version < (6, 4, 1)

    bulk_moves_jid = since(6, 4, 2)
    """True if a bulk push writes the `jid` after the item's keys, even if the item has one (6.4.2)."""

    has_retry_for = since(7, 1, 3)
    """True if the release supports `retry_for` (7.1.3)."""

    retry_for_exclusive = since(8, 1, 0)
    """True if `retry_for` replaces the limit by count (8.1.0) rather than adding to it."""

    scheduled_drops_enqueued_at = since(7, 1, 2)
    """True if a scheduled push drops an `enqueued_at` that the caller gave (7.1.2)."""

    @property
    def scheduled_bulk_slice(self) -> int:
        """How many jobs one scheduled bulk push has at most: 100 since 8.1.2."""
        return 100 if self.version >= (8, 1, 2) else BULK_SLICE

    current_attributes_as_pairs = since(8, 0, 0)
    """
    True if `cattr` has pairs in Active Job's encoding (8.0), which no older release reads, rather than a plain
    object.
    """

    @property
    def active_job_wrapper(self) -> str:
        """The class under which Active Job's jobs are pushed."""
        return NEW_WRAPPER if self.version >= (8, 0, 0) else OLD_WRAPPER

    # Failure

    compresses_backtrace = since(6, 0, 2)
    """
    True if `error_backtrace` is deflated JSON in base64 (6.0.2) rather than an array. 6.0.1 wrote Ruby's Marshal
    and reads arrays.
    """

    strict_base64 = since(7, 2, 1)
    """True if that base64 has no newlines (7.2.1). Every release reads both."""

    @property
    def jitter(self) -> str:
        """
        The random seconds added to a retry's delay, *n* being `retry_count`.

        `"rand30"`: rand(30) * (n + 1), before 6.2.2. `"rand_times"`: rand(10) * (n + 1). `"rand_range"`: rand(10 * (n +
        1)), since 8.0.
        """
        if self.version >= (8, 0, 0):
            return "rand_range"
        return "rand_times" if self.version >= (6, 2, 2) else "rand30"

    custom_delay_jitter = since(6, 2, 2)
    """True if a delay from the job's own `retry_in` also gets jitter (6.2.2)."""

    exhausted_may_discard = since(7, 2, 0)
    """True if a `retries_exhausted` block that returns `discard` keeps the job out of `dead` (7.2.0)."""

    discard_runs_death_handlers = since(8, 0, 7)
    """True if a discarded job's death handlers run (8.0.7)."""

    stamps_discarded_at = since(8, 0, 8)
    """True if death handlers of a discarded job see `discarded_at` (8.0.8). It is never stored."""

    # Iterable jobs

    iteration_keeps_first_ttl = since(8, 0, 0)
    """True if the 30 days of an iterable job's state count from its first save (8.0) rather than its last."""

    # Poller

    doubles_large_poll_interval = since(8, 0, 10)
    """
    True if ten or more processes wait up to twice the average between two polls (8.0.10) rather than up to once.
    """

    # Heartbeat

    @property
    def beat_seconds(self) -> int:
        """Seconds between two heartbeats."""
        return 10 if self.version >= (7, 0, 0) else 5

    @property
    def work_suffixes(self) -> tuple[str, ...]:
        """
        The suffix after the identity in the key of running jobs: `workers` up to 6.4.1, then `work`; both if releases
        of both kinds may read it.
        """
        oldest, newest = self.readers
        suffixes = []
        if newest >= (6, 4, 2):
            suffixes.append("work")
        if oldest < (6, 4, 2):
            suffixes.append("workers")
        return tuple(suffixes)

    work_payload_is_text = since(6, 0, 2)
    """True if a running job's payload is a string of JSON (6.0.2) rather than an object."""

    @property
    def concurrency_in_info(self) -> bool:
        """True if a reader expects the concurrency in `info` (before 8.1.2)."""
        return self.readers[0] < (8, 1, 2)

    @property
    def concurrency_field(self) -> bool:
        """True if a reader expects the concurrency in a separate hash field (8.1.2)."""
        return self.readers[1] >= (8, 1, 2)

    info_has_weights = since(7, 0, 2)
    """True if `info` has `weights` (7.0.2)."""

    info_has_version = since(7, 0, 2)
    """True if `info` has `version` (7.0.2)."""

    info_has_embedded = since(7, 0, 3)
    """True if `info` has `embedded` (7.0.3)."""

    info_has_capsules = since(8, 0, 9)
    """True if `info` has `capsules` (8.0.9)."""

    has_rtt = since(6, 2, 0)
    """True if the beat has `rtt_us` (6.2.0)."""

    has_rss = since(6, 1, 3)
    """True if the beat has `rss` (6.1.3)."""

    @property
    def metrics_generation(self) -> int | None:
        """
        The generation of metrics keys: 7 (since 6.5.2, which shows them only with SIDEKIQ_METRICS_BETA=1), 8 (since
        8.0), or `None` if the release has no metrics.
        """
        if self.version >= (8, 0, 0):
            return 8
        return 7 if self.version >= (6, 5, 2) else None

    @property
    def has_older_status_gem(self) -> bool:
        """True if sidekiq-status can only be 3.0.3 or older, because 4.0.0 needs Sidekiq 7."""
        return self.version < (7, 0, 0)


def _is_known(version: Version) -> bool:
    """
    True if the release is not newer than `NEWEST` and its minor version exists. Patch releases of the older lines do
    not change any format.
    """
    return version <= NEWEST and version[:2] in _RELEASES


def _parse_version(text: str) -> Version | None:
    """Parse three numbers. Returns `None` if *text* is not a version."""
    match = _VERSION_TEXT.fullmatch(text)
    if match is None:
        return None
    numbers = tuple(int(part) for part in match.groups() if part is not None)
    if len(numbers) == 3:
        return numbers[0], numbers[1], numbers[2]
    return _RELEASES.get(numbers) or (numbers[0], numbers[1] if len(numbers) > 1 else 0, 0)


def _float_text_of(version: Version) -> FloatText:
    """The rule of the json gem that Debian ships with that release."""
    return FloatText.JSON3 if version >= (8, 0, 0) else FloatText.RUBY
