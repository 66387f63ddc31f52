"""Stores finished rounds as lines of JSON, in a folder that is not committed, with the sources they were run on."""

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
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO, Any

from tests.support.worker_process import REPOSITORY

# The sources that a round proves. Between two rounds, tests and docs may change, and also code that no worker or client
# loads.
_SOURCES = ("sidekiq_py", "compat")
_NOT_LOADED = re.compile(r"/(web|demo|doctor|contrib|templates|_dashboard)/")


@dataclass(frozen=True, slots=True)
class Subject:
    """
    The code under test.

    Args:
        sources: Identifies a state of the library's code.
        commit: The commit at which it was first run; others may have the same sources.
    """

    sources: str
    commit: str

    @classmethod
    def here(cls) -> "Subject":
        """
        The code of this working tree.

        Raises:
            RuntimeError: The working tree has uncommitted changes, so that no commit can be named.
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
    The result of one round.

    Attributes:
        campaign: The campaign's name.
        number: The round's number in its campaign, from 0.
        seed: The seed of everything random.
        seconds: How long the round took.
        load: The machine's load average at the end.
        jobs: The number of jobs that were enqueued, as far as the enqueuer knew.
        faults: The number of faults of each kind.
        lost: The number of lost jobs; the numbers of some of them are in *problem*.
        dropped: The number of jobs that a Redis has forgotten, by reason.
        repeats: The number of surplus runs, by reason.
        unended_in_dead: The number of jobs in `dead` that never finished.
        recovery_ms: For each kill that cut off jobs, the time until the last of them had started again, by kind of
            process.
        notes: Other counts.
        problem: What went wrong; empty if nothing did.
    """

    campaign: str
    seed: int
    number: int = 0
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
        """True if the round has finished, so that its accounts are valid."""
        return not self.problem.startswith("Traceback")

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Round":
        """Restore a round from its stored values."""
        counters = {name: Counter(values[name]) for name in ("faults", "dropped", "repeats", "notes")}
        return cls(**{**values, **counters})


class Record:
    """
    The rounds of one folder.

    Args:
        folder: The folder; created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "rounds.jsonl"

    def add(self, one: Round) -> None:
        """Store a round immediately and completely."""
        with self._path.open("a") as file:
            file.write(json.dumps({name.name: getattr(one, name.name) for name in fields(one)}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def claim(self, campaign: str, number: int) -> IO[str] | None:
        """
        Claim a round, so that no other process plays it at the same time. Close the file to end the claim.

        Returns:
            None if another process has claimed it.
        """
        claims = self.folder / "claims"
        claims.mkdir(exist_ok=True)
        file = (claims / f"{campaign}-{number}").open("w")
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def rounds(self, sources: str) -> Iterator[Round]:
        """The rounds with one state of the sources."""
        if not self._path.exists():
            return
        for line in self._path.read_text().splitlines():
            values = json.loads(line)
            if values["sources"] == sources:
                yield Round.of(values)
