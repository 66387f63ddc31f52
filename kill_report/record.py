"""Finished rounds, a line of JSON each, in a folder that no commit holds; what they were run on."""

import hashlib
import json
import os
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.worker_process import REPOSITORY

# What a round is a proof of. Tests and docs may change between two rounds, and so may what no worker or client loads.
_SOURCES = ("sidekiq_py", "compat")
_NOT_LOADED = re.compile(r"/(web|demo|doctor|contrib|templates|_dashboard)/")


@dataclass(frozen=True, slots=True)
class Subject:
    """
    What was put to the proof.

    Args:
        sources: Tells one state of the library's code from another.
        commit: At which it was run first; others may have the same sources.
    """

    sources: str
    commit: str

    @classmethod
    def here(cls) -> "Subject":
        """
        The code of this working tree.

        Raises:
            RuntimeError: It differs from its commit, so that no commit could be named.
        """
        if _git("status", "--porcelain", "--", *_SOURCES):
            raise RuntimeError(f"{' and '.join(_SOURCES)} have changes that are not committed; commit them first")
        files = [line for line in _git("ls-tree", "-r", "HEAD", *_SOURCES).splitlines() if not _NOT_LOADED.search(line)]
        sources = hashlib.sha256("\n".join(files).encode()).hexdigest()[:12]
        return cls(sources, _git("rev-parse", "--short", "HEAD"))


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


@dataclass(slots=True)
class Round:
    """
    What came of one round.

    Attributes:
        campaign: By its name.
        seed: Of everything that was drawn.
        seconds: It took.
        load: The machine's load average at its end.
        jobs: Were enqueued, as far as the enqueuer was told.
        faults: How many of each kind.
        lost: Jobs; the numbers of some of them are in *problem*.
        dropped: Jobs that a Redis has forgotten, by the reason.
        repeats: Runs too many, by the reason.
        unended_in_dead: Jobs that stand in `dead` and never came to their end.
        recovery_ms: For each kill that cut off jobs, until the last of them had started again; by the kind of process.
        notes: Anything else that is counted.
        problem: What was not as it should be; empty where nothing was.
    """

    campaign: str
    seed: int
    sources: str = ""
    commit: str = ""
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    python: str = field(default_factory=platform.python_version)
    servers: list[str] = field(default_factory=list)
    seconds: float = 0.0
    load: float = 0.0
    jobs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)
    unended_in_dead: int = 0
    recovery_ms: dict[str, list[int]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    problem: str = ""

    @property
    def is_closed(self) -> bool:
        """It came to its end, so that its books are worth something."""
        return not self.problem.startswith("Traceback")

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Round":
        """As it was written."""
        counters = {name: Counter(values[name]) for name in ("faults", "dropped", "repeats", "notes")}
        return cls(**{**values, **counters})


class Record:
    """
    The rounds of one folder.

    Args:
        folder: Made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "rounds.jsonl"

    def add(self, one: Round) -> None:
        """Keep a round; at once, and whole."""
        with self._path.open("a") as file:
            file.write(json.dumps({name.name: getattr(one, name.name) for name in fields(one)}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def rounds(self, sources: str) -> Iterator[Round]:
        """Those of one state of the sources."""
        if not self._path.exists():
            return
        for line in self._path.read_text().splitlines():
            values = json.loads(line)
            if values["sources"] == sources:
                yield Round.of(values)
