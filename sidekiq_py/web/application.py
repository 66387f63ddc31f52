"""The ASGI application: routes, and the checks that every request passes before it reaches a page."""

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote

from anyio import Event, move_on_after, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sidekiq_py.errors import (
    ConfigError,
    PayloadError,
    PushOutcomeUnknownError,
    RedisConnectionError,
    RedisError,
    RedisReplyError,
    ReplyLostError,
    SidekiqError,
)
from sidekiq_py.redaction import Redaction
from sidekiq_py.web.access import FORM_COOKIE, Access, Account, Authorize, Need, Refusal, Role, User, is_form_token
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.pages import HANDLERS
from sidekiq_py.web.site import ASSETS, Page, Server, Site
from sidekiq_py.web.visit import Visit

_MOST_FORM_BYTES = 4 * 1024 * 1024
_MOST_FIELDS = 5000
_MOST_STREAMS = 200
_STREAM_SECONDS = 300
_LOOK_SECONDS = 1.0
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer", with which browsers send forms with the origin "null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-robots-tag": "noindex, nofollow",
}

_log = logging.getLogger("sidekiq.web")


def asgi_app(
    *,
    accounts: Mapping[str, Account] | None = None,
    tokens: Mapping[str, User | Role | str] | None = None,
    authorize: Authorize | None = None,
    allowed_hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    pool: Any = None,
    servers: Mapping[str, Any] | None = None,
    redaction: Redaction | None = None,
    title: str = "Sidekiq",
    trace_url: str = "",
    pages: Sequence[Page] = (),
) -> "Dashboard":
    """
    The dashboard as an ASGI application, to mount under a prefix or to serve on its own.

        app.mount("/sidekiq", asgi_app(authorize=lambda request: "operator" if is_admin(request) else None))

    Without *accounts*, *tokens* and *authorize* it rejects every request.

    Args:
        accounts: Name → `Account`, for people who sign in.
        tokens: Token → a role's name or a `User`, for programs and for signing in without a name.
        authorize: Takes the request and returns a `User`, `"viewer"`, `"operator"`, or None to deny access. The request
            is Starlette's; in Django it is an `HttpRequest`, and under WSGI the `environ`.
        allowed_hosts: The values of the Host header to accept; empty accepts all.
        origins: Additional origins from which forms are accepted, such as `https://ops.example.com`, for a proxy that
            changes the Host header.
        pool: The Redis to show: a URL, a redis-py client or a `Pool`. Without it and *servers*, the program's own.
        servers: Several instead, by name.
        redaction: Which values to hide; by default those that the program hides (`sidekiq.configure(redaction=…)`).
        title: The title at the top of each page.
        trace_url: The address of a trace: `https://traces.example.com/trace/{trace_id}`. A job whose payload has a
            `traceparent` links there.
        pages: More pages, in addition to those of extensions.

    Raises:
        ConfigError: A setting is invalid; the message says why.
    """
    access = Access(accounts=accounts, tokens=tokens, authorize=authorize, allowed_hosts=allowed_hosts, origins=origins)
    site = Site(access, pool=pool, servers=servers, redaction=redaction, title=title, trace_url=trace_url, pages=pages)
    return Dashboard(site)


