"""A visitor without a browser: sends requests to the dashboard, keeps cookies, follows redirects, fills in forms."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

HOST = "localhost:4567"
_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')
_TAG = re.compile(r"<[^>]+>")


@dataclass(frozen=True)
class Reply:
    """
    A response.

    Args:
        text: The body.
        headers: The headers by lower-case name, without cookies.
    """

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The text that a reader sees, on one line."""
        return " ".join(unescape(_TAG.sub(" ", self.text)).split())


class Visitor:
    """
    A visitor of a dashboard.

    Args:
        application: The dashboard.
        base: The path at which it is mounted.
        headers: Headers to send with each request.
        client: The address that requests come from.
    """

    def __init__(
        self,
        application: Any,
        *,
        base: str = "",
        headers: Mapping[str, str] | None = None,
        client: str = "127.0.0.1",
    ) -> None:
        self._application = application
        self._base = base
        self._client = client
        self.headers = {"host": HOST, "accept": "text/html", **(headers or {})}
        self.cookies: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> Reply:
        """Open a page, following redirects."""
        reply = self.send("GET", path, headers=headers)
        while reply.status == 303:
            reply = self.send("GET", reply.headers["location"].removeprefix(self._base), headers=headers)
        return reply

    def post(
        self, path: str, fields: Mapping[str, str | Sequence[str]], *, token: str | None = None, **headers: str
    ) -> Reply:
        """Send a form as a page of the dashboard would, with its token, following redirects."""
        given = self.form_token if token is None else token
        body = urlencode({"form_token": given, **fields}, doseq=True)
        sent = {"origin": f"http://{self.headers['host']}", "sec-fetch-site": "same-origin", **headers}
        reply = self.send("POST", path, body.encode(), headers=sent)
        return self.get(reply.headers["location"].removeprefix(self._base)) if reply.status == 303 else reply

    @property
    def form_token(self) -> str:
        """The token in the forms of this visitor's pages."""
        if "sidekiq_py_form" not in self.cookies:
            self.send("GET", "/bulk")
        return self.cookies.get("sidekiq_py_form", "")

    def send(self, method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None) -> Reply:
        """Send one request, exactly as given."""
        given = {**self.headers, **{name.replace("_", "-"): text for name, text in (headers or {}).items()}}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body:
            given.setdefault("content-type", "application/x-www-form-urlencoded")
        where, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": self._base + where,
            "root_path": self._base,
            "query_string": query.encode(),
            "headers": [(name.encode(), text.encode("latin-1")) for name, text in given.items() if text],
            "client": (self._client, 50_000),
            "server": ("127.0.0.1", 4567),
        }
        # Without the extra `web`, the tests of this folder are skipped.
        from sidekiq_py.web.gateway import answer

        replied = answer(self._application, scope, body)
        kept = {}
        for name, text in replied.headers:
            if name == "set-cookie":
                for morsel in SimpleCookie(text).values():
                    self.cookies[morsel.key] = morsel.value
            else:
                kept[name] = text
        self.cookies = {name: value for name, value in self.cookies.items() if value}
        return Reply(replied.status, replied.body.decode(), kept)
