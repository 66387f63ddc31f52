"""What differs between Rails releases in what Active Job writes, as one frozen value. Reading accepts all of them."""

import re
from dataclasses import dataclass

from sidekiq_py.errors import ConfigError
from sidekiq_py.wire.dialect import Dialect

RailsVersion = tuple[int, int]

OLDEST: RailsVersion = (6, 0)


@dataclass(frozen=True, slots=True)
class Rails:
    """
    One Rails release's way of writing.

    Make one by `pinned` or `beside`. Source: Rails 6.0 to 8.1, activejob.
    """

    version: RailsVersion

    @classmethod
    def pinned(cls, text: str) -> "Rails":
        """
        The rules of a named release.

        Args:
            text: `"6.1"`, `"7.2.2"` or a bare major; only major and minor count.

        Raises:
            ConfigError: *text* is no version, or one older than 6.0.
        """
        match = re.fullmatch(r"(\d{1,3})(?:\.(\d{1,3}))?(?:\.[\w.]+)?", text)
        if match is None:
            raise ConfigError(f"rails_version is {text!r}; give major and minor, as '7.1'")
        version = int(match[1]), int(match[2] or 0)
        if version < OLDEST:
            raise ConfigError(f"rails_version is {text!r}; Rails 6.0 is the oldest whose jobs are written")
        return cls(version)

    @classmethod
    def beside(cls, dialect: Dialect) -> "Rails":
        """
        What is probably at the other end, given the Sidekiq there.

        Beside Sidekiq 6 that is Rails 6.1, beside later ones 7.1. Where releases are mixed or unknown, 6.1: its
        texts are read rightly by all later ones.
        """
        return cls((7, 1) if dialect.readers[0] >= (7, 0, 0) else (6, 1))

    @property
    def fraction_digits(self) -> int:
        """Decimals of the seconds in a time argument: none in 6.0, nine since."""
        return 9 if self.version >= (6, 1) else 0

    @property
    def has_module(self) -> bool:
        """Whether classes and modules are arguments (6.1)."""
        return self.version >= (6, 1)

    @property
    def has_range(self) -> bool:
        """Whether ranges are arguments (7.0)."""
        return self.version >= (7, 0)

    @property
    def has_big_decimal(self) -> bool:
        """Whether a BigDecimal stays one (7.1), and does not arrive as a string."""
        return self.version >= (7, 1)

    @property
    def has_time_zone(self) -> bool:
        """Whether a TimeWithZone names its zone (7.1), and is not read in the reader's own."""
        return self.version >= (7, 1)

    @property
    def has_scheduled_at(self) -> bool:
        """Whether the job object tells when it is due, and times in it have nine decimals (7.1)."""
        return self.version >= (7, 1)

    @property
    def pushes_by_setter(self) -> bool:
        """
        Whether the adapter pushes by `JobWrapper.set(…).perform_async` (7.1), and not by `Client.push`.

        The setter writes `wrapped, args, class` and pushes a job that is due already at once.
        """
        return self.version >= (7, 1)
