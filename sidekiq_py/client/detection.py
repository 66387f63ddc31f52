"""
Which Sidekiq release the Ruby side runs.

Pinned by the program, or detected from what live Ruby processes publish and looked at again now and then. Our own
processes carry a label and are passed over. On the way of a push this costs the comparison of two clocks.

A release that is newer than this library is written for by the newest rules there are, and named in a warning.
"""

import logging
from collections.abc import Callable, Iterable
from math import inf

from sidekiq_py.errors import RedisError
from sidekiq_py.wire.dialect import NEWEST, Dialect, FloatText, Version

_log = logging.getLogger("sidekiq")

LOOK_AGAIN_SECONDS = 60.0
# After a look that failed, or found nobody: the Ruby side may just be starting. Four times as long after each further
# look that finds nobody: it reads all processes, and without Ruby all clients look.
_LOOK_SOON_SECONDS = 5.0


_is_paused = False

# Each is named once in a process, however many clients write for it.
_named: set[Version] = set()


def pause(is_paused: bool) -> None:
    """Look at no Redis until called with False: what is known, or pinned, is written. For tests of programs."""
    global _is_paused
    _is_paused = is_paused


def dialect_of(infos: Iterable[bytes], float_text: FloatText | None = None) -> Dialect | None:
    """
    The dialect of the Ruby processes among these, or None if there is none.

    Args:
        infos: The JSON in the field `info` of each live process.
        float_text: Overrides how floats are written.
    """
    from sidekiq_py.wire.process_info import parse_info  # not needed where the release is pinned

    parsed = [parse_info(raw) for raw in infos]
    versions = [info.version for info in parsed if info is not None and not info.is_python]
    return Dialect.detect(versions, float_text) if versions else None


class Detection:
    """
    The dialect of one Redis's Ruby side.

    Args:
        pinned: What the program asked for; nothing is then detected.
        float_text: Overrides how floats are written.
        look: Fetches the infos of the live processes.
    """

    def __init__(
        self, pinned: Dialect | None, float_text: FloatText | None, look: Callable[[], list[bytes]] | None = None
    ) -> None:
        self._float_text = float_text
        self._look = look
        self.last = pinned or Dialect.unknown(float_text)
        """What is known now, without a look."""
        if pinned is not None:
            name_unknown_releases(pinned, "pinned as sidekiq_version")
        self._soon_seconds = _LOOK_SOON_SECONDS
        self.valid_from = -inf
        self.valid_until = inf if pinned else -inf

    def __repr__(self) -> str:
        return f"<Detection {self.last.version} until={self.valid_until}>"

    def is_due(self, now: float) -> bool:
        """Whether it is time for a look. The clock may also have been set back."""
        return not (_is_paused or self.valid_from <= now < self.valid_until)

    def dialect(self, now: float) -> Dialect:
        """
        The dialect, after a look if it is time for one.

        Args:
            now: Seconds since the epoch.
        """
        if self.valid_from <= now < self.valid_until or _is_paused:
            return self.last
        # Other threads go on with what is known meanwhile.
        self.postpone(now)
        if self._look is not None:
            try:
                self.learn(self._look(), now)
            except RedisError:
                # The push that follows will say what is wrong, unless this user may push and not ask.
                pass
        return self.last

    def look_by(self, look: Callable[[], list[bytes]]) -> None:
        """Fetch the infos by this from now on, unless the release is pinned."""
        self._look = look

    def postpone(self, now: float) -> None:
        """No look for a few seconds."""
        self.valid_from = now
        self.valid_until = now + _LOOK_SOON_SECONDS

    def learn(self, infos: Iterable[bytes], now: float) -> None:
        """Take in what a look has found; where no Ruby process lives, what was known stays."""
        found = dialect_of(infos, self._float_text)
        if found is not None:
            # An equal dialect stays the same object: templates are kept by it.
            if found != self.last:
                self.last = found
                name_unknown_releases(found, "of a Ruby process on this Redis")
            self.valid_until = now + LOOK_AGAIN_SECONDS
            self._soon_seconds = _LOOK_SOON_SECONDS
        else:
            self.valid_until = now + self._soon_seconds
            self._soon_seconds = min(4 * self._soon_seconds, LOOK_AGAIN_SECONDS)


def name_unknown_releases(dialect: Dialect, whence: str) -> None:
    """Warn, once in this process for each release, that it may not be written for rightly; *whence* it is known."""
    for release in dialect.unknown_releases():
        if release in _named:
            continue
        _named.add(release)
        _log.warning(
            "Sidekiq %s (%s) is not known to this sidekiq_py, whose newest is %s. Jobs are written by the rules of %s. "
            "Look for a newer sidekiq_py before you rely on it",
            _text(release),
            whence,
            _text(NEWEST),
            _text(dialect.rules),
        )


def _text(version: Version) -> str:
    return ".".join(map(str, version))
