"""
The pages of the dashboard: all batches, and a single one with its members. Imported when a dashboard asks for them,
because they need the extra `web`.

Both read one page at a time, so that a batch of 100,000 jobs costs no more than one of ten.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from sidekiq_py.api.job_record import moment
from sidekiq_py.api.source import pool_for
from sidekiq_py.errors import SidekiqError
from sidekiq_py.extensions.batches import state
from sidekiq_py.extensions.batches.api import Batches
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.extensions.batches.errors import BatchGoneError
from sidekiq_py.extensions.batches.member import membership_of
from sidekiq_py.extensions.batches.rows import ROW_STATES
from sidekiq_py.extensions.batches.searches import searches
from sidekiq_py.extensions.batches.state import BatchStatus, State
from sidekiq_py.logs import counted
from sidekiq_py.redaction import REDACTED, Redaction
from sidekiq_py.web import JobLink, Page, PageAction, Visit

_SHOWN = 50
_TEMPLATES = Path(__file__).with_name("templates")
_QUESTIONS = {
    "close": "Close this batch? No more jobs can be added.",
    "retry": "Retry its failed jobs?",
    "invalidate": "Invalidate this batch? Its remaining jobs end without running.",
    "delete": "Delete this batch? Its jobs still run, but its callbacks do not.",
}
_ACTIONS: dict[str, tuple[Callable[[Batch], object], str]] = {
    "close": (Batch.close, "No more jobs can be added."),
    "retry": (Batch.retry_failed, "Its failed jobs were enqueued again."),
    "invalidate": (Batch.invalidate, "Its remaining jobs will end without running."),
    "delete": (Batch.delete, "It was deleted. Its jobs still run, but its callbacks do not."),
}


def pages() -> list[Page]:
    """The pages of this extension."""
    templates = {path.name: path.read_text("utf-8") for path in _TEMPLATES.iterdir()}
    return [
        Page("Batches", "/batches", _list, templates, (PageAction("/batches/act", _act),)),
        Page("Batch", "/batches/one", _show, is_listed=False, job_links=_links),
    ]


def _links(payload: Mapping[str, Any]) -> list[JobLink]:
    member = membership_of(payload)
    return [] if member is None else [JobLink("Batch", member.bid, "/batches/one", {"bid": member.bid})]


def _list(visit: Visit) -> Any:
    wanted = visit.query("state")
    start = visit.query_number("from")
    chosen = next((name for name in state.STATES if name == wanted), None)
    batches, has_more = _all_from(visit, start) if chosen is None else _in_state(visit, chosen, start)
    return visit.page(
        "batches.html",
        batches=batches,
        states=state.STATES,
        wanted=chosen or "",
        start=start,
        shown=_SHOWN,
        has_more=has_more,
        moment=moment,
    )


def _all_from(visit: Visit, start: int) -> tuple[list[BatchStatus], bool]:
    """The batches at the positions from *start*, and True if more follow."""
    pool = pool_for(visit.pool, None)
    bids = list(islice(state.bids(pool, start=start), _SHOWN + 1))
    found = state.read_many(pool, bids[:_SHOWN]) if bids else []
    return [status for status in found if status is not None], len(bids) > _SHOWN


def _in_state(visit: Visit, wanted: State, start: int) -> tuple[list[BatchStatus], bool]:
    """Like `_all_from`, of the batches in one state. Only reading all of them finds those."""
    page = list(islice(Batches(pool=visit.pool).in_state(wanted), start, start + _SHOWN + 1))
    return page[:_SHOWN], len(page) > _SHOWN


def _show(visit: Visit) -> Any:
    pool = pool_for(visit.pool, None)
    try:
        batch = state.read(pool, visit.query("bid"))
    except BatchGoneError:
        advice = "It was deleted, or it has expired: a day after its success, or 30 days after its last change."
        return visit.error(404, "There is no such batch", advice)
    wanted = visit.query("state")
    rows = batch.jobs
    page = None
    if rows is not None:
        chosen = next((name for name in ROW_STATES if name == wanted), None)
        after = visit.query_number("after") if visit.query("after") else None
        page = rows.page(chosen, after=after, limit=_SHOWN, redaction=visit.site.redaction, with_counts=True)
    members = [] if rows is not None else list(islice(state.members(pool, batch.bid), _SHOWN))
    return visit.page(
        "batch.html",
        batch=batch,
        waits_for=_waits_for(batch),
        searches=searches(batch),
        children=state.some_pending_children(pool, batch.bid, _SHOWN) if batch.pending_children else [],
        counts=page.counts if page is not None else {},
        page=page,
        members=members,
        shown=_SHOWN,
        wanted=wanted if wanted in ROW_STATES else "",
        moment=moment,
        questions=_QUESTIONS,
        error_text=partial(_error_text, visit.site.redaction),
    )


def _waits_for(batch: BatchStatus) -> list[str]:
    """What must happen before it succeeds, in words."""
    if batch.success:
        return []
    waits = [
        (batch.openers, "whoever may still add jobs"),
        (batch.unfinished, counted(batch.unfinished, "unfinished job")),
        (batch.pending_children, counted(batch.pending_children, "child batch", "child batches")),
        (batch.failures, f"the retry of {counted(batch.failures, 'failed job')}"),
        (batch.dead, f"{counted(batch.dead, 'dead job')} to be retried"),
        (batch.ended_without_success, f"{counted(batch.ended_without_success, 'job')} that ended without success"),
    ]
    return [what for is_so, what in waits if is_so]


def _error_text(policy: Redaction, klass: str | None, error: Mapping[str, Any] | None, message: Any = None) -> str:
    """A member's error or last message, as far as the redaction policy for its class allows."""
    klass = klass or (error or {}).get("class")
    if not isinstance(klass, str) and policy.mask_text("") is None:
        # Without the class, a rule for it that hides the text cannot be ruled out.
        return REDACTED if error or message else ""
    about = policy.apply({"message": message, **(error or {})}, klass if isinstance(klass, str) else None)
    if error:
        return ": ".join(str(about[key]) for key in ("error_class", "error_message") if about.get(key))
    return "" if message is None else str(about["message"])


def _act(visit: Visit) -> Any:
    bid, action = visit.field("bid"), visit.field("action")
    if action not in _ACTIONS:
        return visit.redirect("/batches", "There is no such action; nothing was done.")
    asked = visit.question(_QUESTIONS[action], bid, path="/batches/act", back="/batches")
    if asked is not None:
        return asked
    visit.audit(action, f"batch {bid}", "")
    act, done = _ACTIONS[action]
    try:
        act(Batches(pool=visit.pool).find(bid))
    except SidekiqError as error:
        return visit.redirect("/batches", f"Nothing was done: {error}")
    notice = f"{bid}: {done}"
    return (
        visit.redirect("/batches", notice)
        if action == "delete"
        else visit.redirect_back(notice, "/batches", "/batches/one")
    )
