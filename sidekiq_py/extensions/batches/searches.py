"""Command lines that find jobs of a batch. Not for workers: it imports the doctor."""

from sidekiq_py.doctor.finding import command_line
from sidekiq_py.extensions.batches.state import BatchStatus


def searches(status: BatchStatus) -> list[str]:
    """The commands that find its unfinished jobs, which the batch itself does not list; none if it has none."""
    if not status.unfinished:
        return []
    places = (("jobs",), ("scheduled", "list"), ("queues", "show", "QUEUE"))
    return [command_line(status.pool.settings.namespace, *words, "--match", status.bid) for words in places]
