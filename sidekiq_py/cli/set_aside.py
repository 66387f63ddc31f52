"""`sidekiq-py set-aside`: renames a key of the wrong type, so that Sidekiq can create a new one in its place."""

import click

from sidekiq_py import program
from sidekiq_py.cli.choosing import ask, yes_option
from sidekiq_py.cli.connection import reads_redis
from sidekiq_py.cli.exit_codes import COULD_NOT
from sidekiq_py.cli.output import echo_json, plain
from sidekiq_py.client import sync_client
from sidekiq_py.clock import now_seconds
from sidekiq_py.doctor import misfits
from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.redis_access.reads import survey

_AWAY = "misplaced:"


@click.command()
@click.argument("key")
@yes_option
@reads_redis
@click.pass_context
def set_aside(ctx: click.Context, key: str, yes: bool, as_json: bool) -> None:
    """
    Rename a key that holds the wrong type.

    Use it for keys that `doctor` reports: something else has written them, and pushes or workers fail because of them.
    KEY is renamed to misplaced:KEY, and Sidekiq creates a new one when it needs it. Any other key is left alone.
    """
    pool = sync_client.current().pool
    namespace = program.settings().redis.namespace
    try:
        identities = process_set.identities(pool)
    except RedisReplyError as error:
        if error.is_about_server:
            raise
        # The key of the wrong type is the set of processes itself.
        identities = []
    misfit = misfits.of_key(pool, key, identities, now_seconds())
    if misfit is None:
        hint = f" Give it without the namespace {namespace}." if namespace and key.startswith(f"{namespace}:") else ""
        raise click.UsageError(
            f"{plain(key)} is not a Sidekiq key that holds the wrong type, so nothing was renamed.{hint} "
            "sidekiq-py doctor lists the keys that do."
        )
    ask(
        lambda: f"{misfit.seen[0].upper()}{misfit.seen[1:]}. Rename it to {_AWAY}{plain(key)}",
        what="set-aside",
        unless=yes,
    )
    done = survey.rename(pool, key, _AWAY + key)
    if as_json:
        echo_json({"key": key, "renamed_to": _AWAY + key if done else None})
    elif done:
        click.echo(f"{plain(key)} is now {_AWAY}{plain(key)}.")
    if not done:
        click.echo(f"Nothing was renamed: {_AWAY}{plain(key)} already exists. Delete it first.", err=True)
        ctx.exit(COULD_NOT)
