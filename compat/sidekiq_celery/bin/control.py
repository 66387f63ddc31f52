"""`inspect`, `control` and `status`: query and control workers."""

import json
from collections.abc import Callable
from functools import partial
from pprint import pformat
from typing import Any, Literal

import click

from sidekiq_celery._command_error import CeleryCommandException
from sidekiq_celery._config.broker import redis_settings
from sidekiq_celery._config.rights import with_rights_hint
from sidekiq_celery.bin.base import (
    COMMA_SEPARATED_LIST,
    CeleryCommand,
    CeleryOption,
    handle_preload_options,
    reaching_redis,
)
from sidekiq_celery.platforms import EX_UNAVAILABLE
from sidekiq_celery.utils.text import indent, pluralize
from sidekiq_py.payloads import shown

__all__ = ("control", "inspect", "status")

Kind = Literal["inspect", "control"]


def _panel() -> Any:
    from sidekiq_celery.worker.control import Panel

    return Panel


def _commands(kind: Kind) -> dict[str, Any]:
    return {name: about for name, about in sorted(_panel().meta.items()) if about.type == kind and about.visible}


def _list_option(kind: Kind) -> Callable[..., Any]:
    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if not value:
            return
        formatter = click.HelpFormatter()
        with formatter.section(f"{kind.capitalize()} Commands"):
            formatter.write_dl(
                [(f"{name} {about.signature or ''}".rstrip(), about.help) for name, about in _commands(kind).items()]
            )
        ctx.obj.echo(formatter.getvalue(), nl=False)
        ctx.exit()

    return click.option(
        "--list",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help=f"List the {kind} commands and exit.",
    )


def _remote_options(command: Callable[..., Any]) -> Callable[..., Any]:
    option = partial(click.option, cls=CeleryOption, help_group="Remote Control Options")
    names = "Comma-separated node names; by default all."
    for add in (
        option("-j", "--json", "as_json", is_flag=True, help="Print JSON."),
        option("-d", "--destination", type=COMMA_SEPARATED_LIST, help=names),
        option("-t", "--timeout", type=float, default=1.0, show_default=True, help="Seconds to wait for replies."),
    ):
        command = add(command)
    return command


@click.command(cls=CeleryCommand)
@_remote_options
@click.pass_context
@handle_preload_options
def status(ctx: click.Context, timeout: float, destination: Any, as_json: bool) -> None:
    """List the workers that are online."""
    inspecting = partial(ctx.obj.app.control.inspect, timeout=timeout, destination=destination)
    replies = _printed(ctx, "status", lambda printer: inspecting(callback=printer).ping(), as_json, shows_replies=False)
    _count(ctx, replies)


@click.command(cls=CeleryCommand, context_settings={"allow_extra_args": True})
@click.argument("command")
@_list_option("inspect")
@_remote_options
@click.pass_context
@handle_preload_options
def inspect(ctx: click.Context, command: str, timeout: float, destination: Any, as_json: bool) -> None:
    """Print the replies of workers to the inspect command COMMAND."""
    _check(ctx, "inspect", command)
    arguments = _arguments(command, ctx.args)
    inspecting = partial(ctx.obj.app.control.inspect, timeout=timeout, destination=destination)
    what = f"inspect {command}"
    replies = _printed(ctx, what, lambda printer: inspecting(callback=printer)._request(command, **arguments), as_json)
    if not as_json and not ctx.obj.quiet:
        _count(ctx, replies)


@click.command(cls=CeleryCommand, context_settings={"allow_extra_args": True})
@click.argument("command")
@_list_option("control")
@_remote_options
@click.pass_context
@handle_preload_options
def control(ctx: click.Context, command: str, timeout: float, destination: Any, as_json: bool) -> None:
    """Send workers the control command COMMAND."""
    _check(ctx, "control", command)
    arguments = _arguments(command, ctx.args)

    def send(printer: Any) -> Any:
        return ctx.obj.app.control.broadcast(
            command, timeout=timeout, destination=destination, callback=printer, reply=True, arguments=arguments
        )

    _printed(ctx, f"control {command}", send, as_json)


def _check(ctx: click.Context, kind: Kind, command: str) -> None:
    if not _is_known(kind, command):
        # The program's own commands are registered when its modules are imported.
        ctx.obj.app.loader.import_default_modules()
    if not _is_known(kind, command):
        known = ", ".join(_commands(kind))
        raise click.UsageError(f"Command {command} not recognized. Available {kind} commands: {known}", ctx)


