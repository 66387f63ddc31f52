"""Signing in and out."""

import logging

from starlette.responses import Response

from sidekiq_py.web.access import SESSION_COOKIE, SESSION_SECONDS
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.text import duration
from sidekiq_py.web.visit import Visit

_LONGEST = 1024
_SHOWN = 80

_log = logging.getLogger("sidekiq.web")


def form(visit: Visit) -> Response:
    """The form."""
    if not visit.site.access.has_sign_in:
        return visit.error(404, "There is no such page", "This dashboard has no sign-in.")
    return visit.page("sign_in.html", trouble="", to=visit.query("to"))


def sign_in(visit: Visit) -> Response:
    """Check a name and a password, or a token, and redirect to the page that the user wanted."""
    name, secret, to = visit.field("name")[:_LONGEST], visit.field("secret")[:_LONGEST], visit.field("to")
    client = visit.request.client
    keys = (f"address {client.host if client else '?'}", f"name {name}")
    throttle = visit.site.throttle
    wait = throttle.begin(*keys)
    if wait:
        problem = f"There were too many failed attempts. Try again in {duration(max(1.0, wait))}."
        return visit.page("sign_in.html", 429, trouble=problem, to=to)
    session = visit.site.access.sign_in(name, secret)
    if session is None:
        _log.warning("a sign-in was refused: name %s, from %s", ascii(name[:_SHOWN]), client.host if client else "?")
        problem = "Sign-in failed. Check the name and the password or token."
        return visit.page("sign_in.html", 401, trouble=problem, to=to)
    throttle.succeed(*keys)
    visit.set_cookie(SESSION_COOKIE, session, SESSION_SECONDS)
    return visit.redirect_within(to)


def sign_out(visit: Visit) -> Response:
    """Forget the session."""
    visit.set_cookie(SESSION_COOKIE, "", 0)
    return visit.redirect("/sign-in")


HANDLERS = (
    Handler("GET", "/sign-in", form, None, "/sign-in"),
    Handler("POST", "/sign-in", sign_in, None, "/sign-in"),
    Handler("POST", "/sign-out", sign_out, None, "/sign-in"),
)
