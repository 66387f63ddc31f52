"""
Keys by which an extension of Sidekiq goes on minding a job: only its own middleware, in Ruby, can end such a job as it
should.

Other keys that extensions leave in payloads bind nobody: `unique_for` without a token, or a `lock` without its digest,
says that no lock was taken.
"""

from collections.abc import Mapping
from typing import Any

EXTENSION_KEYS: Mapping[str, str] = {
    "bid": "a batch (Sidekiq Pro, or the gem sidekiq-batch)",
    "encrypt": "encrypted arguments (Sidekiq Enterprise)",
    "unique_token": "a unique job's lock (Sidekiq Enterprise)",
    "overrated": "a rate limiter's count (Sidekiq Enterprise)",
    "lock_digest": "a unique job's lock (sidekiq-unique-jobs)",
}
"""Key to what it stands for."""


def extension_keys_of(payload: Mapping[str, Any]) -> list[str]:
    """
    The keys above that mean something in *payload*.

    Null and false are nothing to Ruby, and a job with an `overrated` of 0 was never put off by a limiter.
    """
    return [key for key in EXTENSION_KEYS if _means_something(key, payload.get(key))]


def _means_something(key: str, value: Any) -> bool:
    return not (value is None or value is False or (key == "overrated" and value == 0))
