"""Shared by all commands: the app that was named, and types of options."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import click

from sidekiq_celery._command_error import CeleryCommandException
from sidekiq_celery._config.rights import is_about_rights, with_rights_hint
from sidekiq_celery._state import get_current_app
from sidekiq_celery.platforms import EX_UNAVAILABLE
from sidekiq_celery.signals import user_preload_options
from sidekiq_celery.utils.log import LOG_LEVELS, mlevel
from sidekiq_celery.utils.text import str_to_list
from sidekiq_celery.utils.time import maybe_iso8601

__all__ = (
    "COMMA_SEPARATED_LIST",
    "ISO8601",
    "ISO8601_OR_FLOAT",
    "JSON_ARRAY",
    "JSON_OBJECT",
    "LOG_LEVEL",
    "QUEUE_NAMES",
    "CLIContext",
    "CeleryCommand",
    "CeleryOption",
    "CommaSeparatedList",
    "ISO8601DateTime",
    "ISO8601DateTimeOrFloat",
    "JsonArray",
    "JsonObject",
    "LogLevel",
    "ParamType",
    "add_preload_options",
    "daemon_options",
    "handle_preload_options",
    "no_daemon",
    "own_setting",
    "reaching_redis",
    "writing",
)

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    # In older releases of click, it takes no type parameters.
    ParamType = click.ParamType


# Marks a callback that passes preload options on.
_HANDLED = "_handles_preload_options"


class CLIContext:
    """
    The object that the group passes to its commands, as `ctx.obj`.

    Args:
        app: The app that was named; by default the current one.
        no_color: Print plain text.
        workdir: The directory in which the command runs.
        quiet: Print less.
    """

    def __init__(self, app: Any, no_color: bool, workdir: Any, quiet: bool = False) -> None:
        self.app = app or get_current_app()
        self.no_color = no_color
        self.workdir = workdir
        self.quiet = quiet

    def style(self, message: Any = None, **kwargs: Any) -> str:
        """Color *message*, unless colors are off."""
        return str(message) if self.no_color else click.style(message, **kwargs)

    def echo(self, message: Any = None, **kwargs: Any) -> None:
        """Print."""
        click.echo(message, color=False if self.no_color else None, **kwargs)

    def secho(self, message: Any = None, **kwargs: Any) -> None:
        """Print in color."""
        self.echo(self.style(message, **kwargs))

    def error(self, message: Any = None, **kwargs: Any) -> None:
        """Print to standard error."""
        self.echo(self.style(message, **kwargs), err=True)


class CeleryOption(click.Option):
    """
    An option of a command; for `app.user_options` and plug-ins.

    Args:
        help_group: The heading under which the help shows it.
    """

    def __init__(self, *args: Any, help_group: str | None = None, **kwargs: Any) -> None:
        self.help_group = help_group
        super().__init__(*args, **kwargs)


class CeleryCommand(click.Command):
    """A command whose help groups options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        # Since click 8.5, arguments have a record, too; the usage line shows them.
        for parameter in (one for one in self.get_params(ctx) if isinstance(one, click.Option)):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "help_group", None) or "Options", []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def handle_preload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Pass options that an app has added to all commands to `signals.user_preload_options`.

    *command* is given those, and options that were added to it alone, only if it takes them.
    """
    if getattr(command, _HANDLED, False):
        return command
    parameters = signature(command).parameters
    takes_all = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())

    @wraps(command)
    def call(*args: Any, **kwargs: Any) -> Any:
        ctx = click.get_current_context()
        given = _preload_options(ctx)
        if given:
            user_preload_options.send(sender=command, app=ctx.obj.app, options=given)
        return command(*args, **{name: value for name, value in kwargs.items() if takes_all or name in parameters})

    setattr(call, _HANDLED, True)
    return call


def add_preload_options(command: click.Command, app: Any) -> None:
    """Let *command*, which may be another package's, have the options that *app* adds to all commands."""
    preload = app.user_options.get("preload", ())
    command.params.extend(option for option in preload if option not in command.params)
    if preload and command.callback is not None:
        command.callback = handle_preload_options(command.callback)


def _preload_options(ctx: click.Context) -> dict[str, Any]:
    """The values of the options that the app has added to all commands."""
    names = [option.name for option in ctx.obj.app.user_options.get("preload", ())]
    return {name: ctx.params[name] for name in names if name in ctx.params}