def _is_known(kind: Kind, command: str) -> bool:
    """True if the command exists, even if it is not listed."""
    about = _panel().meta.get(command)
    return about is not None and about.type == kind


def _arguments(command: str, given: list[str]) -> dict[str, Any]:
    """
    Convert the words after a command to its arguments.

    Raises:
        click.UsageError: There are too many words, or one has the wrong type.
    """
    about = _panel().meta[command]
    typed = list(about.args or ())
    try:
        arguments = {
            name: make(word) if make is not None else word for (name, make), word in zip(typed, given, strict=False)
        }
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"Command {command!r} takes arguments: {about.signature}; {error}") from error
    rest = given[len(typed) :]
    if about.variadic:
        arguments[about.variadic] = rest
    elif rest:
        raise click.UsageError(f"Command {command!r} takes arguments: {about.signature or 'none'}")
    return arguments


def _printed(
    ctx: click.Context, what: str, ask: Callable[[Any], Any], as_json: bool, *, shows_replies: bool = True
) -> Any:
    """
    Print replies as they arrive, or all of them as JSON, and return them.

    Args:
        ask: Called with a function that takes each reply as it arrives.

    Raises:
        CeleryCommandException: No worker replied, one sent a malformed reply, or Redis cannot be reached.
        ImproperlyConfigured: The broker cannot be reached, and is not Redis.
    """
    from kombu.exceptions import ContentDisallowed, DecodeError

    try:
        with reaching_redis():
            replies = ask(_check_reply if as_json else _reply_printer(ctx, shows_reply=shows_replies))
    except click.ClickException:
        # If the broker is not even Redis, that is the reason to name.
        redis_settings(ctx.obj.app)
        raise
    except (_MalformedReplyError, ContentDisallowed, DecodeError) as error:
        raise CeleryCommandException(
            f"Unable to run `{what}`, because a worker's reply is malformed: {error}. -d NAME asks only that worker",
            exit_code=EX_UNAVAILABLE,
        ) from error
    except Exception as error:
        reason = with_rights_hint(error)
        raise CeleryCommandException(f"Unable to run `{what}`. Reason: {reason}", exit_code=EX_UNAVAILABLE) from error
    if not replies:
        raise CeleryCommandException("No nodes replied within time constraint", exit_code=EX_UNAVAILABLE)
    if as_json:
        from kombu.utils.json import dumps

        ctx.obj.echo(dumps(replies))
    return replies


class _MalformedReplyError(Exception):
    """A worker's reply has no node's name."""


def _check_reply(replies: Any) -> None:
    """
    Accept what a node has sent, if it is a reply under the node's name.

    Raises:
        _MalformedReplyError: It is not.
    """
    if not isinstance(replies, dict) or not replies:
        raise _MalformedReplyError(f"it is {shown(replies)}, and not the node's name with its answer")


def _reply_printer(ctx: click.Context, *, shows_reply: bool) -> Callable[[dict[str, Any]], None]:
    """Return a function that prints each reply as it arrives."""
    context = ctx.obj

    def print_reply(replies: dict[str, Any]) -> None:
        _check_reply(replies)
        node, reply = next(iter(replies.items()))
        is_error = isinstance(reply, dict) and "error" in reply and "ok" not in reply
        summary = (
            context.style("ERROR", fg="red", bold=True) if is_error else context.style("OK", fg="green", bold=True)
        )
        arrow = "" if context.quiet else f"{context.style('->', fg='white', bold=True)} "
        context.echo(f"{arrow} {context.style(f'{node}: ', fg='cyan', bold=True)}{summary}")
        if shows_reply:
            context.echo(indent(_pretty(reply), 4))

    return print_reply


def _pretty(reply: Any) -> str:
    if isinstance(reply, dict) and ("ok" in reply or "error" in reply):
        return indent(_pretty(reply["ok"] if "ok" in reply else reply["error"]), 4)
    if isinstance(reply, dict):
        return json.dumps(reply, sort_keys=True, indent=4, default=repr)
    if isinstance(reply, list):
        return "\n".join(f"* {item}" for item in reply) or "- empty -"
    return reply if isinstance(reply, str) else pformat(reply)


def _count(ctx: click.Context, replies: Any) -> None:
    ctx.obj.echo(f"\n{len(replies)} {pluralize(len(replies), 'node')} online.")
