"""What mypy says of a program."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.worker_process import REPOSITORY


def mypy(program: Path) -> str:
    """Its messages, a line each, under `--strict`."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", str(program)]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return found.stdout + found.stderr


def lines_with_errors(told: str, program: Path) -> set[int]:
    """The lines of the program in which these messages name an error."""
    return {int(line) for line in re.findall(rf"{re.escape(program.name)}:(\d+): error", told)}
