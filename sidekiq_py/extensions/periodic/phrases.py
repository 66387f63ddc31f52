"""
English phrases that fugit reads as cron text (`every weekday at noon`). They were recorded from its two releases, which
read them alike.

`python -m interop_tests.record_cron_texts` runs both and writes `phrases.json`.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def phrases() -> Mapping[str, str]:
    """Maps each phrase to its cron text."""
    found: dict[str, str] = json.loads((Path(__file__).parent / "phrases.json").read_bytes())
    return found
