"""
Detects which Sidekiq release the Ruby side runs.

The release is pinned by the program, or detected from what live Ruby processes publish and checked again now and then.
Our own processes have a label and are skipped. For a push, this costs the comparison of two times.

For a release that is newer than this library, the newest known rules are used, and a warning names the release.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf

from sidekiq_py.errors import RedisError
from sidekiq_py.logs import log
from sidekiq_py.wire.dialect import NEWEST, Dialect, FloatText, Version, version_text

LOOK_AGAIN_SECONDS = 60.0
# The pause after a look that failed or found no Ruby process, which may just be starting. It gets four times as long
# after each further look that finds none, because a look reads all processes, and without Ruby every client looks.
_LOOK_SOON_SECONDS = 5.0

_is_paused = False

# Each release is reported once per process, however many clients write for it.
_named: set[Version] = set()


def pause(is_paused: bool) -> None:
    """
    Stop looking for Ruby processes, and use the dialect that is known or pinned, until called with False. For tests of
    programs.
    """
    global _is_paused
    _is_paused = is_paused


def dialect_of(infos: Iterable[bytes], float_text: FloatText | None = None) -> Dialect | None:
    """
    The dialect of the Ruby processes among these, or None if there is none.

    Args:
        infos: The JSON in the field `info` of each live process.
        float_text: Overrides how floats are written.
    """
    from sidekiq_py.wire.process_info import parse_info  # not needed if the release is pinned

    parsed = [parse_info(raw) for raw in infos]
    versions = [info.version for info in parsed if info is not None and not info.is_python]
    return Dialect.detect(versions, float_text) if versions else None


class Detection:
    """
    The dialect of one Redis's Ruby side.

    Args:
        pinned: The dialect that the program asked for; if it is given, nothing is detected.
        float_text: Overrides how floats are written.
        look: Reads the infos of the live processes.
    """

    def __init__(self, pinned: Dialect | None, float_text: FloatText | None, look: Callable[[], list[bytes]]) -> None:
        self._float_text = float_text
        self._look = look
        self.last = pinned or Dialect.unknown(float_text)
        """The dialect as known now, without a look."""
        if pinned is not None:
            name_unknown_releases(pinned, "pinned as sidekiq_version")
        self._soon_seconds = _LOOK_SOON_SECONDS
        self.valid_from = -inf
        self.valid_until = inf if pinned else -inf

    def __repr__(self) -> str:
        return f"<Detection {self.last.version} until={self.valid_until}>"

    def is_due(self, now: float) -> bool:
        """True if it is time for a look. That also covers a clock that was set back."""
        return not (_is_paused or self.valid_from <= now < self.valid_until)

    def dialect(self, now: float) -> Dialect:
        """
        The dialect. Looks first if it is time to do so.

        Args:
            now: Seconds since the epoch.
        """
        if self.valid_from <= now < self.valid_until or _is_paused:
            return self.last
        # Meanwhile, other threads use what is known.
        self.postpone(now)
        # The push that follows will raise the error, unless this user may push but not read processes.
        with suppress(RedisError):
            self.learn(self._look(), now)
        return self.last

    def look_by(self, look: Callable[[], list[bytes]]) -> None:
        """Read the infos with this function from now on, unless the release is pinned."""
        self._look = look

    def postpone(self, now: float) -> None:
        """Do not look for a few seconds."""
        self.valid_from = now
        self.valid_until = now + _LOOK_SOON_SECONDS

    def learn(self, infos: Iterable[bytes], now: float) -> None:
        """Use the result of a look. If there are no Ruby processes, the last known dialect stays."""
        found = dialect_of(infos, self._float_text)
        if found is not None:
            # An equal dialect must stay the same object, because templates are cached by it.
            if found != self.last:
                self.last = found
                name_unknown_releases(found, "of a Ruby process on this Redis")
            self.valid_until = now + LOOK_AGAIN_SECONDS
            self._soon_seconds = _LOOK_SOON_SECONDS
        else:
            self.valid_until = now + self._soon_seconds
            self._soon_seconds = min(4 * self._soon_seconds, LOOK_AGAIN_SECONDS)


def name_unknown_releases(dialect: Dialect, whence: str) -> None:
    """Warn, once per process and release, that its format may differ. *whence* says where the release was seen."""
    for release in dialect.unknown_releases():
        if release in _named:
            continue
        _named.add(release)
        log.warning(
            "Sidekiq %s (%s) is not known to this sidekiq_py, whose newest is %s. Jobs are written by the rules of %s. "
            "Look for a newer sidekiq_py before you rely on it",
            version_text(release),
            whence,
            version_text(NEWEST),
            version_text(dialect.rules),
        )
