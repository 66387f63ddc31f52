"""
The command line: turns arguments, YAML and environment variables into a `Config` or a call to the data API.

Each command has its own module, which is imported only when the command runs, so that `sidekiq-py --help` and
completion answer at once. May import every layer below.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

import click

from sidekiq_py.cli.version import show_version
from sidekiq_py.engine.report.standard_streams import open_missing_streams
from sidekiq_py.errors import ConfigError, SidekiqError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem  # only loaded when a shell asks for completions

# Command → its import path and its line in the help, so that the help can be shown without importing the command.
COMMANDS: dict[str, tuple[str, str]] = {
    "worker": ("sidekiq_py.cli.worker:worker", "Run a worker process."),
    "push": ("sidekiq_py.cli.data:push", "Enqueue one job."),
    "stats": ("sidekiq_py.cli.data:stats", "Show counters and sizes."),
    "top": ("sidekiq_py.cli.top:top", "Watch processes, queues and running jobs live."),
    "queues": ("sidekiq_py.cli.queues:queues", "List, show, clear, delete, pause and move queues."),
    "jobs": ("sidekiq_py.cli.running:jobs", "Show running jobs: where, and for how long."),
    "find": ("sidekiq_py.cli.find:find", "Show where a job is, by its id or its arguments."),
    "processes": ("sidekiq_py.cli.processes:processes", "List, quiet and stop worker processes of both languages."),
    "retries": ("sidekiq_py.cli.job_sets:retries", "List, retry, reschedule, kill or delete jobs that failed."),
    "scheduled": ("sidekiq_py.cli.job_sets:scheduled", "List, run now, reschedule, kill or delete scheduled jobs."),
    "dead": ("sidekiq_py.cli.job_sets:dead", "List, retry or delete dead jobs."),
    "recover": ("sidekiq_py.cli.recover:recover", "Return the jobs of dead workers to their queues."),
    "web": ("sidekiq_py.cli.web:web", "Serve the dashboard."),
    "doctor": ("sidekiq_py.cli.doctor:doctor", "Find problems with Redis and the processes that share it."),
    "demo": ("sidekiq_py.cli.demo:demo", "Run Python and Ruby on one private Redis, step by step."),
    "set-aside": ("sidekiq_py.cli.set_aside:set_aside", "Rename a key that holds the wrong type."),
    "ruby-support": (
        "sidekiq_py.cli.ruby_support:ruby_support",
        "Print the Ruby file that batches and other extensions need.",
    ),
    "completion": ("sidekiq_py.cli.completion:completion", "Print a completion script for your shell."),
}

# What follows them is a module or a queue, which may be called like a command.
_NAMING = ("-r", "--require", "-q", "--queue")


def all_commands() -> dict[str, tuple[str, str]]:
    """The table above, plus the commands that extensions add."""
    from sidekiq_py.program import extensions  # imported here because our own commands do not need it

    return COMMANDS | {name: where for name, where in extensions.commands().items() if name not in COMMANDS}


class LazyGroup(click.Group):
    """A group that imports a command only when it runs; showing the help imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table, followed by those of extensions."""
        return list(all_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command *cmd_name* and return it."""
        found = COMMANDS.get(cmd_name) or all_commands().get(cmd_name)
        if found is None:
            return None
        module_name, _, attribute = found[0].partition(":")
        command: click.Command = getattr(import_module(module_name), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the closest command for one that does not exist. click does so from 8.5 on, but not for ours."""
        name = args[0]  # click empties the list if it looks like an option
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from sidekiq_py.options import closest  # for this advice alone

            near = closest(name, all_commands(), least=0.6)
            if near is None:
                raise
            ctx.fail(f"No such command {name!r}. Did you mean {near!r}?")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, from the tables alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in all_commands().items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete a command's name, from the tables alone."""
        from click.shell_completion import CompletionItem  # as above

        found = all_commands().items()
        names = [CompletionItem(name, help=line) for name, (_, line) in found if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """
        Say where a flag belongs that is given before the command: at the end. Without a command, as for Ruby's
        `sidekiq`, it is a worker's. With Celery's -A, the program is the wrong one.
        """
        open_missing_streams()
        given = list(args)
        names_app = any(word == "--app" or word.startswith(("-A", "--app=")) for word in given)
        if names_app and not ctx.resilient_parsing:
            ctx.fail("-A names a Celery app, and `sidekiq-celery` runs those: sidekiq-celery -A myapp worker")
        try:
            # --help and --version print from here.
            with _reporting_a_full_disk():
                return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            import shlex  # for this advice alone

            before = ["", *given]
            at = next((at for at, word in enumerate(given) if word in COMMANDS and before[at] not in _NAMING), None)
            advice = (
                f"To run a worker: sidekiq-py worker {shlex.join(given)}"
                if at is None
                else f"Options come after the command: sidekiq-py {shlex.join(given[at:] + given[:at])}"
            )
            # In click 8.1 this message has no full stop.
            advice = f"{error.message.rstrip('.')}. {advice}"
            raise click.NoSuchOption(error.option_name, advice, error.possibilities, error.ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """
        Run the command. Print our own errors as one sentence on standard error, without a traceback.

        Ctrl-C ends every command with 130. click would exit with 1, as after the answer "no" or Ctrl-D.
        """
        _print_any_name()
        if os.environ.get("NO_COLOR"):
            # https://no-color.org, which click does not follow.
            ctx.color = False
        try:
            with _reporting_a_full_disk():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            return _stop(ctx, interrupt)
        except click.Abort as abort:
            # click's questions turn Ctrl-C and Ctrl-D alike into an Abort, raised while they handle the original.
            if isinstance(abort.__context__, KeyboardInterrupt):
                return _stop(ctx, abort.__context__)
            raise
        except ConfigError as error:
            from sidekiq_py.wire.control_characters import escaped_lines  # only needed here

            raise click.UsageError(escaped_lines(str(error))) from error
        except SidekiqError as error:
            from sidekiq_py.cli.advice import with_advice  # only needed here
            from sidekiq_py.wire.control_characters import escaped_lines

            raise click.ClickException(escaped_lines(with_advice(error))) from error


@contextmanager
def _reporting_a_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise click.ClickException(f"The output could not be written: {error.strerror}.") from error


def _print_any_name() -> None:
    """
    Let standard output write names that are not UTF-8, as standard error does: a command that stops ten processes must
    not end after the first because of its name.
    """
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _stop(ctx: click.Context, interrupt: KeyboardInterrupt) -> NoReturn:
    from sidekiq_py.cli.exit_codes import STOPPED  # only needed here

    if sys.stderr.isatty():
        # The terminal has written ^C, perhaps behind a question.
        click.echo(err=True)
    click.echo(str(interrupt) or "Stopped by Ctrl-C.", err=True)
    ctx.exit(STOPPED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=show_version, help="Show the version."
)
def main() -> None:
    """
    Run and operate Sidekiq jobs from Python.

    Set REDIS_URL, or pass --redis-url to a command, to say where Redis is. `sidekiq-py COMMAND --help` shows a
    command's options.
    """
