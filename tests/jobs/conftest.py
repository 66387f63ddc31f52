"""As for the client: a program as at its start for each test, and what stands in Redis after a push."""

from tests.client.conftest import _as_at_the_start, configured, pushed

__all__ = ("_as_at_the_start", "configured", "pushed")
