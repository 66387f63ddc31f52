"""
For a deploy script: mark when the program was deployed, so that the Metrics page shows what a release changed.

    from sidekiq_py import deploy
    deploy.mark("v42")
"""

from datetime import datetime
from typing import Any

from sidekiq_py.api.metrics import Deploy


def mark(label: str | None = None, *, at: datetime | None = None, pool: Any = None) -> bool:
    """
    Note a deploy.

    Args:
        label: What was deployed; by default the commit at hand, from `git log`.
        at: An aware time; now if it is left out.
        pool: Whose Redis, also as a URL; by default the program's own.

    Returns:
        False if one of this label was noted within the last minute, by another machine of the same deploy.

    Raises:
        ConfigError: There is no label, and no commit to take one from.
        RedisError: Redis is out of reach or refuses.

    Source: Sidekiq 8.1.7, deploy.rb, `mark!`.
    """
    return Deploy(pool=pool).mark(label, at=at)
