"""What keeps a run of tests from ending, and what does not."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RUN = """
import sys
import pytest
from tests.support import no_threads_left

no_threads_left.PATIENCE_SECONDS = 0.1
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[1]], plugins=[no_threads_left]))
"""


def run(path: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run one test in a process of its own."""
    path.write_text(f"import concurrent.futures, threading, time\n\n\ndef test_it():\n    {body}\n")
    command = [sys.executable, "-c", RUN, str(path)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


def test_a_thread_that_does_not_end_is_named_and_ends_the_run(tmp_path: Path) -> None:
    """Python would wait for it for as long as it sleeps."""
    ended = run(tmp_path / "test_one.py", "threading.Thread(target=time.sleep, args=(600,), name='sleeper').start()")

    assert ended.returncode == 1
    assert "1 passed" in ended.stdout
    assert "threads were left that do not end: sleeper" in ended.stderr


@pytest.mark.parametrize(
    "body",
    [
        "concurrent.futures.ThreadPoolExecutor(3).submit(int).result()",
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "threading.Thread(target=time.sleep, args=(0.01,)).start()",
    ],
)
def test_what_ends_by_itself_is_left_alone(body: str, tmp_path: Path) -> None:
    """Idle threads of an executor end at the exit, daemons with the process."""
    ended = run(tmp_path / "test_one.py", body)

    assert (ended.returncode, ended.stderr) == (0, "")