class Dashboard:
    """
    The ASGI application.

    Args:
        site: The settings, templates and state of the dashboard.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self._handlers = _handlers(site)

    def __repr__(self) -> str:
        return f"<Dashboard {self.site.title}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _live_on(receive, send)
            return
        if scope["type"] == "websocket":
            # Without an answer, servers respond with 500 and log an error.
            await send({"type": "websocket.close"})
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        response = await self._respond(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)

    def end_streams(self) -> None:
        """End the streams of all open pages at once, for a server that stops. Call it in the server's event loop."""
        for is_ended in self.site.streams:
            is_ended.set()

    async def _respond(self, request: Request) -> Response:
        base = request.scope.get("root_path", "").rstrip("/")
        # Servers disagree about whether `path` includes the prefix; `root_path` never ends in a slash.
        path = request.scope["path"]
        path = path.removeprefix(base) if base and (path == base or path.startswith(f"{base}/")) else path
        if path.startswith("/assets/"):
            return self._asset(path.removeprefix("/assets/"), request)
        server, path = self._server(path)
        if server is None:
            server, path = self.site.first_server, "/nowhere"
        # Headers are ASCII only, and a leading double slash would be the address of another site.
        visit = Visit(request, self.site, server, quote(re.sub("^/+", "/", base), errors="replace"))
        request.scope["sidekiq_py.page"] = path
        try:
            return await self._visit(visit, path or "/")
        except ClientDisconnect:
            return Response(status_code=400)
        except SidekiqError as error:
            return visit.error(*_described(error))
        except Exception:  # noqa: BLE001 - a page that fails must say so, and not take the server with it
            _log.exception("the dashboard failed at %s", ascii(path)[:200])
            return visit.error(500, "This page failed", "This is a bug in the dashboard. Its log has the traceback.")

    async def _visit(self, visit: Visit, path: str) -> Response:
        request = visit.request
        who = await self.site.access.identify(request)
        method = "GET" if request.method == "HEAD" else request.method
        found = self._handlers.get((method, path))
        if isinstance(who, User):
            visit.user = who
        elif found is None or found.need is not None or who.status == HTTPStatus.FORBIDDEN:
            return _refusal_page(visit, who)
        if found is None:
            allowed = [known for known, page in self._handlers if page == path]
            if allowed:
                response = visit.error(405, "That cannot be done this way", "Go back and use the page's buttons.")
                response.headers["allow"] = ", ".join(allowed)
                return response
            return visit.error(404, "There is no such page", "The address may be mistyped, or the page is gone.")
        if found.need is not None and not visit.may(found.need):
            return visit.error(403, "You are not allowed to do that", _MISSING[found.need])
        request.scope["sidekiq_py.page"] = found.page
        if request.method == "POST":
            refused = await self._read_form(visit)
            if refused is not None:
                return refused
        if visit.query("live") == "stream" and request.method == "GET" and found.is_live:
            return self._stream(visit, found)
        return await self._run(visit, found)

    async def _run(self, visit: Visit, found: Handler) -> Response:
        answer = partial(found.run, visit)
        # A caller that cannot stream has already given this request its own thread.
        if found.need is None:
            # Signing in and out does not use Redis, so it does not tell whether Redis can be reached either.
            return await to_thread.run_sync(answer) if visit.can_stream else answer()
        return await visit.server.run(answer) if visit.can_stream else visit.server.run_here(answer)

    async def _read_form(self, visit: Visit) -> Response | None:
        request = visit.request
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _MOST_FORM_BYTES:
                return visit.error(413, "That form is too large", "A form can hold up to 4 MB.")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return visit.error(415, "That is not a form", "Send it as application/x-www-form-urlencoded.")
        try:
            visit.form = parse_qs(
                body.decode("utf-8", "strict"),
                keep_blank_values=True,
                max_num_fields=_MOST_FIELDS,
                encoding="utf-8",
                errors="strict",
            )
        except ValueError:
            return visit.error(400, "That form cannot be read", "It is not UTF-8, or has too many fields.")
        if self.site.access.has_bearer_token(request):
            return None
        if not self.site.access.is_same_origin(request):
            return visit.error(
                403,
                "This form came from somewhere else",
                "It was rejected, because another site may have sent it. If a proxy changes the Host header, add the "
                "dashboard's own address to origins=.",
            )
        if not is_form_token(request.cookies.get(FORM_COOKIE, ""), visit.field("form_token")):
            return visit.error(403, "This form is out of date", "Go back, reload the page and send the form again.")
        return None

    def _server(self, path: str) -> tuple[Server | None, str]:
        if not path.startswith("/at/"):
            return self.site.first_server, path
        name, slash, rest = path.removeprefix("/at/").partition("/")
        return self.site.servers.get(name) if name else None, slash + rest

    def _asset(self, name: str, request: Request) -> Response:
        known = {path.name: path for path in ASSETS.iterdir()}
        if name not in known or request.method not in ("GET", "HEAD"):
            return Response("There is no such file.", 404, media_type="text/plain")
        return Response(
            known[name].read_bytes(),
            media_type=_KINDS[known[name].suffix],
            headers={"cache-control": "public, max-age=31536000, immutable"},
        )

    def _stream(self, visit: Visit, found: Handler) -> Response:
        if not visit.can_stream or len(self.site.streams) >= _MOST_STREAMS:
            # The page's script then polls instead.
            return Response("Too many pages are open; this one is updated less often.", 503, media_type="text/plain")
        query = "&".join(part for part in visit.request.url.query.split("&") if part != "live=stream")
        visit.request.scope["query_string"] = f"{query}&live=1".lstrip("&").encode()
        # nginx would otherwise keep the events back until they fill a buffer.
        unbuffered = {"x-accel-buffering": "no"}
        return StreamingResponse(self._events(visit, found), headers=unbuffered, media_type="text/event-stream")

    async def _events(self, visit: Visit, found: Handler) -> AsyncIterator[bytes]:
        """
        Send the live part of a page whenever it has changed, checking once a second.

        The stream ends after five minutes, or by `end_streams`; the browser then reconnects by itself.
        """
        is_ended = Event()
        self.site.streams.add(is_ended)
        last = b""
        try:
            for _ in range(int(_STREAM_SECONDS / _LOOK_SECONDS)):
                try:
                    fresh = Visit(Request(visit.request.scope), self.site, visit.server, visit.base, visit.user)
                    body = bytes((await visit.server.run(partial(found.run, fresh))).body)
                except SidekiqError as error:
                    _, title, advice = _described(error)
                    yield _event("trouble", f"{title}. {advice}".encode())
                else:
                    if body != last:
                        last = body
                        yield _event("page", body)
                    else:
                        yield b": nothing new\n\n"
                with move_on_after(_LOOK_SECONDS):
                    await is_ended.wait()
                    return
        finally:
            self.site.streams.remove(is_ended)


