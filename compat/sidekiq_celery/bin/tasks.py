"""`call`, `result`, `purge` and `report`."""

import sys
from typing import Any

import click

from sidekiq_celery.bin.base import (
    COMMA_SEPARATED_LIST,
    ISO8601,
    ISO8601_OR_FLOAT,
    JSON_ARRAY,
    JSON_OBJECT,
    QUEUE_NAMES,
    CeleryCommand,
    handle_preload_options,
    reaching_redis,
)
from sidekiq_celery.exceptions import SecurityError
from sidekiq_celery.utils.functional import dictfilter
from sidekiq_celery.utils.text import pluralize
from sidekiq_py.payloads import escaped_lines


@click.command(cls=CeleryCommand)
@click.argument("name")
@click.option("-a", "--args", type=JSON_ARRAY, default="[]", help="Positional arguments, a JSON array.")
@click.option("-k", "--kwargs", type=JSON_OBJECT, default="{}", help="Keyword arguments, a JSON object.")
@click.option("--eta", type=ISO8601, help="When to run it.")
@click.option("--countdown", type=float, help="Run it in this many seconds.")
@click.option("--expires", type=ISO8601_OR_FLOAT, help="When, or after how many seconds, it expires.")
@click.option("--serializer", default="json", help="Serializer of the arguments.")
@click.option("--queue", help="Queue; by default the routes decide.")
@click.option("--exchange", help="Exchange of the queue.")
@click.option("--routing-key", help="Routing key of the queue.")
@click.pass_context
@handle_preload_options
def call(ctx: click.Context, name: str, **options: Any) -> None:
    """Send a task by name, and print its id."""
    from kombu.exceptions import SerializerNotInstalled

    try:
        with reaching_redis():
            sent = ctx.obj.app.send_task(name, **dictfilter(options))
    except SerializerNotInstalled as error:
        raise click.BadParameter(
            f"{error}; check its name, or install its package", param_hint="--serializer"
        ) from error
    ctx.obj.echo(sent.id)


@click.command(cls=CeleryCommand)
@click.argument("task_id")
@click.option("-t", "--task", help="Name of the task, if it has a result backend of its own.")
@click.option("--traceback", is_flag=True, help="Print the traceback instead.")
@click.pass_context
@handle_preload_options
def result(ctx: click.Context, task_id: str, task: str | None, traceback: bool) -> None:
    """Wait for the result of a task, and print it."""
    from kombu.exceptions import SerializationError, SerializerNotInstalled

    from sidekiq_celery.backends.base import NoResultBackend

    app = ctx.obj.app
    if task:
        app.loader.import_default_modules()
        if task not in app.tasks:
            raise click.ClickException(f"the app has no task {task!r}; check its name, or leave -t out")
    found = (app.tasks[task].AsyncResult if task else app.AsyncResult)(task_id)
    with reaching_redis("result_backend (--result-backend)"):
        try:
            # If the task failed, its exception is raised below.
            text = found.traceback if traceback else found.get(propagate=False)
        except NoResultBackend as error:
            raise click.ClickException(f"{error}, or pass --result-backend URL") from error
        except (SerializationError, SerializerNotInstalled, LookupError, TypeError, ValueError, SecurityError) as error:
            raise click.ClickException(f"the stored result of {task_id} cannot be read: {error!r}") from error
    if not traceback and text is None and found.failed():
        raise click.ClickException(f"task {task_id} has failed, and its stored result does not say why")
    text = text if traceback else found.get()
    if text is not None and sys.stdout.isatty():
        # A terminal would obey control characters. A pipe gets them as they are.
        text = escaped_lines(str(text))
    ctx.obj.echo(text)


@click.command(cls=CeleryCommand)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@click.option("-Q", "--queues", type=QUEUE_NAMES, help="Comma-separated names of queues; by default all of the app's.")
@click.option(
    "-X", "--exclude-queues", type=COMMA_SEPARATED_LIST, help="Comma-separated names of queues to leave alone."
)
@click.pass_context
@handle_preload_options
def purge(ctx: click.Context, force: bool, queues: Any, exclude_queues: Any) -> None:
    """Delete all waiting tasks from queues. This cannot be undone."""
    from sidekiq_celery._send.emptying import purge as empty

    app = ctx.obj.app
    names = sorted(set(queues or app.amqp.queues.keys()) - set(exclude_queues or ()))
    if not names:
        ctx.obj.echo("No queue is left to purge.")
        return
    if not force:
        click.confirm(
            f"Delete all tasks in {', '.join(names)}? This cannot be undone (use -f to skip this question)", abort=True
        )
    with reaching_redis():
        count = empty(app, names)
    where = pluralize(len(names), "queue")
    if count:
        ctx.obj.echo(f"Purged {count} {pluralize(count, 'message')} from {len(names)} known task {where}.")
    else:
        ctx.obj.echo(f"No messages purged from {len(names)} {where}.")


@click.command(cls=CeleryCommand)
@click.pass_context
@handle_preload_options
def report(ctx: click.Context) -> None:
    """Print details for a bug report."""
    app = ctx.obj.app
    app.loader.import_default_modules()
    ctx.obj.echo(app.bugreport())
