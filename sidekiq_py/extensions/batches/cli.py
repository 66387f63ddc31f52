"""`sidekiq-py batches`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from sidekiq_py.cli.choosing import ask, at_most, limit_option, yes_option
from sidekiq_py.cli.connection import pushes_jobs, reads_redis
from sidekiq_py.cli.output import (
    DefaultsToList,
    echo_done,
    echo_json,
    echo_json_array,
    echo_table,
    message_cell,
    relative,
    shortened,
)
from sidekiq_py.clock import now_seconds
from sidekiq_py.extensions.batches import state
from sidekiq_py.extensions.batches.api import Batches
from sidekiq_py.extensions.batches.callbacks import EVENTS
from sidekiq_py.extensions.batches.state import STATES, BatchStatus
from sidekiq_py.logs import counted
from sidekiq_py.redaction import current
from sidekiq_py.wire.control_characters import escaped

_SHOWN = 20
_WIDTH = 60


@click.group(cls=DefaultsToList)
def batches() -> None:
    """
    List, show, close, retry, invalidate and delete batches.

    Without a command, lists them.
    """


@batches.command("list")
@click.option("--state", "wanted", type=click.Choice(STATES), help="Only batches in this state.")
@limit_option
@reads_redis
def list_batches(as_json: bool, wanted: Any, limit: int) -> None:
    """List batches, the newest first."""
    shown = at_most(limit, Batches().in_state(wanted) if wanted else iter(Batches()))
    if as_json:
        echo_json_array(status.as_dict(most_members=0) for status in shown)
        return
    now = now_seconds()
    rows = [
        (
            status.bid,
            status.state if status.is_valid else f"{status.state}, invalid",
            status.total,
            status.pending,
            status.failures,
            status.dead + status.lost,
            _ago(status.created_at, now),
            shortened(status.description, _WIDTH),
        )
        for status in shown
    ]
    if not rows:
        click.echo(f"No batch is {wanted}." if wanted else "There are no batches. Open one: sidekiq.Batch()")
        return
    headings = ("BATCH", "STATE", "JOBS", "PENDING", "FAILED", "DEAD", "OPENED", "DESCRIPTION")
    echo_table(headings, rows, right=("JOBS", "PENDING", "FAILED", "DEAD"), elastic=("DESCRIPTION",))


@batches.command()
@click.argument("bid")
@reads_redis
def show(bid: str, as_json: bool) -> None:
    """
    Show a batch and its jobs that did not succeed.

    While a batch is open, this also shows which programs may still add jobs.
    """
    status = Batches().find(bid).status()
    if as_json:
        echo_json(status.as_dict())
        return
    now = now_seconds()
    for name, value in _facts(status, now):
        click.echo(f"{name:15} {escaped(str(value))}")
    if status.unfinished:
        from sidekiq_py.extensions.batches.searches import searches  # for this advice alone

        *commands, in_queue = searches(status)
        what = counted(status.unfinished, "unfinished job runs, waits", "unfinished jobs run, wait")
        click.echo(f"\n{what} in a queue or {'is' if status.unfinished == 1 else 'are'} scheduled. To find them:")
        for command in (*commands, f"{in_queue}   # for each queue"):
            click.echo(f"  {escaped(command)}")
    members = list(islice(state.members(status.pool, bid), _SHOWN))
    if members:
        click.echo()
        rows = [(one.jid or "(unknown)", one.number, one.state, message_cell(_error(one))) for one in members]
        echo_table(("JOB", "NUMBER", "STATE", "ERROR"), rows, right=("NUMBER",), elastic=("ERROR",))


@batches.command()
@click.argument("bid")
@pushes_jobs
@reads_redis
def close(bid: str, as_json: bool) -> None:
    """
    Close a batch that stayed open.

    Use this if the program that was adding jobs has failed or died.
    """
    count = Batches().find(bid).close()
    outcome = f"is closed; until now {counted(count, 'block')} could add jobs" if count else "was already closed"
    echo_done({"bid": bid, "closed": count}, f"{bid} {outcome}.", as_json=as_json)


@batches.command()
@click.argument("bid")
@pushes_jobs
@reads_redis
def retry(bid: str, as_json: bool) -> None:
    """Return the failed and dead jobs of a batch to their queues."""
    count = Batches().find(bid).retry_failed()
    text = counted(count, "job went back to its queue", "jobs went back to their queues")
    echo_done({"bid": bid, "retried": count}, f"{text}.", as_json=as_json)


@batches.command()
@click.argument("bid")
@yes_option
@pushes_jobs
@reads_redis
def invalidate(bid: str, yes: bool, as_json: bool) -> None:
    """
    End the remaining jobs of a batch without running them.

    This includes the jobs of its child batches.
    """
    batch = Batches().find(bid)
    ask(lambda: f"Let the remaining jobs of batch {bid} end without running", what="invalidate", unless=yes)
    count = batch.invalidate()
    text = f"{counted(count, 'batch', 'batches')} invalidated." if count else f"{bid} was already invalidated."
    echo_done({"bid": bid, "invalidated": count}, text, as_json=as_json)


@batches.command()
@click.argument("bid")
@yes_option
@pushes_jobs
@reads_redis
def delete(bid: str, yes: bool, as_json: bool) -> None:
    """Delete a batch. Its jobs still run, but its callbacks are never enqueued."""
    batch = Batches().find(bid)
    ask(lambda: f"Delete batch {bid}, whose callbacks will never be enqueued", what="delete", unless=yes)
    batch.delete()
    echo_done({"bid": bid, "deleted": 1}, f"{bid} deleted.", as_json=as_json)


def _facts(status: BatchStatus, now: float) -> list[tuple[str, object]]:
    shown = status.as_dict(most_members=0)
    facts: list[tuple[str, object]] = [
        ("batch", status.bid),
        ("description", status.description or "-"),
        ("state", status.state if status.is_valid else f"{status.state}, invalidated"),
        ("jobs", f"{status.total}, of which {status.pending} pending ({int(round(status.progress * 100, 6))}% done)"),
        (
            "without success",
            f"{status.failures} failed, {status.dead} dead, {status.lost} lost, {status.invalidated} invalidated, "
            f"{status.deleted} deleted",
        ),
        *_rows(shown.get("jobs")),
        ("opened", _ago(status.created_at, now)),
        ("last change", _ago(status.changed_at, now)),
    ]
    if status.parent_bid:
        facts.append(("parent", status.parent_bid))
    if status.children:
        facts.append(("children", status.children))
    if shown["damaged"]:
        facts.append(("damaged", f"{', '.join(shown['damaged'])}, by another program; callbacks may never be enqueued"))
    for event in EVENTS:
        at = getattr(status, f"{event}_at")
        if at is not None:
            facts.append((event, _ago(at, now)))
    facts += [
        ("may still add", f"{one.who} since {_ago(one.since, now)} (token {one.token})") for one in status.openers
    ]
    return facts


def _rows(counts: Mapping[str, int] | None) -> list[tuple[str, object]]:
    """The number of rows in each state; only for a tracked batch."""
    if counts is None:
        return []
    return [("rows", ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none")]


def _error(member: state.Member) -> str:
    if not member.error:
        return ""
    error = current().apply(member.error)
    return f"{error.get('error_class')}: {error.get('error_message')}"


def _ago(at: float | None, now: float) -> str:
    return "-" if at is None else relative(datetime.fromtimestamp(at, UTC), now)
