"""The view that serves the dashboard in Django, under both WSGI and ASGI; pages poll instead of streaming."""

from functools import cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.module_loading import import_string
from django.views.decorators.csrf import csrf_exempt

from sidekiq_py.errors import ConfigError
from sidekiq_py.web import User, asgi_app
from sidekiq_py.web.gateway import answer, scope_of

_WAYS_IN = ("accounts", "tokens", "authorize")


# The dashboard's forms have their own tokens instead of Django's.
@csrf_exempt  # type: ignore[untyped-decorator]
def dashboard(request: HttpRequest, path: str) -> HttpResponse:
    """Serve one page of the dashboard."""
    base = request.path[: len(request.path) - len(path)].rstrip("/")
    if base and path == "" and not request.path.endswith("/"):
        path = "/"
    scope = scope_of(request.META, request, request.method, request.scheme, request.path, base)
    replied = answer(_application(), scope, request.body)
    response = HttpResponse(b"" if request.method == "HEAD" else replied.body, status=replied.status)
    del response["Content-Type"]
    for name, value in replied.headers:
        if name == "set-cookie":
            response.cookies.load(value)
        elif name != "content-length":
            response[name] = value
    return response


@cache
def _application() -> Any:
    given = dict(getattr(settings, "SIDEKIQ_PY_WEB", {}))
    if isinstance(given.get("authorize"), str):
        given["authorize"] = import_string(given["authorize"])
    if not any(given.get(name) for name in _WAYS_IN):
        if "django.contrib.auth" not in settings.INSTALLED_APPS:
            raise ConfigError(
                "the dashboard has no access rules; set SIDEKIQ_PY_WEB = {'authorize': 'myapp.may_see_jobs'}"
            )
        given["authorize"] = _superusers
    return asgi_app(**given)


def _superusers(request: HttpRequest) -> User | None:
    user = getattr(request, "user", None)
    if user is None or not user.is_active or not user.is_superuser:
        return None
    return User(user.get_username(), "operator", may_edit=True)
