"""
A FastAPI program with the dashboard under /sidekiq.

    REDIS_URL=redis://localhost:6379/0 uvicorn main:app --timeout-graceful-shutdown 5

Without the limit, a stop waits up to five minutes for the pages that are open.

The sign-on proxy in front of this program names the user in X-Forwarded-User, and removes that header from requests
that come from outside.
"""

from fastapi import FastAPI, Request

from sidekiq_py.web import User, asgi_app

OPERATORS = {"ada@example.com"}
app = FastAPI()


@app.get("/")
def index() -> dict[str, str]:
    """The program itself."""
    return {"dashboard": "/sidekiq/"}


def who(request: Request) -> User | None:
    """Operators may act, all other users may view, and no one else has access."""
    name = request.headers.get("x-forwarded-user")
    if not name:
        return None
    return User(name, "operator" if name in OPERATORS else "viewer")


app.mount("/sidekiq", asgi_app(authorize=who))
