"""
Keys by which an extension of Sidekiq goes on minding a job: only its own middleware, in Ruby, can end such a job as it
should.

Other keys that extensions leave in payloads bind nobody: `unique_for` without a token, or a `lock` without its digest,
says that no lock was taken.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class ExtensionKey(NamedTuple):
    """
    What a key means.

    Args:
        stands_for: Whose it is, and for what.
        left_undone: What becomes of a job with it where Python runs it all the same.
    """

    stands_for: str
    left_undone: str


EXTENSION_KEYS: Mapping[str, ExtensionKey] = {
    "bid": ExtensionKey(
        "a batch (Sidekiq Pro; or sidekiq-batch, and it is a callback, or its batch is gone)",
        "Pro's batch never hears that it ran",
    ),
    "encrypt": ExtensionKey("encrypted arguments (Sidekiq Enterprise)", "its last argument cannot be read"),
    "unique_token": ExtensionKey("a unique job's lock (Sidekiq Enterprise)", "its lock stands until it expires"),
    "overrated": ExtensionKey("a rate limiter's count (Sidekiq Enterprise)", "the limit does not hold"),
    "lock_digest": ExtensionKey(
        "a unique job's lock (sidekiq-unique-jobs)", "its lock stands until it expires or is reaped"
    ),
}
"""By key."""


def extension_keys_of(payload: Mapping[str, Any], known: Iterable[str] = EXTENSION_KEYS) -> list[str]:
    """
    The keys above, or those of *known*, that mean something in *payload*.

    Null and false are nothing to Ruby, and a job with an `overrated` of 0 was never put off by a limiter.
    """
    return [key for key in known if _means_something(key, payload.get(key))]


def _means_something(key: str, value: Any) -> bool:
    return not (value is None or value is False or (key == "overrated" and value == 0))
