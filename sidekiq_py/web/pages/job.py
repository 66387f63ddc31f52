"""The page of one job: shows what Redis has of it, finds a job by its id, and enqueues an edited copy."""

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from starlette.responses import Response

from sidekiq_py.api import IterableJobQuery, IterationState, JobDraft, JobRecord, Queue, SortedEntry, WorkSet
from sidekiq_py.api.page_size import PageSize
from sidekiq_py.errors import PayloadError, RedisReplyError
from sidekiq_py.logs import counted
from sidekiq_py.web.access import Need
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.pages.metrics import LONGEST_NAME
from sidekiq_py.web.places import FIRST_READ, SETS, Place, SetPlace, chosen_queue, place_at
from sidekiq_py.web.text import is_linkable, json_text, shortened, whole_number
from sidekiq_py.web.tree import tree
from sidekiq_py.web.visit import Visit

_LONGEST_ID = 200
_JOBS_LOOKED_AT = 20_000
_MOST_QUEUES = 20
_MOST_EDITED = 100
_LONGEST_EDITED = 100_000
_LONGEST_DELAY = 9
_LONGEST_CURSOR = 500
_GONE = "It may have run, been retried or been deleted. If it is elsewhere, searching by its id finds it."
# W3C trace context: version, id of the trace (not all zeros), id of the span, flags.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?![0-9a-f])")


def _of_job(page: Callable[[Visit, Place, JobRecord], Response]) -> Callable[[Visit], Response]:
    """A page for the job at the place that the request names."""

    def run(visit: Visit) -> Response:
        path, key = visit.field("at") or visit.query("at"), visit.field("key") or visit.query("key")
        place = place_at(visit, path) if path in ("/queue", *SETS) else None
        record = None if place is None else place.find([key]).get(key)
        if place is None or record is None:
            return visit.error(404, "This job is no longer here", _GONE)
        return page(visit, place, record)

    return run


def job(visit: Visit) -> Response:
    """Show the job at a place, or all places that have a job with the given id."""
    jid = visit.query("jid")
    return _find(visit, jid[:_LONGEST_ID]) if jid else _at_place(visit)


@_of_job
def _at_place(visit: Visit, place: Place, record: JobRecord) -> Response:
    return _show(visit, record, place=place, key=visit.query("key"))


@_of_job
def copy_form(visit: Visit, place: Place, record: JobRecord) -> Response:
    """The form for a copy."""
    return _copy_page(visit, place, record, JobDraft(record))


@_of_job
def copy(visit: Visit, place: Place, record: JobRecord) -> Response:
    """Enqueue the copy."""
    draft = JobDraft(record)
    ask_again = partial(_copy_page, visit, place, record, draft)
    hidden = _hidden(visit, record, draft)
    changes = _changes(visit, draft, hidden)
    more = visit.field("more").strip()
    if any(hidden) and (more or None in changes.values()):
        # The policy names hidden arguments by their position, and adding or removing one would move them.
        return ask_again("Some arguments are hidden, so none can be added or removed.")
    asked_delay = visit.field("in").strip()
    delay = whole_number(asked_delay, _LONGEST_DELAY)
    if asked_delay and delay is None:
        return ask_again("Enter the delay as a whole number of seconds.")
    queue, problem = chosen_queue(visit.field("queue"), visit.pool)
    if not queue:
        return ask_again("Enter the name of a queue.")
    if problem:
        return ask_again(f"The copy was not enqueued: {problem}.")
    title = visit.shown(record).title
    details = [f"arguments {', '.join(str(at + 1) for at in changes)} changed" if changes else "same arguments"]
    if more:
        details.append("one more argument")
    visit.audit("enqueue a copy", f"job {record.jid}", f"{title} to {queue}: {', '.join(details)}")
    try:
        jid = draft.enqueue(
            changes,
            more=[more] if more else [],
            queue=queue,
            at=None if delay is None else visit.now + timedelta(seconds=delay),
            pool=visit.pool,
        )
    except PayloadError as error:
        return ask_again(f"The copy was not enqueued: {error}.")
    if jid is None:
        return visit.redirect(place.path, "A client middleware stopped the copy; nothing was enqueued.")
    return visit.redirect("/job", f"The copy was enqueued as {jid}.", jid=jid)


def _find(visit: Visit, jid: str) -> Response:
    """Find out where a job is: running, in a set, or among the first jobs of a queue."""
    work = WorkSet(pool=visit.pool).find_work(jid)
    places: list[tuple[str, str, str | None, str]] = []
    for place in (SetPlace(visit, path) for path in SETS):
        entry = place.jobs.find_job(jid)
        if entry is not None:
            places.append((place.title, place.path, None, place.key_of(entry)))
    looked_at, unread = 0, []
    if work is None and not places:
        for queue in Queue.all(pool=visit.pool)[:_MOST_QUEUES]:
            try:
                key, count = _in_queue(visit, queue, jid)
            except RedisReplyError as error:
                if error.is_about_server:
                    raise
                # Its key is not a list, or this Redis user may not read it. The job may be in the next one.
                unread.append(queue.name)
                continue
            looked_at += count
            if key is not None:
                places.append((f"Queue {queue.name}", "/queue", queue.name, key))
                break
    if work is not None and not places:
        return _show(visit, work.job, work=work)
    if len(places) == 1 and work is None:
        _, path, name, found = places[0]
        return visit.redirect("/job", at=path, name=name, key=found)
    return visit.page(
        "found_jobs.html",
        200 if places else 404,
        jid=jid,
        places=places,
        work=work,
        looked_at=looked_at,
        unread=", ".join(unread),
        sets=SETS,
    )


