"""Errors of kombu, redis-py and our own that mean that a user of Redis lacks a right."""

# In the words of Redis, Valkey and redis-py, in lower case. Without the right to MULTI, redis-py only reports the EXEC
# after it.
_SIGNS = ("noperm", "no permissions", "executing the script can't", "acl failure in script", "exec without multi")
_WHERE = "docs/redis.md lists the rights that each program needs"


def with_rights_hint(error: BaseException) -> str:
    """The error's text, with a hint where the rights are listed if it is about one."""
    text = str(error)
    return f"{text.rstrip('.')}. {_WHERE}" if is_about_rights(error) and "docs/redis.md" not in text else text


def is_about_rights(error: BaseException) -> bool:
    """True if Redis refused a command, a key or a channel that this user has no right to."""
    text = str(error).lower()
    return any(sign in text for sign in _SIGNS)
