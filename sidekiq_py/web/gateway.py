"""
Serves the dashboard under WSGI: each request runs in the thread that the server provides. Pages poll, not stream.

It runs no event loop, because the host program's code would notice: Django refuses to use its database inside one. So
nothing here may await anything that needs an event loop.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.types import Message, Receive, Scope, Send

from sidekiq_py.errors import ConfigError
from sidekiq_py.web.application import asgi_app
from sidekiq_py.web.text import whole_number
from sidekiq_py.web.visit import POLLING

_MOST_BODY_BYTES = 5 * 1024 * 1024

Application = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]


class Answer(NamedTuple):
    """A complete response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def answer(application: Application, scope: Scope, body: bytes) -> Answer:
    """Run an ASGI application for one request, blocking the calling thread until the response is complete."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    _run(application({**scope, POLLING: True}, receive, send))
    start, *parts = sent
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    return Answer(start["status"], headers, b"".join(part.get("body", b"") for part in parts))


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise ConfigError("authorize awaits something asynchronous; under WSGI and in Django it must be a plain function")


def wsgi_app(**settings: Any) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """
    The dashboard as a WSGI application, to mount under a prefix.

    Args:
        settings: As for `asgi_app`; *authorize* receives the WSGI `environ`.

    Raises:
        ConfigError: As for `asgi_app`.
    """
    application = asgi_app(**settings)

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        wanted = whole_number(environ.get("CONTENT_LENGTH") or "") or 0
        body = environ["wsgi.input"].read(min(wanted, _MOST_BODY_BYTES)) if wanted else b""
        replied = answer(application, _scope(environ), body)
        status = HTTPStatus(replied.status)
        start_response(f"{replied.status} {status.phrase}", replied.headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else replied.body]

    return serve


def _scope(environ: dict[str, Any]) -> Scope:
    # WSGI strings hold the raw bytes as Latin-1.
    path = environ.get("PATH_INFO", "").encode("latin-1").decode(errors="replace")
    base = environ.get("SCRIPT_NAME", "").encode("latin-1").decode(errors="replace")
    scheme = environ.get("wsgi.url_scheme", "http")
    return scope_of(environ, environ, environ["REQUEST_METHOD"], scheme, base + path, base)


def scope_of(environ: Mapping[str, Any], request: Any, method: str, scheme: str, path: str, base: str) -> Scope:
    """
    The scope of a request, for an ASGI application.

    Args:
        environ: Has the headers and addresses by their names in WSGI.
        request: For *authorize*.
        base: The beginning of *path* under which the application is mounted.
    """
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in environ.items()
        if (name.startswith("HTTP_") or (name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value))
        and isinstance(value, str)
    ]
    client = environ.get("REMOTE_ADDR")
    port = environ.get("SERVER_PORT", "")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": path,
        "raw_path": quote(path).encode(),
        "root_path": base,
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "headers": headers,
        "client": (client, 0) if client else None,
        "server": (environ.get("SERVER_NAME", ""), int(port) if port.isdigit() else None),
        "sidekiq_py.request": request,
    }
