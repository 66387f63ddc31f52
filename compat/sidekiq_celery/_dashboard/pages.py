"""The pages and their actions. Imported on demand by a dashboard, because they need the extra `web`."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

from kombu.exceptions import KombuError
from redis.exceptions import RedisError as RedisPyError

from sidekiq_celery import states, stored_results, workflow_state
from sidekiq_celery._dashboard.shown import ShownResult, call_text, settings_shown
from sidekiq_celery._dashboard.side import Side, side_of
from sidekiq_celery._dashboard.workers import Details, Worker
from sidekiq_celery.exceptions import CeleryError, ImproperlyConfigured
from sidekiq_celery.stored_results import StoredResult
from sidekiq_py.errors import SidekiqError
from sidekiq_py.web import JobLink, Page, PageAction, Visit

_SHOWN = 50
_MOST_SETTINGS = 300
_LONGEST_ID = 200
_STATES = (states.SUCCESS, states.FAILURE, states.RETRY, states.STARTED, states.REVOKED)
_TEMPLATES = Path(__file__).with_name("templates")
_MARKS = ("flow", "chord", "group", "callbacks", "errbacks", "parent_id")
_MOST_MORE = 1000
_STOPPING = "It takes no more tasks, finishes those that are running, and exits."
_QUESTIONS = {
    "revoke": "Revoke this task? It will not start.",
    "terminate": "Revoke this task, and end it if it runs?",
}
_SECONDS = re.compile(r"\d{1,8}(\.\d{1,3})?", re.ASCII)
_YEAR_SECONDS = 366 * 24 * 3600

Render = Callable[[Visit], Any]


def pages() -> list[Page]:
    """All Celery pages of the dashboard."""
    templates = {path.name: path.read_text("utf-8") for path in _TEMPLATES.iterdir()}
    unlisted: list[tuple[str, str, Render, dict[str, Render]]] = [
        ("Task", "/celery/task", _task, {}),
        ("Workflows", "/celery/workflows", _workflows, {}),
        ("Workflow", "/celery/workflow", _workflow, {}),
        ("Workers", "/celery/workers", _workers, {}),
        ("Worker", "/celery/worker", _worker, {"/celery/worker/act": _act_on_worker}),
        ("Limits", "/celery/limits", _limits, {"/celery/limit": _set_limit, "/celery/time-limit": _set_time_limits}),
    ]
    revoke = PageAction("/celery/revoke", _with_error_page(_revoke))
    return [
        Page("Celery", "/celery", _with_error_page(_tasks), templates, (revoke,), job_links=_links),
        *(
            Page(title, path, _with_error_page(render), actions=_actions(actions), is_listed=False)
            for title, path, render, actions in unlisted
        ),
    ]


def _actions(actions: Mapping[str, Render]) -> tuple[PageAction, ...]:
    return tuple(PageAction(path, _with_error_page(run)) for path, run in actions.items())


def _with_error_page(render: Render) -> Render:
    """Wrap *render* so that errors from Celery and kombu are shown as a page."""

    @wraps(render)
    def guarded(visit: Visit) -> Any:
        try:
            return render(visit)
        except SidekiqError:
            raise
        except ImproperlyConfigured as error:
            return visit.error(409, "These pages cannot be used here", f"{error}.")
        except (CeleryError, KombuError, RedisPyError, OSError) as error:
            advice = f"{type(error).__name__}: {error}. Reload the page to see what was done."
            return visit.error(502, "Celery did not answer", advice)

    return guarded


def _links(payload: Mapping[str, Any]) -> Iterable[JobLink]:
    """Links from the page of a task's job to its result and its workflow."""
    marks, jid = payload.get("celery"), payload.get("jid")
    if not isinstance(marks, dict) or not isinstance(jid, str) or len(jid) > _LONGEST_ID:
        return
    yield JobLink("Task", "State and result", "/celery/task", {"id": jid})
    if any(marks.get(mark) for mark in _MARKS):
        root = marks.get("root_id") or jid
        if isinstance(root, str) and len(root) <= _LONGEST_ID:
            yield JobLink("Workflow", root, "/celery/workflow", {"id": root})
    group = marks.get("group")
    if isinstance(group, str) and len(group) <= _LONGEST_ID:
        yield JobLink("Group", group, "/celery/workflow", {"id": group})


