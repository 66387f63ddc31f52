"""
For deploy scripts: mark when the program was deployed, so that the Metrics page shows what a release changed.

    from sidekiq_py import deploy
    deploy.mark("v42")
"""

from datetime import datetime
from typing import Any

from sidekiq_py.api.metrics import Deploy


def mark(label: str | None = None, *, at: datetime | None = None, pool: Any = None) -> bool:
    """
    Record a deploy.

    Args:
        label: What was deployed; by default the current commit, from `git log`.
        at: When it was deployed, as a timezone-aware time; by default now.
        pool: The Redis to record it in, as a pool or a URL; by default the program's own.

    Returns:
        False if another machine of the same deploy recorded this label within the last minute.

    Raises:
        ConfigError: There is no label and no commit to take one from.
        RedisError: Redis cannot be reached or refuses the command.

    Source: Sidekiq 8.1.7, deploy.rb, `mark!`.
    """
    return Deploy(pool=pool).mark(label, at=at)
