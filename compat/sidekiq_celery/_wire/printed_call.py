"""The arguments of a call as text for logs and monitors."""

from typing import Any

from sidekiq_celery.utils.serialization import safe_repr
from sidekiq_py.redaction import REDACTED, current


def printed_call(name: str, request: Any, args: Any, kwargs: Any) -> tuple[str, str]:
    """
    The text that the caller gave (`argsrepr`, `kwargsrepr`), or else the arguments' own `repr` after redaction.

    A text is hidden as a whole if the policy hides arguments by position, because they cannot be found in it.

    Args:
        name: The task's name.
        request: The call's request, with its headers.
    """
    policy, given = current(), vars(request)

    def printed(text: Any, value: Any) -> Any:
        if not text:
            return safe_repr(policy.arguments(value, name))
        return redacted_text(name, text)

    return printed(given.get("argsrepr"), args), printed(given.get("kwargsrepr"), kwargs)


def redacted_text(name: str, text: Any) -> Any:
    """The text of a call's arguments, hidden as a whole if the policy hides any by position."""
    policy = current()
    return REDACTED if policy.hides_arguments({"class": name}) else policy.value(text, name)
