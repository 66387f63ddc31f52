"""
Matches a node's name against a regular expression that came over the wire (`matcher="pcre"` of remote control).

Python's `re` can be neither limited nor interrupted, and it holds the interpreter lock: `".?" * 60 + "#"` against a
name of 20 letters takes years, and the worker would take no task in all that time. So the match runs in a process of
its own, which is killed if it takes too long. That costs some 20 ms per message, and only people and scripts send them.
"""

import json
import subprocess
import sys

LONGEST_PATTERN = 1000
_SECONDS = 2.0

# Without `site`: the program needs only the standard library, and starts in half the time.
_PROGRAM = "import json, re, sys; print(json.dumps(bool(re.match(*json.load(sys.stdin)))))"


def fits(name: str, pattern: object, *, within_seconds: float = _SECONDS) -> bool:
    """
    True if `re.match` finds *pattern* at the beginning of *name*.

    Raises:
        ValueError: *pattern* is not a regular expression, is too long, or takes too long.
    """
    if not isinstance(pattern, str) or len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"a pattern has to be a text of at most {LONGEST_PATTERN} characters, not {pattern!r:.60}")
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=json.dumps([pattern, name]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=within_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"the pattern {pattern!r:.60} takes more than {within_seconds:g} s to match") from None
    except OSError as error:
        raise ValueError(f"the pattern {pattern!r:.60} cannot be tried, as Python failed to start: {error}") from error
    answer = ran.stdout.strip()
    if answer not in (b"true", b"false"):
        raise ValueError(f"the pattern {pattern!r:.60} is not a regular expression")
    return answer == b"true"
