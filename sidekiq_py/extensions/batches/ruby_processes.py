"""Finds Ruby processes without the support file: the batch members that they run are not counted."""

from sidekiq_py.api.processes import ProcessSet
from sidekiq_py.errors import RedisError
from sidekiq_py.logs import counted, log
from sidekiq_py.redis_access.connection.pool import Pool

# With hundreds, each program that opens a batch would log hundreds of lines.
_MOST_NAMED = 5

LABEL = "sidekiq_py.rb"
"""The label of Ruby processes that have loaded the support file. That of Python processes is another one."""

_looked: set[str] = set()


def without_support(pool: Pool) -> list[tuple[str, tuple[str, ...]]]:
    """The running Ruby processes without the support file, each with its queues."""
    return [
        (process.identity, process.queues)
        for process in ProcessSet(clean=False, pool=pool)
        if not process.is_python and LABEL not in process.labels
    ]


def warn_once(pool: Pool) -> None:
    """Log a warning for each of them, or the first few, once for each Redis in which this process opens a batch."""
    if pool.settings.url in _looked:
        return
    _looked.add(pool.settings.url)
    try:
        found = without_support(pool)
    except RedisError:
        # A user who only enqueues may lack the right to look.
        return
    for identity, queues in found[:_MOST_NAMED]:
        log.warning(
            "the Ruby process %s does not know batches: batch jobs that it fetches from %s are not counted. Load the "
            "file that `sidekiq-py ruby-support` prints there, or push the jobs to other queues",
            identity,
            ", ".join(queues),
        )
    more = len(found) - _MOST_NAMED
    if more > 0:
        log.warning(
            "the same goes for %s; `sidekiq-py doctor --json` names all of them",
            counted(more, "more Ruby process", "more Ruby processes"),
        )
