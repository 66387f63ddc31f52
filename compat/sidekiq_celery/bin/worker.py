"""`worker`: runs a worker; this file has its options."""

from typing import Any

import click

from sidekiq_celery.bin.base import (
    COMMA_SEPARATED_LIST,
    LOG_LEVEL,
    QUEUE_NAMES,
    CeleryCommand,
    ParamType,
    daemon_options,
    handle_preload_options,
    no_daemon,
    own_setting,
    reaching_redis,
    writing,
)
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.nodenames import default_nodename, host_format, node_format

__all__ = ("worker",)


class _Autoscale(ParamType):
    name = "max,min"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            numbers = sorted((int(part) for part in str(value).split(",")), reverse=True)
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2):
            self.fail(f"{value!r} is neither one number nor two separated by a comma", param, ctx)
        return (*numbers, 0)[:2]


class _Concurrency(ParamType):
    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value).strip().lower()
        if text == "auto":
            return text
        if not (text.isascii() and text.isdigit()) and text:
            self.fail(f"concurrency is {value!r}; it must be a whole number of at least 1, or 'auto'", param, ctx)
        # As in Celery, 0, and a variable that is empty, mean what the setting says.
        return int(text or 0) or None


class _Pool(ParamType):
    name = "pool"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from sidekiq_celery.concurrency import pool_name

        try:
            return pool_name(value)
        except ImproperlyConfigured as error:
            self.fail(str(error), param, ctx)


@click.command(cls=CeleryCommand, context_settings={"allow_extra_args": True})
@click.option("-n", "--hostname", help="Node name, such as w1@%h; %h is the host, %n its first part, %d its domain.")
@click.option("-l", "--loglevel", type=LOG_LEVEL, default="WARNING", show_default=True, help="Log level.")
@click.option("-f", "--logfile", callback=own_setting, help="Log file; by default standard error.")
@click.option("--pidfile", callback=own_setting, help="File that contains the process id while the worker runs.")
@click.option(
    "-c",
    "--concurrency",
    type=_Concurrency(),
    help="Number of tasks to run at once; by default one per processor, with 'auto' no more than a container may use.",
)
@click.option("-P", "--pool", type=_Pool(), help="prefork (default), threads, solo or asyncio.")
@click.option("-Q", "--queues", type=QUEUE_NAMES, help="Comma-separated names of queues to serve.")
@click.option(
    "-X", "--exclude-queues", type=COMMA_SEPARATED_LIST, help="Comma-separated queues in task_queues not to serve."
)
@click.option("-I", "--include", type=COMMA_SEPARATED_LIST, help="Comma-separated modules to import.")
@click.option("--time-limit", type=float, help="Seconds after which a task's process is killed (prefork).")
@click.option("--soft-time-limit", type=float, help="Seconds after which SoftTimeLimitExceeded is raised in a task.")
@click.option("--max-tasks-per-child", type=int, help="Replace a child after this many tasks (prefork).")
@click.option("--max-memory-per-child", type=int, help="Replace a child that uses more than this many KiB (prefork).")
@click.option("--autoscale", type=_Autoscale(), help="Maximum and minimum number of processes or threads.")
@click.option(
    "--probe-port", type=click.IntRange(1, 65535), metavar="PORT", help="Serve /live, /ready and /metrics on this port."
)
@click.option("--purge", "--discard", is_flag=True, help="Delete all waiting tasks from its queues first.")
@click.option("-B", "--beat", is_flag=True, help="Also run beat.")
@click.option("-s", "--schedule-filename", "--schedule", help="Beat: schedule file; the default scheduler ignores it.")
@click.option("--scheduler", help="Beat: class of the scheduler.")
@click.option(
    "-E", "--task-events", "--events", is_flag=True, default=None, help="Send events about tasks to monitors."
)
@click.option("-O", "--optimization", type=click.Choice(("default", "fair")), default="default", hidden=True)
@click.option("-S", "--statedb", hidden=True)
@click.option("--prefetch-multiplier", type=int, hidden=True)
@click.option("--disable-prefetch", is_flag=True, default=None, hidden=True)
@click.option("--pool-start-method", type=click.Choice(("fork", "spawn")), hidden=True)
@click.option("--without-gossip", is_flag=True, hidden=True)
@click.option("--without-mingle", is_flag=True, hidden=True)
@click.option("--without-heartbeat", is_flag=True, hidden=True)
@click.option("--heartbeat-interval", type=int, hidden=True)
@click.option("-D", is_flag=True, callback=no_daemon, expose_value=False, hidden=True)
@daemon_options
@click.pass_context
@handle_preload_options
def worker(ctx: click.Context, hostname: str | None, pidfile: str | None, **options: Any) -> None:
    """
    Run tasks.

    On TERM or Ctrl-C, running tasks finish first. A second signal, a second or more later, or QUIT, skips the wait.
    Settings can follow the options, as in worker.redirect_stdouts=false.
    """
    app = ctx.obj.app
    if ctx.args:
        try:
            app.config_from_cmdline(ctx.args, namespace="worker")
        except (KeyError, ValueError) as error:
            raise click.UsageError(f"{' '.join(ctx.args)}: these are not settings: {error}", ctx) from error
    try:
        name = host_format(default_nodename(hostname))
        pidfile, logfile = (path and node_format(path, name) for path in (pidfile, options["logfile"]))
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from error
    with writing(pidfile, logfile), reaching_redis():
        running = app.Worker(
            hostname=name,
            pidfile=pidfile,
            no_color=ctx.obj.no_color or None,
            quiet=ctx.obj.quiet,
            # For the app's bootsteps, these include the options that it has added.
            **options,
        )
        running.start()
    ctx.exit(running.exitcode)
