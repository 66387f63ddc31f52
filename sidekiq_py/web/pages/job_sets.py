"""The pages Retries, Scheduled, Dead and of one queue: jobs, a filter, and actions on chosen or all matching jobs."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Thread
from typing import Any

from starlette.responses import Response

from sidekiq_py.api import BulkRun, BulkRuns, JobRecord, OverviewScope
from sidekiq_py.logs import counted
from sidekiq_py.web.access import Need
from sidekiq_py.web.filters import PageFilter, filter_of
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.places import SETS, Action, Found, Place, chosen_queue, place_at
from sidekiq_py.web.text import shortened, whole_number
from sidekiq_py.web.trends import charts_of
from sidekiq_py.web.visit import Visit

_SHOWN = 50
_FEW_PROCESSES = 5
_MOST_CHOSEN = 1000
# In an entry of the audit log.
_MOST_NAMED = 10
_LONGEST_KEY = 60
_MOST_A_SECOND = 1_000_000
_LONGEST_COUNT = 15

_log = logging.getLogger("sidekiq.web")


def listing(visit: Visit, path: str) -> Response:
    """The list."""
    place, wanted = place_at(visit, path), filter_of(visit)
    start = visit.query_number("from")
    is_latest_first = visit.query("order", "latest" if place.path == "/dead" else "first") == "latest"
    if wanted.troubles:
        found = Found([], None, 0, 0)
    else:
        found = place.read(wanted, start, _SHOWN, latest_first=is_latest_first)
    rows = [(key, job, visit.shown(job)) for key, job in found.rows]
    order = "latest" if is_latest_first else "first"
    facts: dict[str, Any] = {
        "place": place,
        "wanted": wanted,
        "found": found,
        "rows": rows,
        "classes": Counter(shown.title for _, _, shown in rows).most_common(10),
        "known": {shown.title for _, _, shown in rows if shown.redacted.display_class == shown.title},
        "start": start,
        "shown": _SHOWN,
        "order": order,
        "here": _address(visit, place, wanted),
    }
    if place.path == "/queue":
        facts.update(_about_queue(visit, place.name))
    return visit.page("jobs.html", 422 if wanted.troubles else 200, **facts)


def _about_queue(visit: Visit, name: str) -> dict[str, Any]:
    """The size, latency and state of one queue, with its charts, and the processes that serve it."""
    watch = visit.server.watch
    scope = OverviewScope(queues=lambda _names: [name], running=False)
    seen = watch.look("/queue", scope, is_live=False, trends_of=lambda _names: [name])
    summary = next(queue for queue in seen.queues if queue.name == name)
    exists = summary.size > 0 or name in seen.queue_names
    return {
        "summary": summary if exists else None,
        "charts": charts_of(watch, summary, seen) if exists else None,
        "few": _FEW_PROCESSES,
        "serving": [process for process in seen.processes if name in process.queues],
    }


def act(visit: Visit, path: str) -> Response:
    """Run an action on the chosen jobs."""
    place, wanted = place_at(visit, path), filter_of(visit)
    action = _action(visit, place)
    keys = list(dict.fromkeys(visit.form.get("key", ())))[:_MOST_CHOSEN]
    back = partial(_back, visit, place, wanted)
    if action is None:
        return back("There is no such action; nothing was done.")
    if not keys:
        return back("No job was chosen; nothing was done.")
    target, problem = _target(visit, place, action)
    if problem:
        return back(problem)
    if action.destroys and visit.field("sure") != "yes":
        return visit.page(
            "sure.html", place=place, action=action, keys=keys, wanted=wanted, here=_address(visit, place, wanted)
        )
    found = place.find(keys)
    jobs = list(found.values())
    visit.audit(action.name, place.title, _chosen(keys, found, target))
    result = place.act(action.name, jobs, target)
    notice = f"{counted(result.moved, 'job was', 'jobs were')} {action.done}."
    gone = len(keys) - len(jobs) + result.gone
    if gone:
        notice += f" {counted(gone, 'job')} had already left."
    if result.refused:
        _, reason = result.errors[0]
        notice += f" {counted(result.refused, 'job')} could not be changed: {reason}"
    return back(notice)


def _chosen(keys: Sequence[str], found: Mapping[str, JobRecord], target: str) -> str:
    """What the user has asked for, for the audit log: the ids of the jobs, and the keys of those that have left."""
    ids = [str(job.jid) for job in found.values()]
    left = [shortened(key, _LONGEST_KEY) for key in keys if key not in found]
    text = f"{len(keys)} chosen{f', to {target}' if target else ''}: {', '.join(ids[:_MOST_NAMED])}"
    if left:
        text += f"{'; ' if ids else ''}{len(left)} had already left: {', '.join(left[:_MOST_NAMED])}"
    return text


def confirm_all(visit: Visit, path: str) -> Response:
    """Show how many jobs match, and the actions for all of them."""
    place, wanted = place_at(visit, path), filter_of(visit)
    if wanted.troubles:
        return _back(visit, place, wanted, "")
    start = visit.query_number("from")
    before = visit.query_number("counted") if start else 0
    count, next_start, total = place.count(wanted, start)
    return visit.page(
        "all_jobs.html",
        place=place,
        wanted=wanted,
        counted=before + count,
        next_start=next_start,
        total=total,
        here=_address(visit, place, wanted),
    )


def act_on_all(visit: Visit, path: str) -> Response:
    """
    Start an action on all matching jobs in the background.

    Without a filter only with `all=1`: a form in which the filter got lost must not delete a whole set.
    """
    place, wanted = place_at(visit, path), filter_of(visit)
    action = _action(visit, place)
    if action is None or wanted.troubles:
        problem = "Correct the filter" if wanted.troubles else "There is no such action"
        return _back(visit, place, wanted, f"{problem}; nothing was done.")
    if wanted.is_empty and visit.field("all") != "1":
        advice = "Send a filter, such as class=HardWorker, or all=1 for all jobs. Nothing was done."
        return visit.error(400, "Which jobs?", advice)
    target, problem = _target(visit, place, action)
    if problem:
        return _back(visit, place, wanted, problem)
    asked_pace = visit.field("per_second").strip()
    pace = whole_number(asked_pace)
    if asked_pace and (pace is None or not 0 < pace <= _MOST_A_SECOND):
        return _back(visit, place, wanted, "The maximum must be a whole number of jobs per second; nothing was done.")
    details = wanted.in_words or "all jobs"
    if target:
        details += f", to {target}"
    visit.audit(f"{action.name} all", place.title, details)
    run = BulkRuns(pool=visit.pool).start(
        visit.user.name if visit.user else "",
        action.label,
        place.title,
        wanted=details,
        total=whole_number(visit.field("counted"), _LONGEST_COUNT) or 0,
    )
    work = Thread(
        target=_work,
        args=(place, wanted, action, target, run, pace),
        name=f"sidekiq.web/bulk-{run.id}",
        daemon=True,
    )
    work.start()
    return visit.redirect("/bulk/run", id=run.id)


def _work(place: Place, wanted: PageFilter, action: Action, target: str, run: BulkRun, pace: float | None) -> None:
    try:
        jobs = place.all_matching(wanted, run)
        result = place.act(action.name, jobs, target, progress=run.report, per_second=pace, stop=run.should_stop)
        run.finish(result)
    except Exception as error:  # noqa: BLE001 - whatever ends the action must show up on its page
        _log.exception("a bulk action ended early: %s in %s", action.name, place.title)
        run.finish(error=error)


def _action(visit: Visit, place: Place) -> Action | None:
    return next((action for action in place.actions if action.name == visit.field("action")), None)


def _target(visit: Visit, place: Place, action: Action) -> tuple[str, str]:
    """The queue to move jobs to, or an empty string for other actions; and why nothing is done, or an empty string."""
    if action.name != "move":
        return "", ""
    target, problem = chosen_queue(visit.field("target"), visit.pool)
    if not target:
        return target, "Enter the queue to move the jobs to; nothing was done."
    if target == place.name:
        return target, "The jobs are already in that queue; nothing was done."
    return target, f"Nothing was done: {problem}." if problem else ""


def _back(visit: Visit, place: Place, wanted: PageFilter, notice: str) -> Response:
    return visit.redirect(place.path, notice, **_address(visit, place, wanted))


def _address(visit: Visit, place: Place, wanted: PageFilter) -> dict[str, str]:
    """The parameters that lead to the same list again."""
    name = {"name": place.name} if place.path == "/queue" else {}
    order = visit.field("order") or visit.query("order")
    return {**name, **wanted.given, **({"order": order} if order in ("first", "latest") else {})}


def _handlers(path: str, page: str) -> tuple[Handler, ...]:
    return (
        Handler("GET", path, partial(listing, path=path), Need.VIEW, page),
        Handler("POST", f"{path}/act", partial(act, path=path), Need.OPERATE, page),
        Handler("GET", f"{path}/all", partial(confirm_all, path=path), Need.OPERATE, page),
        Handler("POST", f"{path}/all", partial(act_on_all, path=path), Need.OPERATE, page),
    )


HANDLERS = (
    *(handler for path in SETS for handler in _handlers(path, path)),
    *_handlers("/queue", "/queues"),
)
