"""Who may see the dashboard."""

from django.http import HttpRequest

from sidekiq_py.web import User


def who(request: HttpRequest) -> User | None:
    """Superusers may act, staff may view, and no one else has access."""
    user = request.user
    if user.is_superuser:
        return User(user.get_username(), "operator")
    return User(user.get_username(), "viewer") if user.is_staff else None
