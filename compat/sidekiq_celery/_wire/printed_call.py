"""The arguments of a call as text, as logs and monitors get them."""

from typing import Any

from sidekiq_celery.utils.serialization import safe_repr
from sidekiq_py.redaction import current


def printed_call(name: str, request: Any, args: Any, kwargs: Any) -> tuple[str, str]:
    """
    What the caller gave for them (`argsrepr`, `kwargsrepr`), else their own text without what the program hides.

    Args:
        name: The task's.
        request: With what came along with the call.
    """
    policy = current()
    return (
        policy.value(request.get("argsrepr"), name) or safe_repr(policy.arguments(args, name)),
        policy.value(request.get("kwargsrepr"), name) or safe_repr(policy.arguments(kwargs, name)),
    )
