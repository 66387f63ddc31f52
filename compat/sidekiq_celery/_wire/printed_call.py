"""The arguments of a call as text for logs and monitors."""

from typing import Any

from sidekiq_celery.utils.serialization import safe_repr
from sidekiq_py.redaction import current


def printed_call(name: str, request: Any, args: Any, kwargs: Any) -> tuple[str, str]:
    """
    The text that the caller gave (`argsrepr`, `kwargsrepr`), or else the arguments' own `repr` after redaction.

    Args:
        name: The task's name.
        request: The call's request, with its headers.
    """
    policy, given = current(), vars(request)
    return (
        policy.value(given.get("argsrepr"), name) or safe_repr(policy.arguments(args, name)),
        policy.value(given.get("kwargsrepr"), name) or safe_repr(policy.arguments(kwargs, name)),
    )
