"""`sidekiq-py recover`: returns the jobs of dead workers to their queues, even if no Python worker is running."""

import threading
from operator import attrgetter

import click

from sidekiq_py.cli.connection import finds_redis
from sidekiq_py.cli.output import echo_json
from sidekiq_py.client import sync_client
from sidekiq_py.clock import now_seconds
from sidekiq_py.config import Config
from sidekiq_py.engine.ownership.identity import new_identity
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.ownership.pending_deaths import PendingDeaths
from sidekiq_py.engine.ownership.recovery import Recovery
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.job_path import recover as left_behind
from sidekiq_py.redis_access.reads import in_flight_counts
from sidekiq_py.wire.control_characters import escaped
from sidekiq_py.wire.dialect import Dialect


@click.command()
@finds_redis
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also take the jobs of workers whose lease is still valid. Stop every Python worker first: "
    "a job that still runs will run twice.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def recover(everything: bool, as_json: bool) -> None:
    """
    Return the jobs of dead workers to their queues.

    Workers do this by themselves. Use this command if no worker is left, or if the registry of workers was lost: it
    also finds workers with jobs in flight that are not registered. A worker is dead if its process is gone from this
    machine, or if its lease has expired (by default 30 seconds after its last sign of life). For a worker whose lease
    is still valid, the command says when it expires.
    """
    client = sync_client.current()
    pool = client.pool
    config = Config(redis=pool.settings)
    link = pool.new_link()
    ownership = Ownership(new_identity(), (), config.lease_seconds)

    def dialect() -> Dialect:
        return client.detection.dialect(now_seconds())

    # This command has not loaded the program, so the next worker with death handlers calls them.
    pending_deaths = PendingDeaths(pool, ownership, Hooks(), dialect, must_keep=True)
    recovery = Recovery(config, link, ownership, dialect=dialect, pending_deaths=pending_deaths)
    _enter_lost_owners(link, with_lease=everything)
    if everything:
        moved = recovery.declare_dead(*left_behind.owners(link))
    else:
        moved = recovery.look()
        names = list(left_behind.owners(link))
        if len(left_behind.leased(link, names)) < len(names):
            # A missing lease must still be missing at a second look, or a hiccup of Redis would look like a death.
            click.echo("Some owners have no lease; checking again to be sure.", err=True)
            threading.Event().wait(2 * config.lease_beat_seconds + 0.1)
            moved += recovery.look()
    alive = list(left_behind.owners(link))
    waiting = _waiting(pool, link)
    if as_json:
        entries = [
            {"owner": owner, "jobs": jobs, "lease_ends_in": round(seconds, 3)} for owner, jobs, seconds in waiting
        ]
        echo_json({"recovered": moved, "alive": alive, "waiting": entries})
        return
    click.echo(f"{counted(moved, 'job')} returned to the queues.")
    for owner, jobs, seconds in waiting:
        click.echo(
            f"{counted(jobs, 'job')} in flight at {escaped(owner)}, whose lease is still valid: it expires "
            f"in {seconds:.0f} s unless its process is alive and renews it. "
            "If the process is gone, run this command again after that."
        )
    if alive:
        keep = counted(len(alive), "owner is alive and keeps its jobs", "owners are alive and keep their jobs")
        click.echo(f"{keep}: {escaped(', '.join(alive))}")


def _enter_lost_owners(link: Link, *, with_lease: bool) -> None:
    """Register the owners that have jobs in flight but are missing from the registry, so that they can be recovered."""
    try:
        lost = left_behind.lost_owners(link)
    except RedisReplyError as error:
        if error.code != "NOPERM" or "'scan'" not in str(error):
            raise
        click.echo(
            f"Could not look for unregistered owners, because this Redis user lacks a permission: {error}. "
            "Grant it +scan, or use another user; docs/redis.md lists the permissions that the command line needs.",
            err=True,
        )
        return
    for name, queues in lost.items():
        if left_behind.enter_lost(link, name, queues, with_lease=with_lease):
            click.echo(f"{escaped(name)} has jobs in flight but was not registered; it is registered again.", err=True)


def _waiting(pool: Pool, link: Link) -> list[tuple[str, int, float]]:
    """Owners with jobs in flight and a valid lease: the name, the number of jobs, the seconds until it expires."""
    jobs = in_flight_counts.totals(in_flight_counts.counts(pool), attrgetter("owner"))
    seconds = left_behind.lease_seconds(link, list(jobs))
    return [(owner, count, seconds[owner]) for owner, count in jobs.items() if owner in seconds]
