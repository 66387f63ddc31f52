"""The Queues page: lists, pauses, resumes and clears queues. The page of a single queue is in `job_sets`."""

from collections.abc import Sequence

from starlette.responses import Response

from sidekiq_py.api import OverviewScope, ProcessSet, Queue
from sidekiq_py.api.stats import known_queues
from sidekiq_py.logs import counted
from sidekiq_py.options import closest
from sidekiq_py.web.access import Need
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.text import shortened
from sidekiq_py.web.trends import charts_of
from sidekiq_py.web.visit import Visit

_SHOWN = 100
_LONGEST_NAME = 200


def queues(visit: Visit) -> Response:
    """All queues, or those whose names contain a text, a hundred on a page."""
    start, wanted = visit.query_number("from"), visit.query("name").strip()[:_LONGEST_NAME]
    watch = visit.server.watch

    def matching(names: Sequence[str]) -> Sequence[str]:
        return [name for name in names if wanted.casefold() in name.casefold()] if wanted else names

    def on_page(names: Sequence[str]) -> Sequence[str]:
        return matching(names)[start : start + _SHOWN]

    scope = OverviewScope(queues=on_page, processes=False, running=False)
    seen = watch.look(f"/queues {start} {wanted}", scope, is_live=visit.is_live, trends_of=on_page)
    names = set(on_page(seen.queue_names))
    rows = [(queue, charts_of(watch, queue, seen)) for queue in seen.queues if queue.name in names]
    total = len(matching(seen.queue_names))
    return visit.page("queues.html", rows=rows, total=total, wanted=wanted, start=start, shown=_SHOWN)


def pause(visit: Visit) -> Response:
    """Pause or resume a queue."""
    name, action = visit.field("name"), visit.field("action")
    if action not in ("pause", "unpause") or not name:
        return visit.redirect("/queues", "There is no such action; nothing was done.")
    target = Queue(name, pool=visit.pool)
    if name not in (known := known_queues(pool=visit.pool)) and not target.size:
        return _unknown(visit, name, known)
    visit.audit(action, f"queue {name}")
    if action == "pause":
        target.pause()
        notice = f"{name} is paused."
        deaf = [
            process.identity
            for process in ProcessSet(clean=False, pool=visit.pool).serving(name)
            if not process.is_python
        ]
        if deaf:
            notice += f" Ruby processes without Sidekiq Pro ignore this and keep fetching: {', '.join(deaf[:5])}"
            notice += f" and {len(deaf) - 5:,} more." if len(deaf) > 5 else "."
    else:
        target.unpause()
        notice = f"{name} is no longer paused."
    return visit.redirect_back(notice, "/queues", "/queue")


def _unknown(visit: Visit, name: str, known: Sequence[str]) -> Response:
    close = closest(name, known)
    meant = "" if close is None else f" Did you mean {shortened(close, 200)}?"
    title = f"There is no queue {shortened(name, 200)}"
    return visit.error(404, title, f"Nothing was done.{meant}")


def confirm_clear(visit: Visit) -> Response:
    """Ask before clearing a queue."""
    name = visit.query("name")
    return visit.page("clear_queue.html", name=name, size=Queue(name, pool=visit.pool).size)


def clear(visit: Visit) -> Response:
    """Delete all jobs of a queue."""
    name = visit.field("name")
    if not name:
        return visit.error(400, "Which queue?", "Send its name. Nothing was done.")
    target = Queue(name, pool=visit.pool)
    visit.audit("clear", f"queue {name}", counted(target.size, "job"))
    count = target.clear()
    return visit.redirect("/queues", f"{counted(count, 'job was', 'jobs were')} deleted from {name}.")


HANDLERS = (
    Handler("GET", "/queues", queues, Need.VIEW, "/queues", is_live=True),
    Handler("GET", "/queue/clear", confirm_clear, Need.OPERATE, "/queues"),
    Handler("POST", "/queue/clear", clear, Need.OPERATE, "/queues"),
    Handler("POST", "/queue/pause", pause, Need.OPERATE, "/queues"),
)
