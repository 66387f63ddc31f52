"""The audit log: who did what."""

from starlette.responses import Response

from sidekiq_py.api import AuditLog
from sidekiq_py.web.access import Need
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.visit import Visit

_SHOWN = 100


def audit(visit: Visit) -> Response:
    """The page, latest entries first."""
    before = visit.query("before") or None
    try:
        entries = AuditLog(pool=visit.pool).page(_SHOWN, before=before)
    except ValueError:
        entries, before = AuditLog(pool=visit.pool).page(_SHOWN), None
    return visit.page("audit.html", entries=entries, before=before, shown=_SHOWN)


HANDLERS = (Handler("GET", "/audit", audit, Need.VIEW, "/audit"),)
