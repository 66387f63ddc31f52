"""Ruby processes that do not know batches: what they run of one is not counted."""

import logging

from sidekiq_py.api.processes import ProcessSet
from sidekiq_py.errors import RedisError
from sidekiq_py.redis_access.connection.pool import Pool

_log = logging.getLogger("sidekiq")

LABEL = "sidekiq_py"
"""Of those that have loaded the support file."""

_looked: set[str] = set()


def without_support(pool: Pool) -> list[tuple[str, tuple[str, ...]]]:
    """Those that run now, each with the queues that it serves."""
    return [
        (process.identity, process.queues)
        for process in ProcessSet(clean=False, pool=pool)
        if not process.is_python and LABEL not in process.labels
    ]


def warn_once(pool: Pool) -> None:
    """Name them in the log, once for each Redis that this process opens a batch in."""
    if pool.settings.url in _looked:
        return
    _looked.add(pool.settings.url)
    try:
        found = without_support(pool)
    except RedisError:
        # A user who only enqueues may not look.
        return
    for identity, queues in found:
        _log.warning(
            "the Ruby process %s does not know batches: jobs of one that it takes from %s are not counted. Load there "
            "the file that `sidekiq-py ruby-support` prints, or push them to other queues",
            identity,
            ", ".join(queues),
        )
