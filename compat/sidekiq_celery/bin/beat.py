"""`beat`: sends periodic tasks. Its subcommands show and change the schedule that is kept in Redis."""

import json
from typing import Any

import click

from sidekiq_celery import beat_state
from sidekiq_celery.beat import SchedulingError, beat_nodename
from sidekiq_celery.bin.base import (
    JSON_ARRAY,
    JSON_OBJECT,
    LOG_LEVEL,
    daemon_options,
    handle_preload_options,
    own_setting,
    reaching_redis,
    writing,
)
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.schedules import ParseException, crontab
from sidekiq_celery.schedules import schedule as interval
from sidekiq_celery.utils.text import pluralize

__all__ = ("beat",)


@click.group(invoke_without_command=True)
@click.option("-s", "--schedule", help="File for the scheduler; the default scheduler ignores it, as it uses Redis.")
@click.option("-S", "--scheduler", help="Class of the scheduler, as module:Class.")
@click.option("--max-interval", type=float, help="Maximum number of seconds between two checks of the schedule.")
@click.option(
    "--enable-remote-control/--no-enable-remote-control",
    "remote_control",
    default=None,
    help="Answer `inspect ping`, for health checks. [default: the setting beat_enable_remote_control]",
)
@click.option("-n", "--hostname", help="Name of the node that answers. [default: celerybeat@%h]")
@click.option("-l", "--loglevel", type=LOG_LEVEL, default="WARNING", show_default=True, help="Log level.")
@click.option("-f", "--logfile", callback=own_setting, help="Log file; by default standard error.")
@click.option("--pidfile", callback=own_setting, help="File that contains the process id while beat runs.")
@daemon_options
@click.pass_context
@handle_preload_options
def beat(context: click.Context, /, **options: Any) -> None:
    """Send periodic tasks. You can run any number of beats. With a command: show or change the schedule."""
    if context.invoked_subcommand is None:
        try:
            beat_nodename(options["hostname"])
        except ValueError as error:
            raise click.UsageError(str(error), context) from error
        running = context.obj.app.Beat(quiet=bool(getattr(context.obj, "quiet", False)), **options)
        try:
            with writing(options["pidfile"], options["logfile"]):
                running.run()
        except ImproperlyConfigured as error:
            raise click.ClickException(str(error)) from error
        except Exception:
            if not running.is_error_logged:
                raise
            # Python would write the traceback again, piece by piece, to a stream that is redirected to the log.
            context.exit(1)
        return
    app = context.obj.app
    app.loader.import_default_modules()
    app.finalize()


@beat.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.pass_obj
@reaching_redis()
def list_entries(known: Any, as_json: bool) -> None:
    """Show all periodic tasks, and when each was last sent."""
    found = list(beat_state.entries(known.app))
    if not found and not as_json:
        click.echo("There are no periodic tasks: beat_schedule is empty, and none was added with `beat add`.")
    for one in found:
        last = one.last_run_at.isoformat(timespec="seconds") if one.last_run_at else None
        if as_json:
            shown = {"name": one.name, "task": one.task, "schedule": one.schedule, "last_run_at": last}
            counts = {"runs": one.total_run_count, "paused": one.is_paused, "added": one.is_added}
            click.echo(_writable(json.dumps({**shown, **counts}, ensure_ascii=False)))
            continue
        marks = ", ".join(text for text, is_so in (("paused", one.is_paused), ("added", one.is_added)) if is_so)
        runs = f"{one.total_run_count} {pluralize(one.total_run_count, 'run')}"
        state = f"{runs}, last {last or 'never'}" + (f" ({marks})" if marks else "")
        click.echo(_writable(f"{one.name}\t{one.task}\t{one.schedule}\t{state}"))


def _writable(line: str) -> str:
    """*line* with each byte of a name that is not UTF-8 escaped, as JSON does."""
    return line.encode(errors="backslashreplace").decode()


@beat.command("add")
@click.argument("name")
@click.argument("task")
@click.option("--every", type=float, help="Interval in seconds.")
@click.option("--crontab", "cron", help='Minute, hour, day of the month, month, day of the week: "*/5 * * * *".')
@click.option("-a", "--args", type=JSON_ARRAY, default="[]", help="Positional arguments, a JSON array.")
@click.option("-k", "--kwargs", type=JSON_OBJECT, default="{}", help="Keyword arguments, a JSON object.")
@click.option("-Q", "--queue", help="Queue; by default the routes decide.")
@click.pass_obj
@reaching_redis()
def add_entry(
    known: Any,
    name: str,
    task: str,
    every: float | None,
    cron: str | None,
    args: list[Any],
    kwargs: dict[str, Any],
    queue: str | None,
) -> None:
    """Add a periodic task, or change one that was added."""
    if (every is None) == (cron is None):
        raise click.UsageError("give either --every or --crontab")
    try:
        when = interval(every) if cron is None else _of_cron(cron)
        beat_state.add(known.app, name, task, when, args, kwargs, {"queue": queue} if queue else None)
    except (ParseException, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{name}: added")


def _of_cron(text: str) -> crontab:
    try:
        return crontab.from_string(" ".join(text.split()))
    except (ParseException, ValueError) as error:
        raise click.ClickException(
            f"--crontab {text!r}: {error} There are minutes 0-59, hours 0-23, days 1-31, months 1-12, weekdays 0-6"
        ) from error


def _by_name(command: str, help_text: str, said: str) -> None:
    """Add a subcommand that calls the function of the same name in `beat_state`."""

    @beat.command(command, help=help_text)
    @click.argument("name")
    @click.pass_obj
    def act(known: Any, name: str) -> None:
        try:
            with reaching_redis():
                getattr(beat_state, command)(known.app, name)
        except (ValueError, SchedulingError) as error:
            raise click.ClickException(str(error)) from error
        click.echo(f"{name}: {said}")


_by_name("remove", "Remove a periodic task that was added.", "removed")
_by_name("pause", "Stop all beats from sending a periodic task until it is resumed.", "paused")
_by_name("resume", "Resume a periodic task. Runs that were due in the meantime are not made up for.", "resumed")
_by_name("run", "Send a periodic task now.", "sent")
