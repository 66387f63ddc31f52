"""The audit log: who did what."""

from itertools import islice

from starlette.responses import Response

from sidekiq_py.api import AuditEntry, AuditLog
from sidekiq_py.web.access import Need
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.visit import Visit

_SHOWN = 100
_READ_AT_ONCE = 1000
_LONGEST = 200


def audit(visit: Visit) -> Response:
    """The page, latest entries first."""
    before, wanted = visit.query("before") or None, visit.query("text").strip()[:_LONGEST]
    log = AuditLog(pool=visit.pool)
    try:
        entries = _entries(log, wanted, before)
    except ValueError:
        entries, before = _entries(log, wanted, None), None
    return visit.page("audit.html", entries=entries, before=before, shown=_SHOWN, wanted=wanted)


def _entries(log: AuditLog, wanted: str, before: str | None) -> list[AuditEntry]:
    """A page of the entries that contain a text. The log is short enough to be read to its end."""
    if not wanted:
        return log.page(_SHOWN, before=before)
    found: list[AuditEntry] = []
    while len(found) < _SHOWN:
        page = log.page(_READ_AT_ONCE, before=before)
        found += islice((entry for entry in page if _has(entry, wanted)), _SHOWN - len(found))
        if len(page) < _READ_AT_ONCE:
            break
        before = page[-1].id
    return found


def _has(entry: AuditEntry, wanted: str) -> bool:
    text = "\n".join((entry.user, entry.action, entry.subject, entry.details))
    return wanted.casefold() in text.casefold()


HANDLERS = (Handler("GET", "/audit", audit, Need.VIEW, "/audit"),)
