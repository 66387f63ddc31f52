"""What `ruby_fixtures/README.md` says of the recordings is all there is, and its example runs as it stands there."""

import re
import subprocess
import sys
from typing import Any

from interop_tests.support.recordings import RECORDED, recordings
from interop_tests.support.ruby import RUBY_FIXTURES


def test_the_example_holds_a_writer_against_every_release() -> None:
    """With nothing but the standard library."""
    [program] = re.findall(r"```python\n(.*?)```", (RUBY_FIXTURES / "README.md").read_text(), re.S)

    ran = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=RUBY_FIXTURES.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert ran.stdout.splitlines() == [f"same bytes as Sidekiq {release}" for release in RECORDED]


def test_every_key_step_and_call_of_an_input_is_explained() -> None:
    """By its name, in that file; so is what an argument of another type is made of."""
    words = set(re.findall(r"`([a-z_]+)`", (RUBY_FIXTURES / "README.md").read_text()))
    inputs = [found.input for found in recordings()]

    met = {key for given in inputs for key in given}
    met |= {given[key] for given in inputs for key in ("step", "call") if key in given}
    met |= {key for given in inputs for key in _keys_of_objects(given)}

    assert sorted(met - words) == []


def test_where_the_bytes_before_lie_is_told() -> None:
    """In a set or in a queue; `promote_all` names the set beside each."""
    missing = [
        found.id
        for found in recordings()
        if "before" in found.input and not {"from", "queue"} & set(found.input) and found.input["step"] != "promote_all"
    ]

    assert missing == []


def test_every_recording_is_a_call_or_a_step() -> None:
    """So that nobody has to read Ruby to make it again."""
    assert [found.id for found in recordings() if ("call" in found.input) == ("step" in found.input)] == []


def _keys_of_objects(given: dict[str, Any]) -> set[str]:
    """The keys of arguments that JSON has no type for."""
    if given.get("call") != "perform_later":
        return set()
    return {key for value in given["args"] if isinstance(value, dict) and "is" in value for key in value}
