"""
A Flask program with the dashboard under /sidekiq.

    REDIS_URL=redis://localhost:6379/0 flask --app main run

The sign-on proxy in front of this program names the user in X-Forwarded-User, and removes that header from requests
that come from outside.
"""

from typing import Any

from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from sidekiq_py.web import User, wsgi_app

OPERATORS = {"ada@example.com"}
app = Flask(__name__)


@app.get("/")
def index() -> dict[str, str]:
    """The program itself."""
    return {"dashboard": "/sidekiq/"}


def who(environ: dict[str, Any]) -> User | None:
    """Operators may act, all other users may view, and no one else has access."""
    name = environ.get("HTTP_X_FORWARDED_USER")
    if not name:
        return None
    return User(name, "operator" if name in OPERATORS else "viewer")


app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/sidekiq": wsgi_app(authorize=who)})  # type: ignore[method-assign]
