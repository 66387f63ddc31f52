"""`sidekiq-py demo`: Python and Ruby on one Redis, step by step."""

import signal
import sys

import click

from sidekiq_py.cli.values import Seconds

_SECONDS_TO_READ = 0.4
_TERMINATED = 128 + signal.SIGTERM


@click.command()
@click.option(
    "--pace",
    "pace_seconds",
    type=Seconds(min=0),
    default=_SECONDS_TO_READ,
    show_default=True,
    help="Seconds to pause after each block, for reading.",
)
@click.option("--no-ruby", is_flag=True, help="Play recordings of real Ruby, even where Ruby is installed.")
def demo(pace_seconds: float, no_ruby: bool) -> None:
    """
    Show Python and Ruby on one Redis.

    Starts a private Redis, a Python worker and a real Ruby Sidekiq; each enqueues jobs that the other runs, jobs fail
    and are retried, scheduled jobs come due, a worker is killed. Each step shows its bytes in Redis. Exit code 0 means
    that every step was verified. Your own Redis is not touched.
    """
    from sidekiq_py.demo.run import play

    # On TERM, too, the demo stops its programs and removes its folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    if not play(pace_seconds=pace_seconds, with_ruby=not no_ruby):
        raise click.exceptions.Exit(1)
