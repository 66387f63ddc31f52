"""
Payload keys that tie a job to an extension of Sidekiq: only the extension's own middleware, in Ruby, can end such a job
correctly.

Other keys that extensions leave in payloads have no such effect: `unique_for` without a token, or a `lock` without its
digest, means that no lock was taken.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

# Source: the gem secret_keys, encryptor.rb, with which sidekiq-encrypted_args encrypts.
_CIPHERTEXT = "$AES$:"


class ExtensionKey(NamedTuple):
    """
    What a key means.

    Args:
        stands_for: The feature and the product that the key belongs to.
        left_undone: What is left undone if Python runs such a job anyway.
    """

    stands_for: str
    left_undone: str


EXTENSION_KEYS: Mapping[str, ExtensionKey] = {
    "bid": ExtensionKey(
        "a batch (Sidekiq Pro; or sidekiq-batch, and it is a callback, or its batch is gone)",
        "Pro's batch never learns that it ran",
    ),
    "encrypt": ExtensionKey("encrypted arguments (Sidekiq Enterprise)", "its last argument cannot be read"),
    # Source: sidekiq-encrypted_args 2.0.1, client_middleware.rb.
    "encrypted_args": ExtensionKey("encrypted arguments (sidekiq-encrypted_args)", "those arguments cannot be read"),
    "unique_token": ExtensionKey("a unique job's lock (Sidekiq Enterprise)", "its lock stays until it expires"),
    "overrated": ExtensionKey("a rate limiter's count (Sidekiq Enterprise)", "the limit is not enforced"),
    "lock_digest": ExtensionKey(
        "a unique job's lock (sidekiq-unique-jobs)", "its lock stays until it expires or is reaped"
    ),
    # Source: sidekiq-unique-jobs 6.0.25, run with Sidekiq 6.0.4.
    "unique_digest": ExtensionKey(
        "a unique job's lock (sidekiq-unique-jobs up to 6)", "its lock stays, as a rule for good"
    ),
}
"""The meaning of each key."""


def extension_keys_of(payload: Mapping[str, Any], known: Iterable[str] = EXTENSION_KEYS) -> list[str]:
    """
    The keys above, or of *known*, that have an effect in *payload*.

    Ruby ignores null and false, and a job with an `overrated` of 0 was never delayed by a limiter. `encrypted_args` is
    also the option of the class, which stays in the payload if the program that pushed it has no encryption.
    """
    return [key for key in known if _means_something(key, payload)]


def _means_something(key: str, payload: Mapping[str, Any]) -> bool:
    value = payload.get(key)
    if value is None or value is False:
        return False
    if key == "overrated":
        return bool(value != 0)
    return key != "encrypted_args" or _has_ciphertext(payload.get("args"))


def _has_ciphertext(args: Any) -> bool:
    return isinstance(args, list) and any(isinstance(arg, str) and arg.startswith(_CIPHERTEXT) for arg in args)
