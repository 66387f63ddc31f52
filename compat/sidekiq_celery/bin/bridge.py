"""`bridge`: moves messages from Celery's own queues into Sidekiq's, and back."""

import json
import logging
import os
import signal
from typing import Any

import click

from sidekiq_celery.bin.base import JSON_OBJECT, QUEUE_NAMES, CeleryCommand, handle_preload_options
from sidekiq_celery.contract import App

_BROKER_VARIABLES = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
_STOPPING = (signal.SIGTERM, signal.SIGINT)


def _renames(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if any(not old or not new for old, _, new in pairs):
        raise click.BadParameter("write old=new, as in --rename celery=python")
    return {old: new for old, _, new in pairs}


@click.command(cls=CeleryCommand)
@click.option("--from", "source", metavar="URL", help="Where messages are now; by default the app's broker.")
@click.option("--to", "target", metavar="URL", help="Where to move them; by default the app's broker.")
@click.option("--reverse", is_flag=True, help="Move from Sidekiq's queues back to Celery's; --to is Celery's broker.")
@click.option(
    "-Q",
    "--queues",
    type=QUEUE_NAMES,
    help="Comma-separated names of queues; by default those in task_queues and task_routes, and those that tasks "
    "declare.",
)
@click.option(
    "--rename",
    "renames",
    metavar="OLD=NEW",
    multiple=True,
    callback=_renames,
    help="Move a queue's messages into another queue; repeat for more.",
)
@click.option("--once", is_flag=True, help="Exit when nothing is left to move, instead of running until TERM.")
@click.option("--dry-run", is_flag=True, help="Only count what would be moved.")
@click.option(
    "--unacked",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Also move messages that Celery's workers (on Redis) have held for this long without acknowledging them. "
    "Celery itself would rerun those older than the visibility timeout; use 0 only when no Celery worker is running.",
)
@click.option(
    "--transport-options",
    type=JSON_OBJECT,
    default="{}",
    help="broker_transport_options of Celery's broker, a JSON object, if it is not the app's broker.",
)
@click.option(
    "--max-bytes", type=click.IntRange(min=1), help="Leave larger messages where they are; by default 32 MiB."
)
@click.option("--json", "as_json", is_flag=True, help="Print the final report as a JSON object.")
@click.pass_context
@handle_preload_options
def bridge(
    ctx: click.Context,
    source: str | None,
    target: str | None,
    reverse: bool,
    queues: Any,
    renames: dict[str, str],
    once: bool,
    dry_run: bool,
    unacked: float | None,
    transport_options: dict[str, Any],
    max_bytes: int | None,
    as_json: bool,
) -> None:
    """
    Move messages from Celery's queues to Sidekiq's.

    Run it while old producers still publish. Messages with an ETA become scheduled jobs. Parts of chords that were
    called under Celery are left to a Celery worker. You can run any number of bridges, and kill them: no message is
    lost, and none is moved twice, except that a bridge killed on the way back to RabbitMQ may publish one again.
    """
    from sidekiq_celery._config.broker import is_redis
    from sidekiq_celery.bridge.layout import CeleryLayout
    from sidekiq_celery.bridge.run import MOST_BYTES, Bridge, BridgePlan

    app = ctx.obj.app
    try:
        CeleryLayout.of_options(transport_options)
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"--transport-options has a value of the wrong type: {error}", ctx) from error
    of_celery, of_sidekiq = (target, source) if reverse else (source, target)
    if of_sidekiq is not None:
        if not is_redis(of_sidekiq):
            raise click.UsageError(
                f"{'--from' if reverse else '--to'} has to be the URL of the Redis with Sidekiq's queues", ctx
            )
        _use_broker(app, of_sidekiq)
    if of_celery is not None and not is_redis(of_celery):
        _refuse_unusable(of_celery, "--to" if reverse else "--from")
    if unacked is not None and (reverse or (of_celery is not None and not is_redis(of_celery))):
        raise click.UsageError("--unacked is for Celery's queues in Redis; any other broker handles this itself", ctx)
    app.loader.import_default_modules()
    app.finalize()
    plan = BridgePlan(
        queues=list(queues or _queues_of(app)),
        celery_url=of_celery,
        transport_options=transport_options,
        is_reverse=reverse,
        is_once=once,
        is_dry=dry_run,
        renames=renames,
        unacked_after_seconds=unacked,
        most_bytes=max_bytes or MOST_BYTES,
    )
    _run(ctx, Bridge(app, plan), as_json, dry_run)


def _queues_of(app: App) -> list[str]:
    """The names of the queues in `task_queues`, and of those that `task_routes` and single tasks name."""
    from sidekiq_celery._config.routes import MapRoute

    routed = [queue for route in app.amqp.routes if isinstance(route, MapRoute) for queue in route.queues]
    of_tasks = [task.queue for task in app.tasks.values() if getattr(task, "queue", None)]
    return list(dict.fromkeys([*app.amqp.queues, *(getattr(queue, "name", queue) for queue in routed + of_tasks)]))


def _refuse_unusable(url: str, flag: str) -> None:
    """Raise if kombu has no transport for *url*, or if that transport's library is not installed. Nothing connects."""
    from kombu import Connection
    from kombu.utils.url import sanitize_url

    try:
        _ = Connection(url).transport
    except Exception as error:
        # kombu raises KeyError, ImportError or, for Kafka, NameError.
        reason = error.args[0] if isinstance(error, KeyError) else error
        raise click.UsageError(
            f"{flag} is {sanitize_url(url)}, which kombu cannot use here: {reason}. Check the URL, or install what "
            "this broker needs"
        ) from error


def _use_broker(app: Any, url: str) -> None:
    # These variables would override what is set here.
    for name in _BROKER_VARIABLES:
        os.environ.pop(name, None)
    app.conf.update(broker_url=url, broker_read_url=url, broker_write_url=url)


def _run(ctx: click.Context, running: Any, as_json: bool, is_dry: bool) -> None:
    from sidekiq_celery.bridge.envelope import QueueFullError
    from sidekiq_celery.exceptions import ImproperlyConfigured
    from sidekiq_py.errors import ConfigError, RedisError

    if not ctx.obj.quiet:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    def stop(*_: Any) -> None:
        running.stop()
        # A broker may keep the bridge waiting for any time, also while it closes its connection. The second signal ends
        # it at once, which loses nothing.
        for number in _STOPPING:
            signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    failure: Exception | None = None
    try:
        running.run()
    except (ImproperlyConfigured, ConfigError) as error:
        raise click.ClickException(
            f"{error}. --to names Sidekiq's Redis (with --reverse, --from), --transport-options says how Celery's "
            "broker is used"
        ) from error
    except (RedisError, OSError) as error:
        failure = error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _print_report(ctx, running, as_json, is_dry, has_failed=failure is not None)
    if failure is not None:
        # Some messages of redis-py end in a full stop.
        message = str(failure).rstrip(".")
        if isinstance(failure.__cause__, QueueFullError):
            what = "let a worker empty it, or raise its limit"
        elif message.startswith("NOPERM"):
            what = "give this user the rights in docs/bridge.md"
        else:
            what = "check the addresses (--from, --to)"
        raise click.ClickException(f"{message}. Nothing is lost: {what}, and start the bridge again") from failure


def _print_report(ctx: click.Context, running: Any, as_json: bool, is_dry: bool, *, has_failed: bool) -> None:
    if not as_json:
        ctx.obj.echo(running.ledger.as_text(is_dry=is_dry))
        return
    totals = {} if has_failed else running.totals()
    ctx.obj.echo(json.dumps({**running.ledger.as_dict(), "totals": totals}, ensure_ascii=False))
