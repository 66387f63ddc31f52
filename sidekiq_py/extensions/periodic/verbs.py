"""What is done to the timetable in one step: a script each in `lua/`, whose head names its words."""

from pathlib import Path

from sidekiq_py.extension import Verb

_FOLDER = Path(__file__).parent / "lua"

SAVE, REMOVE, STATUS, CLAIM, PASS, PLANT, ENDED = (
    Verb(f"CRON_{name.upper()}", (_FOLDER / f"{name}.lua").read_text())
    for name in ("save", "remove", "status", "claim", "pass", "plant", "ended")
)
ALL = (SAVE, REMOVE, STATUS, CLAIM, PASS, PLANT, ENDED)

FORMAT = "1"
"""Stands in each hash of ours as `v`."""