# Tasks and results


def _tasks(visit: Visit) -> Any:
    side = side_of(visit.pool)
    state, after = visit.query("state"), visit.query("after", "0")
    name, worker = (visit.query(field).strip()[:_LONGEST_ID] for field in ("name", "worker"))
    wanted = {state} if state in _STATES else set()
    found = stored_results.page(side.app, _cursor(after), states=wanted, name=name, worker=worker, limit=_SHOWN)
    return visit.page(
        "celery_tasks.html",
        rows=[ShownResult(stored, visit.site.redaction) for stored in found.results],
        found=found,
        states=_STATES,
        state=state if wanted else "",
        name=name,
        worker=worker,
        is_first=_cursor(after) == "0",
    )


def _task(visit: Visit) -> Any:
    side, task_id = side_of(visit.pool), visit.query("id").strip()[:_LONGEST_ID]
    if not task_id:
        return visit.redirect("/celery")
    stored = stored_results.read_for_page(side.app, task_id)
    shown = None if stored is None else ShownResult(stored, visit.site.redaction)
    # Not 404: a task that is waiting or running has no result yet, and can be revoked.
    stored = stored or StoredResult(task_id, states.PENDING)
    return visit.page(
        "celery_task.html",
        task_id=task_id,
        shown=shown,
        stored=stored,
        has_ended=stored.state in states.READY_STATES,
        questions=_QUESTIONS,
    )


def _revoke(visit: Visit) -> Any:
    task_id, terminates = visit.field("id").strip(), visit.field("action") == "terminate"
    if not task_id or len(task_id) > _LONGEST_ID:
        return visit.redirect("/celery", "There is no such task; nothing was done.")
    question = _QUESTIONS["terminate" if terminates else "revoke"]
    asked = visit.question(question, task_id, path="/celery/revoke", back="/celery")
    if asked is not None:
        return asked
    side = side_of(visit.pool)
    visit.audit("terminate" if terminates else "revoke", f"task {task_id}")
    try:
        side.app.control.revoke(task_id, terminate=terminates)
    except ValueError as error:
        return visit.redirect("/celery", f"Nothing was done: {error}")
    ending = " If it is running, it is terminated." if terminates else " If it is already running, it continues."
    return visit.redirect("/celery/task", f"The task is revoked: it will not start.{ending}", id=task_id)


# Workflows


def _workflows(visit: Visit) -> Any:
    app, after = side_of(visit.pool).app, _cursor(visit.query("after", "0"))
    if visit.query("ended"):
        ended = stored_results.page(app, after, states=states.READY_STATES, begins_workflow=True, limit=_SHOWN)
        rows = [ShownResult(stored, visit.site.redaction) for stored in ended.results]
        return visit.page("celery_ended.html", rows=rows, found=ended, is_first=after == "0")
    return visit.page("celery_workflows.html", found=workflow_state.unfinished(app, after, limit=_SHOWN))


def _workflow(visit: Visit) -> Any:
    wanted, group = visit.query("id").strip()[:_LONGEST_ID], visit.query("group")[:_LONGEST_ID]
    start = visit.query_number("from", most=10**9)
    if not wanted:
        return visit.redirect("/celery/workflows")
    page = workflow_state.read(side_of(visit.pool).app, wanted, group=group, start=start, limit=_SHOWN)
    redaction = visit.site.redaction
    return visit.page(
        "celery_workflow.html",
        200 if page.is_known else 404,
        page=page,
        group=group,
        shown=None if page.result is None else ShownResult(page.result, redaction),
        rows=[(one, None if one.result is None else ShownResult(one.result, redaction)) for one in page.members],
        shown_at_once=_SHOWN,
    )


# Workers


