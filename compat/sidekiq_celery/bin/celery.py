"""The program `sidekiq-celery`: finds the app and runs a command."""

import errno
import os
import traceback
from pathlib import Path
from typing import Any

import click

import sidekiq_py
from sidekiq_celery._version import VERSION_BANNER, __version__
from sidekiq_celery.app.finding import find_app, is_of_the_real_celery
from sidekiq_celery.bin.absent import USE_OUR_NAME, Commands, is_of_celery
from sidekiq_celery.bin.base import CLIContext, add_preload_options
from sidekiq_celery.bin.beat import beat
from sidekiq_celery.bin.bridge import bridge
from sidekiq_celery.bin.control import control, inspect, status
from sidekiq_celery.bin.events import events
from sidekiq_celery.bin.ruby_steps import ruby_steps
from sidekiq_celery.bin.run import run
from sidekiq_celery.bin.tasks import call, purge, report, result
from sidekiq_celery.bin.worker import worker
from sidekiq_py.worker import open_missing_streams

__all__ = ("celery", "main")


def _change_directory(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None:
        os.chdir(value)
    return value


@click.group(cls=Commands, invoke_without_command=True)
@click.option("-A", "--app", envvar="APP", type=click.UNPROCESSED, help="The app: module, module:attribute or package.")
@click.option("-b", "--broker", envvar="BROKER_URL", help="URL of the Redis that holds the jobs.")
@click.option("--result-backend", envvar="RESULT_BACKEND", help="URL of the result backend.")
@click.option("--loader", envvar="LOADER", help="Class of the loader.")
@click.option("--config", envvar="CONFIG_MODULE", help="Module with the settings.")
@click.option(
    "--workdir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    callback=_change_directory,
    is_eager=True,
    help="Directory to run in.",
)
@click.option("-C", "--no-color", envvar="NO_COLOR", is_flag=True, help="Print plain text without colors.")
@click.option("-q", "--quiet", is_flag=True, help="Print less.")
@click.option("--version", is_flag=True, help="Show the version.")
@click.option("--skip-checks", envvar="SKIP_CHECKS", is_flag=True, help="Skip Django's checks.")
@click.pass_context
def celery(
    ctx: click.Context,
    app: Any,
    broker: str | None,
    result_backend: str | None,
    loader: str | None,
    config: str | None,
    workdir: Path | None,
    no_color: bool,
    quiet: bool,
    version: bool,
    skip_checks: bool,
) -> None:
    """Celery's command line, on Sidekiq's queues."""
    if version:
        # Celery's line comes first, as in Celery, because programs parse the release from it.
        click.echo(VERSION_BANNER)
        click.echo(f"sidekiq-py {sidekiq_py.__version__}, whose sidekiq_celery has the API of Celery {__version__}")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit()
    if ctx.invoked_subcommand in (run.name, ruby_steps.name):
        # With `run`, the program makes its own app; `ruby-steps` works on a file and needs none.
        return
    # As in Celery, the variables are set first: the module that makes the app may read them.
    for name, value in (
        ("CELERY_LOADER", loader),
        ("CELERY_BROKER_URL", broker),
        ("CELERY_RESULT_BACKEND", result_backend),
        ("CELERY_CONFIG_MODULE", config),
        ("CELERY_SKIP_CHECKS", "true" if skip_checks else None),
    ):
        if value:
            os.environ[name] = value
    found = _load(ctx, app) if isinstance(app, str) else app
    if is_of_the_real_celery(found):
        # Its commands would run Celery's worker, which serves Celery's queues.
        ctx.fail(f"{app} is an app of the real Celery; {USE_OUR_NAME}")
    if found is not None and not hasattr(found, "user_options"):
        ctx.fail(
            f"{app} is a {type(found).__name__}, not a Celery app; name the variable that holds one, as in "
            "shop:celery_app. If a function makes the app, name a module that calls it"
        )
    ctx.obj = CLIContext(app=found, no_color=no_color, workdir=workdir, quiet=quiet)
    _add_user_options(ctx.obj.app)


for _command in (worker, beat, bridge, call, control, events, inspect, result, purge, report, ruby_steps, run, status):
    celery.add_command(_command)


def _load(ctx: click.Context, name: str) -> Any:
    try:
        return find_app(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith((f"{error.name}.", f"{error.name}:"))):
            ctx.fail(
                f"there is no module {error.name!r}; name the one with your app with -A, and run in its directory "
                "or pass it as --workdir"
            )
        if is_of_celery(error):
            raise
        ctx.fail(f"while importing {name}:\n{traceback.format_exc()}")
    except AttributeError as error:
        ctx.fail(f"{error}\n{traceback.format_exc()}" if "has no app" not in str(error) else str(error))
    except Exception:  # noqa: BLE001 - report any error of the program with its traceback
        ctx.fail(f"while importing {name}:\n{traceback.format_exc()}")


def _add_user_options(app: Any) -> None:
    for name, command in celery.commands.items():
        command.params.extend(option for option in app.user_options.get(name, ()) if option not in command.params)
        add_preload_options(command, app)


def main() -> Any:
    """Run the command line of this process."""
    open_missing_streams()
    try:
        return celery(auto_envvar_prefix="CELERY", prog_name="sidekiq-celery")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise SystemExit(f"Error: The output could not be written: {error.strerror}.") from error