_MISSING = {
    Need.OPERATE: "Your account can view, but not act. Ask for the operator role.",
    Need.EDIT: "Editing jobs requires a separate permission, which your account does not have.",
}


def _handlers(site: Site) -> dict[tuple[str, str], Handler]:
    extra = [Handler("GET", page.path, page.render, Need.VIEW, page.path, is_live=True) for page in site.pages]
    extra += [
        Handler("POST", action.path, action.run, Need(action.need), page.path)
        for page in site.pages
        for action in page.actions
    ]
    found: dict[tuple[str, str], Handler] = {}
    for handler in (*HANDLERS, *extra):
        if (handler.method, handler.path) in found:
            raise ConfigError(f"two pages have the path {handler.path}; give the extension's page a different one")
        found[handler.method, handler.path] = handler
    return found


def _refusal_page(visit: Visit, why: Refusal) -> Response:
    is_page = visit.request.method == "GET" and "text/html" in visit.request.headers.get("accept", "")
    if why.status == HTTPStatus.UNAUTHORIZED and is_page and not visit.query("live"):
        query = visit.request.url.query
        asked_for = visit.request.scope["sidekiq_py.page"] + (f"?{query}" if query else "")
        return visit.redirect("/sign-in", to=None if asked_for == "/" else asked_for)
    response = visit.error(why.status, why.title, why.advice)
    if why.status == HTTPStatus.UNAUTHORIZED:
        response.headers["www-authenticate"] = "Bearer"
    return response


def _described(error: SidekiqError) -> tuple[int, str, str]:
    """The status, title and advice to show for one of our own errors."""
    said = str(error).rstrip(".")
    if isinstance(error, PushOutcomeUnknownError):
        return 504, "It is unknown whether that was done", f"{said}. Look for the job before you try again."
    if isinstance(error, ReplyLostError):
        return 504, "Redis did not answer", f"{said}. Reload the page to see what was done."
    if isinstance(error, RedisConnectionError):
        return 503, "Redis cannot be reached", f"{said}. The page works again as soon as Redis does."
    if isinstance(error, RedisReplyError):
        if error.code == "LOADING":
            return 503, "Redis is starting", "It is reading its data from disk. The page works again when it has."
        if error.code == "NOPERM":
            advice = "docs/dashboard.md says which rights a dashboard needs."
            return 403, "Redis does not allow that", f"This dashboard's Redis user lacks a permission: {said}. {advice}"
        return 502, "Redis refused that", f"{said}. `sidekiq-py doctor` may tell you why."
    if isinstance(error, RedisError):
        return 502, "Redis refused that", f"{said}."
    if isinstance(error, PayloadError):
        return 422, "That job cannot be used", f"{said}."
    return 409, "That cannot be done", f"{said}."


def _event(name: str, data: bytes) -> bytes:
    lines = b"\n".join(b"data: " + line for line in data.splitlines())
    return b"event: " + name.encode() + b"\n" + lines + b"\n\n"


async def _live_on(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
