"""One request, as a page handler sees it."""

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sidekiq_py.api import AuditLog, JobRecord
from sidekiq_py.clock import now_seconds
from sidekiq_py.web.access import FORM_COOKIE, Need, User, new_form_token
from sidekiq_py.web.site import PATH, Server, Site
from sidekiq_py.web.text import ShownJob, shortened, whole_number

NOTICE_COOKIE = "sidekiq_py_notice"
_NAVIGATION = (
    ("Overview", "/"),
    ("Busy", "/busy"),
    ("Queues", "/queues"),
    ("Retries", "/retries"),
    ("Scheduled", "/scheduled"),
    ("Dead", "/dead"),
    ("Metrics", "/metrics"),
    ("Bulk actions", "/bulk"),
    ("Audit", "/audit"),
)
_LONGEST_NOTICE = 500
_LONGEST_ADDRESS = 2000
POLLING = "sidekiq_py.polling"
"""The scope's key by which a caller says that it cannot keep a response open."""


class Visit:
    """
    One request to one page.

    Args:
        request: Starlette's request.
        site: The dashboard.
        server: The Redis that the page shows.
        base: The path under which the dashboard is mounted.
        user: The user who sent the request; None until they are known.

    Attributes:
        form: The fields of a submitted form: name → values.
        can_stream: True if the server can keep a response open.
    """

    def __init__(self, request: Request, site: Site, server: Server, base: str, user: User | None = None) -> None:
        self.request = request
        self.site = site
        self.server = server
        self.base = base
        self.user = user
        self.form: Mapping[str, Sequence[str]] = {}
        self.can_stream = not request.scope.get(POLLING, False)
        self.now = datetime.fromtimestamp(now_seconds(), UTC)
        self._cookies: list[tuple[str, str, int | None]] = []

    @property
    def pool(self) -> Any:
        """The Redis, as `pool=` of the data API takes it."""
        return self.server.pool

    @property
    def is_live(self) -> bool:
        """True if the request asks only for the live part of the page."""
        return self.request.query_params.get("live") == "1"

    @cached_property
    def form_token(self) -> str:
        """The token that each form must repeat; a cookie holds it, too."""
        token = self.request.cookies.get(FORM_COOKIE, "")
        if len(token) < 32:
            token = new_form_token()
            self._cookies.append((FORM_COOKIE, token, None))
        return token

    def may(self, need: str) -> bool:
        """True if the user has the permission *need*: `view`, `operate` or `edit`."""
        return self.user is not None and self.user.may(Need(need))

    def query(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query_params.get(name, default)

    def query_number(self, name: str, *, most: int = 10**15) -> int:
        """A parameter of the address as a whole number; 0 if it is anything else."""
        number = whole_number(self.query(name))
        return 0 if number is None else min(number, most)

    def field(self, name: str, default: str = "") -> str:
        """The first value of a form field."""
        values = self.form.get(name)
        return values[0] if values else default

    def url(self, path: str, /, **query: Any) -> str:
        """The address of a page on the same Redis, without the parameters that are None or empty."""
        prefix = f"/at/{self.server.name}" if self.server is not self.site.first_server else ""
        given = {name: value for name, value in query.items() if value is not None and value != ""}
        return f"{self.base}{prefix}{path}" + (f"?{urlencode(given, errors='replace')}" if given else "")

    def shown(self, record: JobRecord) -> ShownJob:
        """A job as this dashboard's redaction policy allows it to be shown."""
        return ShownJob(record, self.site.redaction)

    def audit(self, action: str, subject: str, details: str = "") -> None:
        """Record in the audit log what the user is about to do. If this raises, the action must not happen."""
        name = self.user.name if self.user else "nobody"
        AuditLog(pool=self.pool).record(name, action, subject, details)

    def page(self, template: str, status: int = 200, **facts: Any) -> Response:
        """Render a page, or only its block `live` if the request asks for that."""
        compiled = self.site.templates.get_template(template)
        context = {**self._shared(), **facts}
        if self.is_live and "live" in compiled.blocks:
            html = "".join(compiled.blocks["live"](compiled.new_context(context)))
        else:
            html = compiled.render(context)
        # Unpaired surrogates may be left, for example in attributes.
        return self._with_cookies(HTMLResponse(html.encode(errors="backslashreplace"), status))

    def error(self, status: int, title: str, advice: str) -> Response:
        """Render a page that says what is wrong, and what the user can do."""
        return self.page("error.html", status, title=title, advice=advice)

    def redirect(self, path: str, notice: str = "", /, **query: Any) -> Response:
        """Redirect to another page, which shows *notice*."""
        if notice:
            text = shortened(notice, _LONGEST_NOTICE).encode(errors="backslashreplace")
            self._cookies.append((NOTICE_COOKIE, base64.urlsafe_b64encode(text).decode(), 60))
        return self._with_cookies(Response(status_code=303, headers={"location": self.url(path, **query)}))

    def redirect_back(self, notice: str, *pages: str) -> Response:
        """Redirect to the page that has sent the form, as it was, if it is one of *pages*; otherwise to the first."""
        address = self.request.headers.get("referer", "")
        with suppress(ValueError):
            here = urlsplit(address) if len(address) <= _LONGEST_ADDRESS else urlsplit("")
            for page in pages:
                if here.path == self.url(page):
                    return self.redirect(page, notice, **dict(parse_qsl(here.query)))
        return self.redirect(pages[0], notice)

    def redirect_within(self, address: str) -> Response:
        """Redirect to *address*, a path with parameters on this dashboard; to the overview if it is anything else."""
        path, _, query = address.partition("?")
        if len(address) > _LONGEST_ADDRESS or not PATH.fullmatch(path):
            return self.redirect("/")
        return self.redirect(path, **dict(parse_qsl(query)))

    def question(self, question: str, advice: str = "", *, path: str, back: str) -> Response | None:
        """
        Ask before an action that cannot be undone: a page that sends this form again, or None to go on.

        It goes on if the user has said yes: here, or in a browser with JavaScript to the `data-ask` of the form or its
        button. A program that shows a token is not asked.

        Args:
            question: What will be done, such as `Remove report?`.
            advice: What that means; may be empty.
            path: Where the form is sent.
            back: The path of the page that has the form.
        """
        if self.field("sure") == "yes" or self.site.access.has_bearer_token(self.request):
            return None
        fields = [(name, value) for name, values in self.form.items() if name != "form_token" for value in values]
        return self.page("question.html", question=question, advice=advice, path=path, back=back, fields=fields)

    def set_cookie(self, name: str, value: str, seconds: int | None = None) -> None:
        """Set a cookie in the response; 0 seconds removes it."""
        self._cookies.append((name, value, seconds))

    def _shared(self) -> dict[str, Any]:
        extra = [(page.title, page.path) for page in self.site.pages if page.is_listed]
        here = self.request.scope["sidekiq_py.page"]
        return {
            "visit": self,
            "site": self.site,
            "user": self.user,
            "now": self.now,
            "url": self.url,
            "navigation": [(title, path, path == here) for title, path in (*_NAVIGATION, *extra)],
            "form_token": self.form_token,
            "notice": self._take_notice(),
        }

    def _take_notice(self) -> str:
        kept = self.request.cookies.get(NOTICE_COOKIE)
        if not kept or self.is_live:
            return ""
        self._cookies.append((NOTICE_COOKIE, "", 0))
        try:
            return base64.b64decode(kept, altchars=b"-_", validate=True).decode(errors="replace")[:_LONGEST_NOTICE]
        except ValueError:
            return ""

    def _with_cookies(self, response: Response) -> Response:
        for name, value, seconds in self._cookies:
            response.set_cookie(
                name,
                value,
                max_age=seconds,
                path=f"{self.base}/",
                secure=self.request.url.scheme == "https",
                httponly=True,
                samesite="strict" if name == FORM_COOKIE else "lax",
            )
        return response
