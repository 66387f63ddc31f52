"""The atomic changes to the timetable, each a script in `lua/` whose head describes its arguments."""

from pathlib import Path

from sidekiq_py.extension import Verb

_FOLDER = Path(__file__).parent / "lua"

SAVE, REMOVE, FORGET, STATUS, CLAIM, PASS, PLANT, ENDED = (
    Verb(f"CRON_{name.upper()}", (_FOLDER / f"{name}.lua").read_text("utf-8"))
    for name in ("save", "remove", "forget", "status", "claim", "pass", "plant", "ended")
)
ALL = (SAVE, REMOVE, FORGET, STATUS, CLAIM, PASS, PLANT, ENDED)

FORMAT = "1"
"""The value of `v` in each of Python's own hashes."""
