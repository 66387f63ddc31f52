"""`sidekiq-py top`: shows processes, queues and running jobs of both languages, live or once."""

import shutil
import sys
import threading
from dataclasses import asdict
from typing import Any

import click

from sidekiq_py.api import Overview, OverviewReader
from sidekiq_py.cli import top_view
from sidekiq_py.cli.connection import reads_redis
from sidekiq_py.cli.output import echo_json, iso_time
from sidekiq_py.cli.processes import process_as_json
from sidekiq_py.cli.queues import queue_as_json
from sidekiq_py.cli.running import work_as_json
from sidekiq_py.cli.values import Seconds

# The width of piped output, which is not cut to the terminal.
_UNBOUND = 10_000


@click.command()
@click.option("--once", is_flag=True, help="Print the view once and exit.")
@click.option(
    "--sample",
    type=Seconds(0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --once: measure rates for this long; 0 leaves them out.",
)
@click.option(
    "--every",
    type=Seconds(0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait between two reads of Redis.",
)
@reads_redis
def top(once: bool, sample: float, every: float, as_json: bool) -> None:
    """
    Watch processes, queues and running jobs live.

    Shows those of Ruby and Python. Press keys to quiet and stop processes, pause queues and retry failed jobs; ? lists
    the keys. Redis is read once a second, in one round trip.
    """
    if as_json and not once:
        raise click.UsageError("--json works only with --once")
    if once:
        overview = _read_once(sample)
        if as_json:
            echo_json(_document(overview))
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _UNBOUND
            for line in top_view.report(overview, width):
                click.echo(line)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("top needs a terminal; without one: sidekiq-py top --once")
    try:
        # Imported here, because Python may have been built without curses.
        from sidekiq_py.cli import top_screen
    except ImportError as error:
        raise click.ClickException(
            f"this Python has no curses ({error}), which the full screen needs; use sidekiq-py top --once"
        ) from error
    # Read once before taking over the screen, so that an unreachable Redis is reported as an ordinary error.
    reader = OverviewReader()
    top_screen.run(reader, reader.read(), every)


def _read_once(sample: float) -> Overview:
    reader = OverviewReader()
    overview = reader.read()
    if sample:
        threading.Event().wait(sample)
        overview = reader.read()
    return overview


def _document(overview: Overview) -> dict[str, Any]:
    processes = {process.identity: process for process in overview.processes}
    return {
        "at": iso_time(overview.at),
        "processed": overview.processed,
        "failed": overview.failed,
        "enqueued": overview.enqueued,
        "in_flight": sum(entry.count for entry in overview.in_flight),
        "scheduled": overview.scheduled,
        "retries": overview.retries,
        "dead": overview.dead,
        "busy": sum(process.busy for process in overview.processes),
        "concurrency": overview.concurrency,
        "rates": None if overview.rates is None else asdict(overview.rates),
        "queues": [queue_as_json(queue) for queue in overview.queues],
        "processes": [process_as_json(one, overview.in_flight_of(one.identity)) for one in overview.processes],
        "jobs": [work_as_json(work, processes.get(work.process_id)) for work in overview.works],
    }
