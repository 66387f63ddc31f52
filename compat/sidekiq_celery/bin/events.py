"""`events`: prints events, or passes them to a camera."""

from typing import Any

import click

from sidekiq_celery._command_error import CeleryCommandException
from sidekiq_celery.bin.base import (
    LOG_LEVEL,
    CeleryCommand,
    daemon_options,
    handle_preload_options,
    own_setting,
    reaching_redis,
    writing,
)
from sidekiq_celery.events.cursesmon import INSTEAD
from sidekiq_celery.platforms import EX_UNAVAILABLE
from sidekiq_celery.utils.imports import symbol_by_name

__all__ = ("events",)


@click.command(cls=CeleryCommand)
@click.option("-d", "--dump", is_flag=True, help="Print events as they arrive.")
@click.option("-c", "--camera", help="Subclass of events.snapshot.Polaroid that takes snapshots, as module:Class.")
@click.option("-F", "--frequency", "--freq", type=float, default=1.0, help="Camera: seconds between snapshots.")
@click.option("-r", "--maxrate", help="Camera: maximum rate of snapshots, such as 10/m.")
@click.option("-l", "--loglevel", default="WARNING", type=LOG_LEVEL, help="Camera: log level.")
@click.option("-f", "--logfile", callback=own_setting, help="Camera: log file; by default standard error.")
@click.option("--pidfile", callback=own_setting, help="Camera: file that contains the process id while it runs.")
@daemon_options
@click.pass_context
@handle_preload_options
def events(
    ctx: click.Context, dump: bool, camera: str | None, frequency: float, maxrate: str | None, **options: Any
) -> None:
    """Show events of workers and tasks, until Ctrl-C."""
    app = ctx.obj.app
    if dump:
        from sidekiq_celery.events.dumper import evdump

        evdump(app=app)
    elif camera:
        from sidekiq_celery.events.snapshot import evcam

        try:
            if not callable(symbol_by_name(camera)):
                raise ValueError(f"{camera} is not a class; name one, as in my_module:MyCamera")
        except (AttributeError, ImportError, ValueError) as error:
            raise CeleryCommandException(
                f"Unable to run the `events` command. Reason: {error}", EX_UNAVAILABLE
            ) from error
        with writing(options["pidfile"], options["logfile"]), reaching_redis():
            evcam(camera, app=app, freq=frequency, maxrate=maxrate, **options)
    else:
        raise click.UsageError(INSTEAD)