@contextmanager
def reaching_redis(setting: str = "broker_url (-b)") -> Iterator[None]:
    """
    Turn a Redis that cannot be reached, or that refuses, into a one-sentence error.

    Args:
        setting: The setting that says where Redis is.

    Raises:
        CeleryCommandException: Redis could not be reached, or refused.
    """
    from kombu.exceptions import OperationalError

    from sidekiq_py.errors import RedisError, RedisReplyError

    try:
        yield
    except (OperationalError, RedisError) as error:
        what = f"Could not connect to Redis; check that it is running and that {setting} is right"
        if is_about_rights(error):
            what = "Redis does not allow that"
        elif isinstance(error, RedisReplyError):
            what = "Redis refused that"
        raise CeleryCommandException(f"{what}. Reason: {with_rights_hint(error)}", exit_code=EX_UNAVAILABLE) from error


@contextmanager
def writing(*files: str | None) -> Iterator[None]:
    """
    Turn a file of the command line that cannot be written into a one-sentence error.

    Raises:
        ClickException: One of *files* cannot be written.
    """
    try:
        yield
    except OSError as error:
        # The error may name the file in another form: as an absolute path, or without a slash at its end.
        if os.path.abspath(str(error.filename)) not in {os.path.abspath(file) for file in files if file}:
            raise
        raise click.ClickException(
            f"{error.filename} cannot be written: {error.strerror}; name another file, or leave the option out"
        ) from error


def own_setting(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Use the command's own setting, such as `beat_logfile`, for an option that is not given on the command line."""
    return value or ctx.obj.app.conf.get(f"{ctx.command.name}_{param.name}")


def no_daemon(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """
    Reject an option that would turn the command into a daemon, or the setting in place of it, such as `worker_uid`.

    Raises:
        click.UsageError: The option or the setting was given.
    """
    if value or own_setting(ctx, param, None):
        name = param.opts[-1] if value else f"the setting {ctx.command.name}_{param.name}"
        raise click.UsageError(
            f"{name} is not supported: run the command under systemd, a container or another supervisor, and "
            "choose its user there",
            ctx,
        )


def daemon_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add Celery's daemon options to a command. They are rejected with a hint."""
    hidden: dict[str, Any] = {"callback": no_daemon, "expose_value": False, "hidden": True}
    command = click.option("--detach", is_flag=True, **hidden)(command)
    for name in ("--uid", "--gid", "--umask", "--executable"):
        command = click.option(name, **hidden)(command)
    return command


class CommaSeparatedList(ParamType):
    """Names, separated by commas."""

    name = "comma separated list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return str_to_list(value)


class _QueueNames(CommaSeparatedList):
    name = "queues"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        names = super().convert(value, param, ctx)
        if not all(names):
            self.fail(
                f"{value!r} has an empty queue name; is a variable empty? Separate names with commas, or "
                "leave the option out",
                param,
                ctx,
            )
        return names


class _Json(ParamType):
    kind: type
    example: str

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, self.kind):
            return value
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"{value!r} is not JSON: {error}; write it as in '{self.example}'", param, ctx)
        if not isinstance(found, self.kind):
            self.fail(f"{value} is not a {self.name}; write it as in '{self.example}'", param, ctx)
        return found


class JsonArray(_Json):
    """A list, written as JSON."""

    kind = list
    name = "JSON array"
    example = '[4, "bob"]'


class JsonObject(_Json):
    """A dict, written as JSON."""

    kind = dict
    name = "JSON object"
    example = '{"name": "bob"}'


class ISO8601DateTime(ParamType):
    """A time."""

    name = "iso 8601 time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return maybe_iso8601(value)
        except (TypeError, ValueError) as error:
            self.fail(str(error), param, ctx)


class ISO8601DateTimeOrFloat(ISO8601DateTime):
    """A time, or a number of seconds."""

    name = "iso 8601 time or seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return float(value)
        except (TypeError, ValueError):
            return super().convert(value, param, ctx)


class LogLevel(ParamType):
    """A level of logging, by its name or number."""

    name = "log level"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, int) and str(value).upper() not in LOG_LEVELS:
            self.fail(f"{value!r} is not one of DEBUG, INFO, WARNING, ERROR, CRITICAL, FATAL", param, ctx)
        return mlevel(value)


COMMA_SEPARATED_LIST = CommaSeparatedList()
QUEUE_NAMES = _QueueNames()
JSON_ARRAY = JsonArray()
JSON_OBJECT = JsonObject()
ISO8601 = ISO8601DateTime()
ISO8601_OR_FLOAT = ISO8601DateTimeOrFloat()
LOG_LEVEL = LogLevel()
