"""`sidekiq-py push` and `sidekiq-py stats`: enqueue a job, and show counters and sizes."""

import re
import sys
from typing import Any

import click

from sidekiq_py.api import Stats
from sidekiq_py.cli.connection import complete_queue, pushes_jobs, reads_redis
from sidekiq_py.cli.output import echo_done, echo_json, echo_table, iso_time, plain
from sidekiq_py.cli.queues import WHAT_TO_DO
from sidekiq_py.cli.values import calendar_time, epoch_seconds, json_arguments, span_seconds, time_given
from sidekiq_py.client import sync_client
from sidekiq_py.errors import ArgumentValueError, PayloadError
from sidekiq_py.jobs.signatures import misfit
from sidekiq_py.options import closest, complaint_about_queue
from sidekiq_py.registry import registry


def retry_value(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> bool | int | None:
    """Parse the payload's `retry`: `true`, `false` or a number."""
    if text is None or text.lower() in ("true", "false"):
        return None if text is None else text.lower() == "true"
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise click.BadParameter(f"{text!r} must be true, false or the number of retries")
    return int(text)


@click.command()
@click.argument("job_class", metavar="CLASS")
@click.argument("given", metavar="[ARGS]", nargs=-1)
@click.option(
    "-q",
    "--queue",
    shell_complete=complete_queue,
    help="Queue to push to (default: with -r the job's own, else default).",
)
@click.option(
    "--in", "interval", callback=span_seconds, metavar="SPAN", help="Run it after this time: 90 (seconds), 5m, 1h30m."
)
@click.option(
    "--at", callback=epoch_seconds, metavar="TIME", help="Run it at this time: 2030-01-31T08:00:00Z, or epoch seconds."
)
@click.option("--jid", help="Id of the job (default: a random one).")
@click.option(
    "--retry",
    callback=retry_value,
    metavar="true|false|N",
    help="How often to retry it (default: with -r as the job says, else true).",
)
@pushes_jobs
@reads_redis
def push(
    job_class: str,
    given: tuple[str, ...],
    queue: str | None,
    interval: float | None,
    at: float | None,
    jid: str | None,
    retry: bool | int | None,
    as_json: bool,
) -> None:
    """
    Enqueue one job and print its id.

    CLASS is the name under which workers know the job. ARGS is a JSON array; - reads it from standard input.

    \b
    sidekiq-py push HardWorker '["bob", 5]' --queue critical --in 5m
    """
    if (complaint := complaint_about_queue(queue, f"--queue is {queue!r}")) is not None:
        raise click.UsageError(complaint)
    when = time_given(at, interval)
    if len(given) > 1:
        raise click.UsageError(f"""ARGS is one array, in single quotes: '["bob", 5]', not {" ".join(given)}""")
    if when is not None:
        calendar_time(when)
    text = given[0] if given else "[]"
    args = json_arguments(sys.stdin.read() if text == "-" else text)
    declared = registry.find(job_class)
    is_known = declared is not None or job_class in registry.elsewhere
    if not is_known and registry.is_active_job(job_class):
        raise click.UsageError(f"{job_class} is an Active Job; enqueue it in a program, with perform_later")
    meant = [] if is_known else [name for name in registry.classes() if name.endswith(f".{job_class}")]
    if len(meant) == 1:
        raise click.UsageError(f"no job is called {job_class}; did you mean {meant[0]}?")
    if declared is not None and (unfit := misfit(declared.job, args)) is not None:
        parameters, error = unfit
        raise click.UsageError(f"{declared.name} takes {parameters}: {error}") from error
    item: dict[str, Any] = {"class": declared.job if declared else job_class, "args": args}
    options = {"queue": queue, "at": when, "jid": jid, "retry": retry}
    item.update({name: value for name, value in options.items() if value is not None})
    try:
        pushed = sync_client.current().push(item)
    except (PayloadError, ArgumentValueError) as error:
        raise click.UsageError(str(error)) from error
    if pushed is None:
        raise click.ClickException("a client middleware stopped the push; nothing was enqueued")
    facts = {"jid": pushed, "class": job_class, "at": None if when is None else iso_time(when)}
    echo_done(facts, pushed, as_json=as_json)
    if not is_known:
        _warn_of_mistaken(job_class)


def _warn_of_mistaken(job_class: str) -> None:
    """Say on standard error if no worker is likely to know the class; Ruby's classes cannot be seen from here."""
    near = closest(job_class, registry.classes())
    if near is not None:
        click.echo(f"No module given with -r declares {plain(job_class)}. Did you mean {near}?", err=True)
    elif job_class.isidentifier() and job_class[0].islower():
        click.echo(
            f"Workers know a Python job by its module and function, as in myapp.jobs.{job_class}, or by its name=. "
            "-r myapp.jobs lets push check it.",
            err=True,
        )


@click.command()
@reads_redis
def stats(as_json: bool) -> None:
    """Show counters and sizes."""
    state = Stats()
    queues = state.queue_summaries
    unread = {queue.name: queue.error for queue in queues if queue.error is not None}
    numbers = {
        "processed": state.processed,
        "failed": state.failed,
        "processes": state.processes_size,
        "busy": state.workers_size,
        "enqueued": sum(queue.size for queue in queues),
        "in_flight": sum(entry.count for entry in state.in_flight),
        "scheduled": state.scheduled_size,
        "retries": state.retry_size,
        "dead": state.dead_size,
    }
    latency = None if "default" in unread else state.default_queue_latency
    if as_json:
        rounded = None if latency is None else round(latency, 3)
        echo_json({**numbers, "default_latency": rounded, "unread_queues": list(unread)})
        return
    rows = [(name.replace("_", " ").capitalize(), f"{number:,}") for name, number in numbers.items()]
    rows.append(("Latency of default", "-" if latency is None else f"{latency:.2f} s"))
    echo_table(("STATISTIC", "VALUE"), rows, right=("VALUE",))
    if unread:
        named = ", ".join(f"{plain(name)} ({error})" for name, error in unread.items())
        click.echo(
            f"Not among the enqueued jobs are those of queues that cannot be read: {named}.\n{WHAT_TO_DO}", err=True
        )
