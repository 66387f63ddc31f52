"""Bulk actions that run in the background: their progress, and a button to stop them."""

from starlette.responses import Response

from sidekiq_py.api import BulkRuns
from sidekiq_py.web.access import Need
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.visit import Visit


def runs(visit: Visit) -> Response:
    """The runs of the last day."""
    return visit.page("bulk_runs.html", runs=BulkRuns(pool=visit.pool).latest())


def run(visit: Visit) -> Response:
    """One run."""
    found = BulkRuns(pool=visit.pool).find(visit.query("id")[:100])
    if found is None:
        return visit.error(404, "There is no such action", "It is more than a day old, or never existed.")
    return visit.page("bulk_run.html", run=found)


def stop(visit: Visit) -> Response:
    """Ask a run to stop."""
    run_id = visit.field("id")[:100]
    visit.audit("stop", f"bulk action {run_id}")
    asked = BulkRuns(pool=visit.pool).stop(run_id)
    notice = "It is stopping; what was done stays done." if asked else "There is no such action."
    return visit.redirect("/bulk/run" if asked else "/bulk", notice, id=run_id if asked else None)


HANDLERS = (
    Handler("GET", "/bulk", runs, Need.VIEW, "/bulk", is_live=True),
    Handler("GET", "/bulk/run", run, Need.VIEW, "/bulk", is_live=True),
    Handler("POST", "/bulk/stop", stop, Need.OPERATE, "/bulk"),
)
