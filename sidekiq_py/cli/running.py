"""`sidekiq-py jobs`: shows the running jobs."""

from typing import Any

import click

from sidekiq_py.api import Process, ProcessSet, Work, WorkSet
from sidekiq_py.cli.choosing import filter_options, take_filter, warn_of_queue
from sidekiq_py.cli.connection import complete_process, reads_redis
from sidekiq_py.cli.output import echo_json_array, echo_table, job_cells, shown, span
from sidekiq_py.cli.processes import chosen
from sidekiq_py.logs import counted

_ARGS_WIDTH = 60


@click.command()
@filter_options(error=False, time="started")
@click.option(
    "--process",
    "process_name",
    metavar="IDENTITY",
    shell_complete=complete_process,
    help="Only jobs of this process; also a host, or host:pid.",
)
@reads_redis
def jobs(process_name: str | None, as_json: bool, **options: Any) -> None:
    """
    Show running jobs: where, and for how long.

    The job that has been running longest comes first. The data is as of each process's last heartbeat, up to ten
    seconds ago, so short jobs may never show up here.
    """
    processes = {process.identity: process for process in ProcessSet(clean=False)}
    wanted = take_filter(options)
    warn_of_queue(wanted)
    works = WorkSet().find(wanted)
    if process_name is not None:
        names = {process.identity for process in chosen([process_name], list(processes.values()))}
        works = [work for work in works if work.process_id in names]
    if as_json:
        echo_json_array(work_as_json(work, processes.get(work.process_id)) for work in works)
        return
    if not works:
        said = "No matching job is running" if not wanted.is_empty or process_name else "No job is running"
        click.echo(f"{said}, as of the last heartbeats ({counted(len(processes), 'process', 'processes')}).")
        return
    rows = [
        (
            "-" if work.elapsed_seconds is None else span(work.elapsed_seconds),
            work.queue,
            *job_cells(work.job, _ARGS_WIDTH),
            work.job.jid or "-",
            work.process_id,
            language(processes.get(work.process_id)),
        )
        for work in works
    ]
    headings = ("RUNNING", "QUEUE", "CLASS", "ARGS", "JID", "PROCESS", "")
    echo_table(headings, rows, right=("RUNNING",), elastic=("CLASS", "ARGS"))


def language(process: Process | None) -> str:
    """`python` or `ruby`; empty if the process has gone meanwhile."""
    if process is None:
        return ""
    return "python" if process.is_python else "ruby"


def work_as_json(work: Work, process: Process | None) -> dict[str, Any]:
    """One running job, as `jobs --json` and `top --once --json` print it."""
    elapsed, job = work.elapsed_seconds, shown(work.job)
    return {
        "jid": job.jid,
        "class": job.display_class,
        "args": job.display_args,
        "queue": work.queue,
        "process": work.process_id,
        "thread": work.thread_id,
        "language": language(process) or None,
        "run_at": None if work.run_at is None else work.run_at.isoformat(),
        "elapsed": None if elapsed is None else round(elapsed, 3),
        "payload": job.item or None,
    }
