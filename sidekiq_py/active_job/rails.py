"""The differences between Rails releases in what Active Job writes, as one frozen value. Reading accepts all."""

import re
from dataclasses import dataclass

from sidekiq_py.errors import ConfigError
from sidekiq_py.wire.dialect import Dialect, since

RailsVersion = tuple[int, int]

OLDEST: RailsVersion = (6, 0)


@dataclass(frozen=True, slots=True)
class Rails:
    """
    The format that one Rails release writes.

    Create one with `pinned` or `beside`. Source: Rails 6.0 to 8.1, activejob.
    """

    version: RailsVersion

    @classmethod
    def pinned(cls, text: str) -> "Rails":
        """
        The rules of a named release.

        Args:
            text: `"6.1"`, `"7.2.2"` or only the major version; only major and minor count.

        Raises:
            ConfigError: *text* is not a version, or is older than 6.0.
        """
        match = re.fullmatch(r"(\d{1,3})(?:\.(\d{1,3}))?(?:\.[\w.]+)?", text) if isinstance(text, str) else None
        if match is None:
            raise ConfigError(f"rails_version is {text!r}; give a string with major and minor, such as '7.1'")
        version = int(match[1]), int(match[2] or 0)
        if version < OLDEST:
            raise ConfigError(f"rails_version is {text!r}; Rails 6.0 is the oldest whose jobs are written")
        return cls(version)

    @classmethod
    def beside(cls, dialect: Dialect) -> "Rails":
        """
        The probable Rails release at the other end, given the Sidekiq release there.

        For Sidekiq 6 that is Rails 6.1, for later ones 7.1. If the releases are mixed or unknown it is 6.1, whose texts
        all later releases read correctly.
        """
        return cls((7, 1) if dialect.readers[0] >= (7, 0, 0) else (6, 1))

    @property
    def fraction_digits(self) -> int:
        """The decimals of the seconds in a time argument: none in 6.0, nine since then."""
        return 9 if self.version >= (6, 1) else 0

    has_module = since(6, 1)
    """True if classes and modules can be arguments (since 6.1)."""

    has_range = since(7, 0)
    """True if ranges can be arguments (since 7.0)."""

    has_big_decimal = since(7, 1)
    """True if a BigDecimal stays one (since 7.1) instead of arriving as a string."""

    has_time_zone = since(7, 0)
    """
    True if a TimeWithZone carries the name of its zone (since 7.0.9 and 7.1.3, and ignored before); else it is read
    in the reader's own zone.
    """

    has_scheduled_at = since(7, 1)
    """True if the job object has `scheduled_at`, and its times have nine decimals (since 7.1)."""

    pushes_by_setter = since(7, 1)
    """
    True if the adapter pushes with `JobWrapper.set(…).perform_async` (since 7.1) instead of `Client.push`.

    The setter writes `wrapped, args, class`, and pushes a job that is already due at once.
    """