def _in_queue(visit: Visit, queue: Queue, jid: str) -> tuple[str | None, int]:
    place, size = 0, PageSize(FIRST_READ)
    while place < _JOBS_LOOKED_AT:
        page = queue.page(size.jobs, after=place, oldest_first=True)
        for found in page.jobs:
            if found.jid == jid:
                return f"{found.key_of(visit.site.known_by(found.value))}-{place}", place + 1
            place += 1
        if page.next is None:
            break
        size.adapt(job.value for job in page.jobs)
    return None, place


def _show(visit: Visit, record: JobRecord, *, place: Place | None = None, key: str = "", work: Any = None) -> Response:
    shown = visit.shown(record)
    backtrace = shown.redacted.error_backtrace
    item = dict(shown.redacted.item)
    if backtrace and isinstance(item["error_backtrace"], str):
        # Sidekiq stores the backtrace compressed, which is of no use to a reader.
        item["error_backtrace"] = f"{counted(len(backtrace), 'line')}, as shown above"
    return visit.page(
        "job.html",
        record=record,
        job=shown,
        place=place,
        key=key,
        work=work,
        at=record.at if isinstance(record, SortedEntry) else None,
        iteration=_iteration(visit, record),
        metrics_class=_metrics_class(shown.redacted),
        trace=_trace(shown.redacted),
        trace_address=_trace_address(shown.redacted, visit.site.trace_url),
        links=[link for page in visit.site.pages if page.job_links is not None for link in page.job_links(record.item)],
        backtrace=backtrace if isinstance(backtrace, list) else None,
        node=tree(item) if record.is_readable else None,
        text=shown.text,
    )


class _Iteration(NamedTuple):
    """Where an iterable job left off; all but the reason is empty if it cannot be read."""

    state: IterationState | None = None
    cursor: str = ""
    trouble: str = ""


def _iteration(visit: Visit, record: JobRecord) -> _Iteration | None:
    """The saved state of the job; None if there is none. The payload does not tell whether a job is iterable."""
    jid = record.jid
    if not jid or not is_linkable(jid):
        return None
    try:
        state = IterableJobQuery([jid], pool=visit.pool).get(jid)
    except RedisReplyError as error:
        if error.is_about_server:
            raise
        return _Iteration(trouble=str(error))
    if state is None:
        return None
    cursor = visit.site.redaction.part({**record.item, "cursor": state.cursor}, "cursor")
    return _Iteration(state, shortened(json_text(cursor), _LONGEST_CURSOR))


def _metrics_class(record: JobRecord) -> str:
    """The name under which metrics count this job; empty if it has none, or one that has no page."""
    name = record.get("wrapped") or record.get("class")
    return name if isinstance(name, str) and is_linkable(name) and len(name) <= LONGEST_NAME else ""


def _trace(record: JobRecord) -> str:
    trace = record.get("traceparent")
    return shortened(trace, 200) if isinstance(trace, str) else ""


def _trace_address(record: JobRecord, template: str) -> str:
    found = _TRACEPARENT.match(_trace(record))
    return template.replace("{trace_id}", found[1]) if found and template else ""


def _copy_page(visit: Visit, place: Place, record: JobRecord, draft: JobDraft, trouble: str = "") -> Response:
    """The form, with what the user has entered if that cannot be enqueued, and why."""
    hidden = _hidden(visit, record, draft)
    arguments = draft.arguments
    return visit.page(
        "copy.html",
        422 if trouble else 200,
        place=place,
        job=visit.shown(record),
        key=visit.field("key") or visit.query("key"),
        queue=visit.field("queue", draft.queue),
        arguments=[
            (
                visit.field(f"argument-{at}", text),
                "hidden" if hidden[at] else "too long" if len(text) > _LONGEST_EDITED else "",
            )
            for at, text in enumerate(arguments[:_MOST_EDITED])
        ],
        left_out=max(0, len(arguments) - _MOST_EDITED),
        more=visit.field("more"),
        delay=visit.field("in"),
        trouble=trouble,
    )


def _changes(visit: Visit, draft: JobDraft, hidden: list[bool]) -> dict[int, str | None]:
    """The arguments that the user has changed, by position; None for one to leave out."""
    changes: dict[int, str | None] = {}
    for at, text in enumerate(draft.arguments):
        given = visit.form.get(f"argument-{at}")
        # Browsers send their own line endings, so ignore those when looking for changes.
        if given and not hidden[at] and _lines(given[0]) != _lines(text):
            changes[at] = given[0].strip() or None
    return changes


def _hidden(visit: Visit, record: JobRecord, draft: JobDraft) -> list[bool]:
    """For each argument, True if the policy hides any part of it, so that it can be neither seen nor changed."""
    shown, stored = visit.shown(record).redacted.item.get("args"), record.item.get("args") or []
    if not isinstance(shown, list):
        return [True] * len(draft.arguments)
    return [now != before for now, before in zip(shown, stored, strict=True)]


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


HANDLERS = (
    Handler("GET", "/job", job, Need.VIEW, "/job"),
    Handler("GET", "/job/copy", copy_form, Need.EDIT, "/job"),
    Handler("POST", "/job/copy", copy, Need.EDIT, "/job"),
)
