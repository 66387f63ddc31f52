"""Which keys of a payload say that an extension of Sidekiq handles the job."""

from typing import Any

import pytest

from sidekiq_py.wire.extensions import extension_keys_of


@pytest.mark.parametrize(
    "payload",
    [
        {"bid": "b-7KyWqDV3Z0Pg"},
        {"encrypt": True},
        {"unique_token": "unique:abc"},
        {"overrated": 1},
        {"lock_digest": "uniquejobs:abc"},
        {"unique_digest": "uniquejobs:abc"},
        {"encrypted_args": [1], "args": ["a", "$AES$:XPRfI4yJ0AxFgEO2"]},
        {"bid": ""},
        {"encrypt": 0},
    ],
)
def test_a_key_counts_with_whatever_ruby_takes_for_true(payload: dict[str, Any]) -> None:
    """An empty text and 0 are true to Ruby, whose middleware then handles the job."""
    assert extension_keys_of({"class": "A", "args": [], **payload}) == list(payload)[:1]


@pytest.mark.parametrize(
    "payload",
    [
        {"bid": None, "encrypt": False, "unique_token": None, "lock_digest": None, "overrated": None},
        {"overrated": 0},
        {"unique_for": 60, "unique_until": "start", "lock": "until_executed", "expiry": 1.5},
        {"unique_digest": None, "unique_args": [1], "unique_prefix": "uniquejobs"},
        {"encrypted_args": True, "args": ["a", 1, None]},
        {"encrypted_args": [], "args": []},
        {"args": ["$AES$:XPRfI4yJ0AxFgEO2"]},
    ],
)
def test_a_key_without_meaning_binds_nobody(payload: dict[str, Any]) -> None:
    """Null and false are nothing to Ruby, a count of 0 is none, and options alone are no lock."""
    assert extension_keys_of({"class": "A", "args": [], **payload}) == []
