"""The release of Celery that this package replaces."""

from typing import NamedTuple


class version_info_t(NamedTuple):
    """The version in parts, for code that checks which Celery it runs on."""

    major: int
    minor: int
    micro: int
    releaselevel: str
    serial: str


SERIES = "collider"
__version__ = "5.7.0"
"""The release of Celery whose API this package has. The package's own release is that of sidekiq-py."""

VERSION = version_info = version_info_t(5, 7, 0, "", "")
VERSION_BANNER = f"{__version__} ({SERIES})"

# Programs show these beside the version.
__author__ = "the authors of sidekiq_py"
__contact__ = "CONTRIBUTING.md of sidekiq_py"
__homepage__ = "https://docs.celeryq.dev/"
__docformat__ = "restructuredtext"
__keywords__ = "task job queue distributed messaging actor"
