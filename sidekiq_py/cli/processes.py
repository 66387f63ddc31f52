"""`sidekiq-py processes`: list, quiet, stop and dump worker processes of both languages."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import click

from sidekiq_py.api import Process, ProcessSet, Stats
from sidekiq_py.api.processes import is_silent, seconds_since_beat
from sidekiq_py.cli.choosing import ask, unknown, yes_option
from sidekiq_py.cli.connection import complete_process, reads_redis
from sidekiq_py.cli.exit_codes import COULD_NOT
from sidekiq_py.cli.output import DefaultsToList, echo_json, echo_json_array, echo_table, relative, span
from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import RedisError, SidekiqError
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.reads.in_flight_counts import totals
from sidekiq_py.wire.control_characters import escaped

_SILENT = (
    "{identity} has sent no heartbeat for {age}. If it hangs or is gone, it will not react; look at it on its host, "
    "and end it there."
)


@click.group(cls=DefaultsToList)
def processes() -> None:
    """
    List, quiet and stop worker processes, Ruby's and Python's.

    Without a command, lists them.
    """


@processes.command("list")
@reads_redis
def list_processes(as_json: bool) -> None:
    """
    Show worker processes, Ruby's and Python's.

    BUSY shows how many jobs were running at the last heartbeat, and how many can run at once. IN FLIGHT counts jobs
    that a Python process has fetched and not finished. A silent process has sent no heartbeat for 25 seconds.
    """
    taken = totals(Stats().in_flight, attrgetter("identity"))
    found = list(ProcessSet(clean=False))
    if as_json:
        echo_json_array(process_as_json(process, taken.pop(process.identity, 0)) for process in found)
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
            state(process, now),
        )
        for process in found
    ]
    if rows:
        headings = ("IDENTITY", "TAG", "STARTED", "BUSY", "IN FLIGHT", "RSS", "QUEUES", "VERSION", "")
        echo_table(headings, rows, right=("BUSY", "IN FLIGHT", "RSS"))
    else:
        click.echo("No worker process is running. Start one: sidekiq-py worker -r myapp.jobs")
    if taken:
        click.echo(
            f"{counted(sum(taken.values()), 'job is', 'jobs are')} in flight at processes without a heartbeat; "
            "`sidekiq-py recover` returns jobs to their queues."
        )


def state(process: Process, now: float) -> str:
    if is_silent(process, now):
        return "silent"
    return "quiet" if process.is_stopping else ""


def process_as_json(process: Process, in_flight: int) -> dict[str, Any]:
    """One process, as `processes --json` and `top --once --json` print it."""
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
        "beat_at": process.beat_at.isoformat(),
    }


def chosen(names: Sequence[str], found: Sequence[Process]) -> list[Process]:
    """
    The processes with these identities, or whose identity begins with one of these names and a colon.

    Raises:
        UsageError: A name matches no process.
    """
    wanted = []
    for name in names:
        fitting = [one for one in found if one.identity == name or one.identity.startswith(f"{name.rstrip(':')}:")]
        if not fitting:
            known = [process.identity for process in found]
            raise unknown("process", name, known, "sidekiq-py processes lists them.")
        wanted += [process for process in fitting if process not in wanted]
    return wanted


def _takes_processes(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        reads_redis,
        click.option("--all", "everything", is_flag=True, help="All processes, of both languages."),
        click.argument("identities", metavar="[IDENTITY]...", nargs=-1, shell_complete=complete_process),
    ):
        command = decorate(command)
    return command


@processes.command()
@_takes_processes
@yes_option
def quiet(identities: tuple[str, ...], everything: bool, yes: bool, as_json: bool) -> None:
    """
    Stop processes from fetching jobs.

    They finish their running jobs and stay alive, but fetch no more until they are restarted. Give identities, a host,
    host:pid, or --all. A process reacts at its next heartbeat, within ten seconds.
    """
    wanted = _wanted("quiet", identities, everything)
    if everything and wanted:
        ask(lambda: _question("Quiet", wanted), what="quiet --all", unless=yes)
    message = "{identity} will fetch no more jobs, within ten seconds."
    _send(wanted, Process.quiet, message, as_json=as_json)


@processes.command()
@_takes_processes
@yes_option
def stop(identities: tuple[str, ...], everything: bool, yes: bool, as_json: bool) -> None:
    """
    Stop processes.

    They finish their running jobs, or return them to their queues when the shutdown timeout is over (the worker's -t),
    and exit. Their supervisor (systemd, Kubernetes) may start them again; a child of a worker with --processes is not
    replaced until its parent gets HUP. Give identities, a host, host:pid, or --all. A process reacts at its next
    heartbeat, within ten seconds.
    """
    wanted = _wanted("stop", identities, everything)
    if wanted:
        ask(lambda: _question("Stop", wanted), what="stop", unless=yes)
    message = (
        "{identity} will begin to stop within ten seconds; its jobs then have until its shutdown timeout to finish."
    )
    _send(wanted, Process.stop, message, as_json=as_json)


@processes.command()
@_takes_processes
# For scripts that give it to every command of the group; this one asks nothing.
@click.option("-y", "--yes", is_flag=True, hidden=True, expose_value=False)
def dump(identities: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """
    Make processes log what each of their threads is doing.

    Each process writes the backtraces of its threads to its own log at its next heartbeat, within ten seconds. Give
    identities, a host, host:pid, or --all.
    """
    message = (
        "{identity} will log the backtraces of its threads within ten seconds. Look on {hostname}, where process {pid} "
        "sends its standard output (a file, journalctl _PID={pid}, kubectl logs {hostname})."
    )
    _send(_wanted("dump", identities, everything), Process.dump_threads, message, as_json=as_json)


def _wanted(command: str, identities: Sequence[str], everything: bool) -> list[Process]:
    if bool(identities) == everything:
        raise click.UsageError(f"which processes? Give identities, or --all: sidekiq-py processes {command} --all")
    found = list(ProcessSet())
    return found if everything else chosen(identities, found)


def _question(question: str, wanted: Sequence[Process]) -> str:
    busy = sum(process.busy for process in wanted)
    who = wanted[0].identity if len(wanted) == 1 else counted(len(wanted), "process", "processes")
    return f"{question} {escaped(who)} ({counted(busy, 'job')} running)"


def _send(wanted: Sequence[Process], signal: Callable[[Process], None], message: str, *, as_json: bool) -> None:
    sent: list[Process] = []
    refused: list[tuple[Process, str]] = []
    for process in wanted:
        try:
            signal(process)
            sent.append(process)
        except SidekiqError as error:
            if isinstance(error, RedisError):
                raise
            refused.append((process, str(error)))
    if as_json:
        errors = [{"identity": process.identity, "error": reason} for process, reason in refused]
        echo_json({"sent": [process.identity for process in sent], "refused": errors})
    else:
        now = now_seconds()
        for process in sent:
            host = process.hostname or "its host"
            click.echo(escaped(message.format(identity=process.identity, hostname=host, pid=process.pid)))
            if is_silent(process, now):
                click.echo(
                    escaped(_SILENT.format(identity=process.identity, age=span(seconds_since_beat(process, now)))),
                    err=True,
                )
        for _, reason in refused:
            click.echo(escaped(reason), err=True)
        if not wanted:
            click.echo("No worker process is running.")
    if refused:
        click.get_current_context().exit(COULD_NOT)