def _workers(visit: Visit) -> Any:
    seen = side_of(visit.pool).workers.look()
    start = visit.query_number("from")
    rows = [] if seen is None else list(seen.workers.values())[start : start + _SHOWN]
    return visit.page("celery_workers.html", seen=seen, rows=rows, start=start, shown_at_once=_SHOWN)


def _worker(visit: Visit) -> Any:
    side = side_of(visit.pool)
    seen = side.workers.look()
    name = visit.query("name")
    worker = None if seen is None else seen.workers.get(name)
    details = None if worker is None else side.details.look(worker.name)
    return visit.page(
        "celery_worker.html",
        200 if worker is not None or seen is None else 404,
        name=name,
        seen=seen,
        worker=worker,
        active=[] if worker is None else [_running(visit, task) for task in worker.active[:_SHOWN]],
        totals=[] if worker is None else _totals(worker),
        details=None if details is None else _shown_details(visit, details),
    )


class _Listed(NamedTuple):
    """The first rows of a worker's reply, how many there are, and why there are none, if it is not for want of any."""

    rows: list[Any]
    total: int
    trouble: str


def _shown_details(visit: Visit, details: Details) -> dict[str, _Listed]:
    def listed(command: str, show: Callable[[Any], Any]) -> _Listed:
        value, trouble = details[command]
        rows = list(value or ())
        return _Listed([show(row) for row in rows[:_SHOWN]], len(rows), trouble)

    settings, trouble = details["conf"]
    rows = settings_shown(settings or {}, visit.site.redaction)
    return {
        "reserved": listed("reserved", partial(_call, visit)),
        "scheduled": listed("scheduled", partial(_scheduled, visit)),
        "revoked": listed("revoked", str),
        "settings": _Listed(rows[:_MOST_SETTINGS], len(rows), trouble),
    }


def _act_on_worker(visit: Visit) -> Any:
    side, name, action = side_of(visit.pool), visit.field("name"), visit.field("action")
    queue, count = visit.field("queue").strip(), visit.field("count").strip()
    commands: Mapping[str, Callable[[], Any]] = {
        "shutdown": lambda: side.app.control.shutdown(destination=[name]),
        "grow": lambda: _replied(side, "pool_grow", name, n=int(count)),
        "shrink": lambda: _replied(side, "pool_shrink", name, n=int(count)),
        "restart": lambda: _replied(side, "pool_restart", name),
        "add": lambda: _replied(side, "add_consumer", name, queue=queue),
        "cancel": lambda: _replied(side, "cancel_consumer", name, queue=queue),
    }
    if action not in commands or not name or len(name) > _LONGEST_ID:
        return visit.redirect("/celery/workers", "There is no such action; nothing was done.")
    if action in ("add", "cancel") and not (queue and queue.isprintable() and len(queue) <= _LONGEST_ID):
        return visit.redirect("/celery/worker", "Name a queue; nothing was done.", name=name)
    if action in ("grow", "shrink") and not _is_count(count):
        return visit.redirect("/celery/worker", f"Give a number from 1 to {_MOST_MORE}; nothing was done.", name=name)
    if action == "shutdown":
        asked = visit.question(f"Stop {name}?", _STOPPING, path="/celery/worker/act", back="/celery/workers")
        if asked is not None:
            return asked
    details = queue if action in ("add", "cancel") else count if action in ("grow", "shrink") else ""
    visit.audit(action, f"worker {name}", details)
    said = commands[action]()
    side.workers.forget()
    if action == "shutdown":
        return visit.redirect("/celery/workers", f"{name} was told to stop; it finishes its running tasks first.")
    return visit.redirect("/celery/worker", f"{name}: {said}", name=name)


def _limits(visit: Visit) -> Any:
    seen = side_of(visit.pool).workers.look()
    start = visit.query_number("from")
    limits = [] if seen is None else seen.limits
    return visit.page(
        "celery_limits.html",
        seen=seen,
        rows=limits[start : start + _SHOWN],
        total=len(limits),
        start=start,
        shown_at_once=_SHOWN,
    )


