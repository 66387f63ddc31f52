"""
The dashboard: shows and controls what Ruby and Python do on one Redis. Needs the extra `web`.

    from sidekiq_py.web import asgi_app

    app.mount("/sidekiq", asgi_app(authorize=lambda request: "operator" if is_admin(request) else None))

`application` is the ASGI application, `access` decides who has access, and `gateway` serves the dashboard under WSGI.
`pages/` has one module per page, and pages read and act only through `sidekiq_py.api`. `docs/dashboard.md` says how to
use the dashboard, `SECURITY.md` what it protects against.
"""

from sidekiq_py.redaction import Redaction

try:
    from sidekiq_py.web.access import Account, Role, User
    from sidekiq_py.web.application import asgi_app
    from sidekiq_py.web.background import BackgroundValue
    from sidekiq_py.web.gateway import wsgi_app
    from sidekiq_py.web.passwords import hash_password
    from sidekiq_py.web.site import JobLink, Page, PageAction
    from sidekiq_py.web.visit import Visit
except ModuleNotFoundError as error:
    raise ImportError(
        f"sidekiq_py.web needs {error.name}, which is not installed; install it with: pip install 'sidekiq-py[web]'"
    ) from error

__all__ = [
    "Account",
    "BackgroundValue",
    "JobLink",
    "Page",
    "PageAction",
    "Redaction",
    "Role",
    "User",
    "Visit",
    "asgi_app",
    "hash_password",
    "wsgi_app",
]
