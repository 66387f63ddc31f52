"""Commands that other packages add, and commands of Celery that are not available here, each with an alternative."""

import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from sidekiq_celery.bin.base import add_preload_options
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_py.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_INSTEAD = {
    "multi": "have systemd, a container or another supervisor start each worker with `sidekiq-celery -A proj worker`",
    "shell": "start python and import the app",
    "list": "use `sidekiq-py queues`",
    "graph": "call result.graph.to_dot(file) in Python",
    "amqp": "queues are Redis lists; use `sidekiq-py queues`, `sidekiq-celery purge -Q NAME` or redis-cli",
    "migrate": "use `sidekiq-celery bridge`",
    "upgrade": "you do not need it, as old names of settings still work",
    "flower": "Flower is not installed: `pip install flower`, or elsewhere `celery --broker=redis://… flower`",
    "logtool": "use any other tool for log files",
}


USE_OUR_NAME = (
    "change the imports from `celery` to `sidekiq_celery`, or keep them and start the program with `sidekiq-celery run "
    "-m celery …`, or call `sidekiq_celery.install_as_celery()` before them"
)


class Commands(click.Group):
    """
    A command group that names an alternative for a missing command.

    As programs remove commands of Celery and add their own (Indico does), the missing ones are among `commands` too.

    Packages add commands with entry points in the group `celery.commands`, as in Celery. They are only looked up for
    the help, and for a command that is not one of ours.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in _INSTEAD:
            self.add_command(_Absent(name))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands that can be run."""
        own = (name for name, command in self.commands.items() if not isinstance(command, _Absent))
        return sorted({*own, *_added()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None if there is none."""
        found = super().get_command(ctx, cmd_name)
        return _added().get(cmd_name, found) if found is None or isinstance(found, _Absent) else found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, _Absent):
            ctx.fail(f"there is no command {command.name!r} here; {_INSTEAD[str(command.name)]}")
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """
        Invoke as click does. Settings that cannot be used are reported in one sentence, and so is an import of Celery,
        which a package may make only when a command loads the tasks. If `-A` is given after the command, as before
        Celery 5, say where it goes.
        """
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name not in ("-A", "--app") or error.ctx is None:
                raise
            command = error.ctx.info_name
            error.ctx.fail(f"{error.option_name} goes before the command: sidekiq-celery -A proj {command}")
        except (ImproperlyConfigured, ConfigError) as error:
            raise click.ClickException(str(error)) from error
        except ModuleNotFoundError as error:
            if not is_of_celery(error):
                raise
            ctx.fail(f"{_place_of_import(error)}: there is no Celery here; {USE_OUR_NAME}")


def is_of_celery(error: ModuleNotFoundError) -> bool:
    """Whether Celery was to be imported, and there is neither the real one nor the alias."""
    return (error.name or "").partition(".")[0] == "celery" and "celery" not in sys.modules


def _place_of_import(error: ModuleNotFoundError) -> str:
    """The line of the program that imports the module."""
    frames = traceback.extract_tb(error.__traceback__)
    asking = next((frame for frame in reversed(frames) if not frame.filename.startswith("<frozen ")), frames[-1])
    return f"{asking.filename}, line {asking.lineno}: {asking.line}"


class _Absent(click.Command):
    """A command of Celery that is not available here."""


class _Added(click.Command):
    """A command of another package. It is imported when it is run, with this package under Celery's name."""

    def __init__(self, entry: "EntryPoint") -> None:
        package = f" {entry.dist.name}" if entry.dist else ""
        super().__init__(entry.name, short_help=f"Added by the package{package}.")
        self._entry = entry

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        command = self._loaded()
        if parent is not None and parent.obj is not None:
            add_preload_options(command, parent.obj.app)
        return command.make_context(info_name, args, parent, **extra)

    def _loaded(self) -> click.Command:
        from sidekiq_celery.import_alias import install_as_celery

        try:
            install_as_celery()
            command: click.Command = self._entry.load()
        except Exception as error:
            raise click.ClickException(
                f"the command {self.name!r} ({self._entry.value}) cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        return command


def _added() -> dict[str, click.Command]:
    from importlib.metadata import entry_points  # takes 50 ms, which only the help and these commands need

    return {entry.name: _Added(entry) for entry in entry_points(group="celery.commands")}