def _set_limit(visit: Visit) -> Any:
    side, task, limit = side_of(visit.pool), visit.field("task"), visit.field("limit").strip()
    if not task or not limit or len(task) > _LONGEST_ID or len(limit) > _LONGEST_ID:
        return visit.redirect("/celery/limits", "Name a task and a limit, as in 10/m; nothing was done.")
    visit.audit("rate limit", f"task {task}", limit)
    replies = side.app.control.rate_limit(task, limit, reply=True) or []
    side.workers.forget()
    return visit.redirect("/celery/limits", f"{task}: {_said(replies)}")


def _set_time_limits(visit: Visit) -> Any:
    side, task = side_of(visit.pool), visit.field("task")
    soft, hard = visit.field("soft").strip(), visit.field("hard").strip()
    if not task or len(task) > _LONGEST_ID or not all(not text or _is_seconds(text) for text in (soft, hard)):
        return visit.redirect(
            "/celery/limits", "Name a task and seconds, as in 30; an empty field is no limit. Nothing was done."
        )
    visit.audit("time limits", f"task {task}", f"soft {soft or 'none'}, hard {hard or 'none'}")
    seconds = {"soft": float(soft) if soft else None, "hard": float(hard) if hard else None}
    replies = side.app.control.time_limit(task, **seconds, reply=True) or []
    side.workers.forget()
    return visit.redirect("/celery/limits", f"{task}: {_said(replies)}")


def _replied(side: Side, command: str, name: str, **arguments: Any) -> str:
    return _said(side.app.control.broadcast(command, arguments, destination=[name], reply=True) or [])


def _said(replies: Any) -> str:
    """The workers' replies as text, without duplicates."""
    said = [
        str(answer.get("ok") or answer.get("error") or answer)
        for reply in replies
        if isinstance(reply, Mapping)
        for answer in reply.values()
        if isinstance(answer, Mapping)
    ]
    if not said:
        return "no worker has answered; reload the page to see what was done"
    return "; ".join(dict.fromkeys(said))


def _running(visit: Visit, task: Mapping[str, Any]) -> tuple[str, str, str, float | None]:
    """As `_call`, and for how many seconds the task has been running."""
    began = task.get("time_start")
    seconds = max(0.0, visit.now.timestamp() - began) if isinstance(began, int | float) else None
    return *_call(visit, task), seconds


def _scheduled(visit: Visit, entry: Any) -> tuple[str, str, str, datetime | str]:
    """As `_call`, and when the task is due."""
    about = entry if isinstance(entry, Mapping) else {}
    due = str(about.get("eta"))
    with suppress(ValueError):
        at = datetime.fromisoformat(due)
        return *_call(visit, about.get("request")), at if at.tzinfo else due
    return *_call(visit, about.get("request")), due


def _call(visit: Visit, task: Any) -> tuple[str, str, str]:
    """The id, the name and the arguments of a task that a worker has reported."""
    about = task if isinstance(task, Mapping) else {}
    task_id, name = about.get("id"), about.get("name")
    # The name may be the call's `shadow`, and rules are about the task.
    names = [known for known in (name, about.get("type")) if isinstance(known, str)]
    arguments = call_text(names, about.get("args"), about.get("kwargs"), visit.site.redaction)
    return (task_id if isinstance(task_id, str) else ""), str(name), arguments


def _totals(worker: Worker) -> list[tuple[str, int]]:
    counts = [(str(name), count) for name, count in worker.totals.items() if type(count) is int]
    return sorted(counts, key=lambda pair: -pair[1])[:_SHOWN]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= _MOST_MORE


def _is_seconds(text: str) -> bool:
    """Whether *text* is a positive number of seconds, up to a year, with at most three decimals."""
    return _SECONDS.fullmatch(text) is not None and 0 < float(text) <= _YEAR_SECONDS


def _cursor(text: str) -> str:
    """A SCAN cursor; anything else becomes the beginning."""
    return text if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 2**64 else "0"
