"""
English that fugit reads as cron text (`every weekday at noon`), as recorded: its two releases read these alike.

`python -m interop_tests.record_cron_texts` asks both and writes `phrases.json`.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def phrases() -> Mapping[str, str]:
    """Each phrase with the cron text that it stands for."""
    found: dict[str, str] = json.loads((Path(__file__).parent / "phrases.json").read_bytes())
    return found
