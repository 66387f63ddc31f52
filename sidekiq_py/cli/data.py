"""Commands that enqueue a job and show the system's state."""

import re
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from sidekiq_py.api import ProcessSet, Stats
from sidekiq_py.cli.connection import complete_queue, pushes_jobs, reads_redis
from sidekiq_py.cli.output import echo_json, echo_json_array, echo_table, relative
from sidekiq_py.client import sync_client
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import JsonParseError
from sidekiq_py.registry import registry
from sidekiq_py.wire.json_dialect import loads

_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhd]?)+", re.ASCII)
_SPAN_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)


def span_seconds(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """Seconds of `90`, `5m`, `1h30m`, `2d`."""
    if text is None:
        return None
    if not _SPAN.fullmatch(text):
        raise click.BadParameter(f"{text!r} is no span of time; write seconds, or 5m, 1h30m, 2d")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _SPAN_PART.findall(text))


def epoch_seconds(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """Epoch seconds of themselves, or of ISO 8601 with a zone."""
    if text is None or re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return None if text is None else float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time; write 2030-01-31T08:00:00Z, or epoch seconds") from None
    if moment.tzinfo is None:
        raise click.BadParameter(f"{text!r} names no zone; add Z for UTC, or +01:00")
    return moment.timestamp()


def retry_value(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> bool | int | None:
    """The payload's `retry`: `true`, `false` or a number."""
    if text is None or text.lower() in ("true", "false"):
        return None if text is None else text.lower() == "true"
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise click.BadParameter(f"{text!r} must be true, false or the number of retries")
    return int(text)


@click.command()
@click.argument("job_class", metavar="CLASS")
@click.argument("args", metavar="[ARGS]", default="[]")
@click.option("-q", "--queue", shell_complete=complete_queue, help="Its queue; else the job's own, or default.")
@click.option("--in", "interval", callback=span_seconds, metavar="SPAN", help="Run it so much later: 90, 5m, 1h30m.")
@click.option(
    "--at", callback=epoch_seconds, metavar="TIME", help="Run it then: 2030-01-31T08:00:00Z, or epoch seconds."
)
@click.option("--jid", help="Its id; one is made up otherwise.")
@click.option("--retry", callback=retry_value, metavar="true|false|N", help="How often it is tried again.")
@pushes_jobs
@reads_redis
def push(
    job_class: str,
    args: str,
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
    if interval is not None and at is not None:
        raise click.UsageError("--in and --at both say when; give one of them")
    when = at if interval is None else now_seconds() + interval
    declared = registry.find(job_class)
    item: dict[str, Any] = {"class": declared.job if declared else job_class, "args": _arguments(args)}
    options = {"queue": queue, "at": when, "jid": jid, "retry": retry}
    item.update({name: value for name, value in options.items() if value is not None})
    pushed = sync_client.current().push(item)
    if pushed is None:
        raise click.ClickException("a client middleware stopped the push; nothing was enqueued")
    if as_json:
        echo_json({"jid": pushed, "class": job_class, "at": when})
    else:
        click.echo(pushed)


@click.command()
@reads_redis
def stats(as_json: bool) -> None:
    """Show counters and sizes."""
    state = Stats()
    numbers = {
        "processed": state.processed,
        "failed": state.failed,
        "processes": state.processes_size,
        "busy": state.workers_size,
        "enqueued": state.enqueued,
        "in_flight": sum(entry.count for entry in state.in_flight),
        "scheduled": state.scheduled_size,
        "retries": state.retry_size,
        "dead": state.dead_size,
        "default_latency": round(state.default_queue_latency, 3),
    }
    if as_json:
        echo_json(numbers)
        return
    latency = numbers.pop("default_latency")
    rows = [(name.replace("_", " ").capitalize(), f"{number:,}") for name, number in numbers.items()]
    echo_table(("STATISTIC", "VALUE"), [*rows, ("Latency of default", f"{latency:.2f} s")], right=("VALUE",))


@click.command()
@reads_redis
def queues(as_json: bool) -> None:
    """
    Show queues: size, latency, jobs in flight.

    LATENCY is the age in seconds of the job that runs next. IN FLIGHT are jobs that Python workers have taken and not
    settled; they are safe in Redis, and Ruby's Web UI does not show them.
    """
    summaries = Stats().queue_summaries
    if as_json:
        echo_json_array({**asdict(summary), "latency": round(summary.latency, 3)} for summary in summaries)
        return
    if not summaries:
        click.echo("There are no queues: nothing was ever pushed to this Redis.")
        return
    rows = [(q.name, q.size, f"{q.latency:.2f}", q.in_flight, "paused" if q.paused else "") for q in summaries]
    echo_table(("NAME", "SIZE", "LATENCY", "IN FLIGHT", ""), rows, right=("SIZE", "LATENCY", "IN FLIGHT"))


@click.command()
@reads_redis
def processes(as_json: bool) -> None:
    """
    Show worker processes, Ruby's and Python's.

    BUSY are the jobs that run, as of the last heartbeat, and how many can. IN FLIGHT are jobs that a Python process has
    taken and not settled.
    """
    taken: dict[str, int] = {}
    for entry in Stats().in_flight:
        taken[entry.identity] = taken.get(entry.identity, 0) + entry.count
    found = list(ProcessSet())
    if as_json:
        echo_json_array(_process(process, taken.pop(process.identity, 0)) for process in found)
        return
    now = now_seconds()
    rows = [
        (
            process.identity,
            process.tag or "-",
            relative(process.started_at, now),
            f"{process.busy}/{process.concurrency}",
            taken.pop(process.identity, 0) if process.is_python else "-",
            f"{process.rss_kb // 1024} MB",
            ",".join(process.queues),
            " ".join(part for part in (process.version, "python" if process.is_python else None) if part) or "ruby",
            "quiet" if process.is_stopping else "",
        )
        for process in found
    ]
    if rows:
        headings = ("IDENTITY", "TAG", "STARTED", "BUSY", "IN FLIGHT", "RSS", "QUEUES", "VERSION", "")
        echo_table(headings, rows, right=("BUSY", "IN FLIGHT", "RSS"))
    else:
        click.echo("No process is at work. Start one: sidekiq-py worker -r myapp.jobs")
    if taken:
        count = sum(taken.values())
        jobs = "1 job is" if count == 1 else f"{count:,} jobs are"
        click.echo(
            f"{jobs} in flight at processes without a heartbeat; `sidekiq-py recover` gives back what they hold."
        )


def _process(process: Any, in_flight: int) -> dict[str, Any]:
    return {
        "identity": process.identity,
        "hostname": process.hostname,
        "pid": process.pid,
        "tag": process.tag,
        "labels": process.labels,
        "queues": process.queues,
        "concurrency": process.concurrency,
        "busy": process.busy,
        "in_flight": in_flight,
        "quiet": process.is_stopping,
        "rss_kb": process.rss_kb,
        "rtt_us": process.rtt_us,
        "version": process.version,
        "is_python": process.is_python,
        "started_at": None if process.started_at is None else process.started_at.isoformat(),
        "beat_at": process.beat_at.astimezone(UTC).isoformat(),
    }


def _arguments(text: str) -> list[Any]:
    source = sys.stdin.read() if text == "-" else text
    try:
        args = loads(source.encode(errors="surrogateescape"))
    except JsonParseError as error:
        raise click.UsageError(
            f"""ARGS cannot be read: {error}. Write an array in single quotes, texts in double quotes: '["bob", 5]'"""
        ) from error
    if not isinstance(args, list):
        raise click.UsageError(
            f"ARGS is {source.strip()}, which is no array; for a single argument write '[{source.strip()}]'"
        )
    return args
