"""
Runs every check and every test in lanes: processes side by side, as most tests wait for timers and other processes.

    .venv/bin/python .ci/lanes.py [--lanes N] [--record] [PATH | PYTEST ARGUMENT ...]

1. The files with tests are cut into parts of about the same length, by the seconds in `.ci/durations.json`; a file that
   is missing there counts as a short one. A part is a pytest process of its own: what one test leaves behind in the
   program's registries is no other part's business.
2. The longest part starts first, and as soon as one ends the next takes its lane.
3. What a part said is printed in one piece when it has ended; the last lines add all of them up.

A part that fails does not keep the next from running: one run shows all that is wrong. Paths restrict the tests to what
lies under them; with paths or arguments of pytest, the checks that are no tests are left out. `--record` writes
`.ci/durations.json` anew.

A few failed tests get a second try, alone, when all else has ended: of ten thousand tests of processes, timers and
servers, one or the other loses a race against the five parts beside it. The last lines name each of them, as it is a
test to mend. Tests that kill get none, since a job that is lost once in two runs is lost.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

REPOSITORY = Path(__file__).resolve().parent.parent
DURATIONS = REPOSITORY / ".ci" / "durations.json"
TEST_FOLDERS = ("tests", "interop_tests")
WITH_FETCHED_GEMS = REPOSITORY / "interop_tests" / "public_gems"
CHECKS = {
    "ruff check": 1.0,
    "ruff format --check": 1.0,
    "mypy": 60.0,
    "lint-imports": 10.0,
    ".ci/wheel": 40.0,
}

# Tests wait for timers and other processes most of the time: those of the engine use an eighth of a processor.
LANES_PER_CORE = 3
# A pytest process computes for a second before its first test, and the last part should not run alone for long. It is
# no number of seconds, as those that were measured on a busy machine are longer.
PARTS_PER_LANE = 6
LEAST_PART_SECONDS = 15.0
# What a file takes that has not been measured, and the least that is worth a line in the file of durations.
SHORT_SECONDS = 1.0
NO_TESTS_COLLECTED = 5
# Tests have limits of their own. What ends none of them (a thread that the interpreter waits for at its exit, a loop
# that catches everything) would hold up all the rest: such a part tells what its threads do, and is over.
PART_LIMIT_SECONDS = 1800.0
# More than these have a common cause.
MOST_SECOND_TRIES = 4
TESTS_FAILED = 1
LOOK_SECONDS = 0.2

_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?)\b")
_TROUBLE = ("FAILED ", "ERROR ")


@dataclass(frozen=True)
class Part:
    """
    One process.

    Args:
        name: What the output calls it.
        command: What is run.
        seconds: How long it is expected to take.
        has_tests: Whether it is pytest.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    has_tests: bool = False


@dataclass
class Totals:
    """What came of all parts."""

    counts: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0
    failed_parts: list[Part] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    only_tests_failed: bool = True

    def add(self, part: Part, log: str, code: int, cpu_seconds: float) -> None:
        """Take in a part that has ended."""
        lines = log.splitlines()
        self.cpu_seconds += cpu_seconds
        if part.has_tests and lines:
            self.counts.update({word.rstrip("s"): int(number) for number, word in _COUNT.findall(lines[-1])})
        if code != 0:
            self.failed_parts.append(part)
            self.trouble += [line for line in lines if line.startswith(_TROUBLE)]
            self.only_tests_failed &= part.has_tests and code == TESTS_FAILED


def durations() -> dict[str, float]:
    """The seconds of each measured file."""
    measured: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return measured


def files_with_tests(paths: Sequence[str]) -> list[str]:
    """All of them, or those under *paths*, folder by folder; without those that `.ci/gems` runs."""
    found = {
        str(path.relative_to(REPOSITORY))
        for folder in TEST_FOLDERS
        for path in (REPOSITORY / folder).rglob("test_*.py")
        if not path.is_relative_to(WITH_FETCHED_GEMS)
        and (not paths or any(path.is_relative_to(REPOSITORY / wanted) for wanted in paths))
    }
    return sorted(found, key=lambda name: (name.rpartition("/")[0], name))


def cut(files: Sequence[str], seconds_of: Mapping[str, float], count: int) -> list[list[str]]:
    """Neighbours go together, in some *count* parts; a long file has one of its own."""
    part_seconds = max(sum(seconds_of.get(file, SHORT_SECONDS) for file in files) / count, LEAST_PART_SECONDS)
    parts: list[list[str]] = []
    room = 0.0
    for file in files:
        seconds = seconds_of.get(file, SHORT_SECONDS)
        is_at_home = bool(parts) and _home(parts[-1][0]) == _home(file)
        if seconds > room or not is_at_home:
            parts.append([])
            room = part_seconds
        parts[-1].append(file)
        room -= seconds
    return parts


def _home(file: str) -> str:
    """The programs under test: of two of them, none is to find what the other has declared."""
    return next(home for home in ("tests/compat/", "tests/", "interop_tests/") if file.startswith(home))


def test_parts(paths: Sequence[str], arguments: Sequence[str], folder: Path, count: int) -> list[Part]:
    """The tests in some *count* parts, each with a report in *folder*."""
    seconds_of = durations()
    parts = []
    for number, files in enumerate(cut(files_with_tests(paths), seconds_of, count)):
        name = f"pytest {files[0]}" + (f" … {files[-1]} ({len(files)} files)" if len(files) > 1 else "")
        report = (f"--junitxml={folder / f'{number}.xml'}", "-o", "junit_family=xunit1")
        command = (sys.executable, "-X", "faulthandler", "-m", "pytest", *files, *report, *arguments)
        seconds = sum(seconds_of.get(file, SHORT_SECONDS) for file in files)
        parts.append(Part(name, command, seconds, has_tests=True))
    return parts


def check_parts() -> list[Part]:
    """What is no test."""
    tools = Path(sys.executable).parent
    return [
        Part(line, (line,) if line.startswith(".ci/") else (str(tools / line.split()[0]), *line.split()[1:]), seconds)
        for line, seconds in CHECKS.items()
    ]


def run(parts: Sequence[Part], lanes: int, folder: Path) -> Totals:
    """Run all of them, print what each said when it ends, and add them up."""
    waiting = sorted(parts, key=lambda part: part.seconds)
    running: dict[int, tuple[subprocess.Popen[bytes], Part, Path, float]] = {}
    totals = Totals()
    environment = {**os.environ, "PYTHONPATH": ".:compat"}

    def end(number: int, frame: object) -> NoReturn:
        for process, *_ in running.values():
            process.send_signal(number)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    while waiting or running:
        while waiting and len(running) < lanes:
            part = waiting.pop()
            log = folder / f"{len(waiting)}.log"
            # An empty stdin: six processes are not to wait for the same terminal.
            with log.open("ab") as output:
                process = subprocess.Popen(
                    part.command,
                    cwd=REPOSITORY,
                    env=os.environ if part.has_tests else environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            running[process.pid] = (process, part, log, time.monotonic())
        pid, status, usage = _next_to_end(running)
        process, part, log, begun = running.pop(pid)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        said = log.read_text(errors="replace")
        cpu_seconds = usage.ru_utime + usage.ru_stime
        if code == NO_TESTS_COLLECTED and part.has_tests:
            # All of its tests bear a marker that is left out.
            code = 0
        seconds = time.monotonic() - begun
        print(f"== {part.name}\n{said.rstrip()}", flush=True)
        print(f"== {part.name}: {seconds:.0f} s, CPU {cpu_seconds:.0f} s, exit code {code}\n", flush=True)
        totals.add(part, said.rstrip(), code, cpu_seconds)
    return totals


def second_try(totals: Totals, folder: Path) -> list[str]:
    """Try failed tests again, if it is only a few: all of them, if all pass now and none is marked `kill`, or none."""
    failed = failed_tests(folder)
    if not failed or len(failed) > MOST_SECOND_TRIES or not totals.only_tests_failed:
        return []
    command = (sys.executable, "-X", "faulthandler", "-m", "pytest", *failed, "-m", "not kill")
    again = run([Part(f"second try: {', '.join(failed)}", command, 0.0, has_tests=True)], 1, folder)
    if again.failed_parts or again.counts["passed"] != len(failed):
        return []
    totals.failed_parts.clear()
    totals.trouble.clear()
    return failed


def failed_tests(folder: Path) -> list[str]:
    """Their node ids, from the reports."""
    cases = (case for report in folder.glob("*.xml") for case in ElementTree.parse(report).iter("testcase"))
    return sorted(
        {_node_id(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}
    )


def _node_id(case: ElementTree.Element) -> str:
    file, name = case.get("file", ""), case.get("name", "")
    # After the module come the classes in which the test is.
    classes = case.get("classname", "").removeprefix(file.removesuffix(".py").replace("/", ".")).split(".")[1:]
    return "::".join([file, *classes, name])


def _next_to_end(running: Mapping[int, tuple[subprocess.Popen[bytes], Part, Path, float]]) -> tuple[int, int, Any]:
    """Wait for a part to end; one that is over its limit is made to say where it stands, and ends by that."""
    aborted = set()
    while True:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid:
            return pid, status, usage
        for process, part, log, begun in running.values():
            if time.monotonic() - begun > PART_LIMIT_SECONDS and process.pid not in aborted:
                aborted.add(process.pid)
                with log.open("a") as output:
                    print(f"\nFAILED {part.name}: not ended within {PART_LIMIT_SECONDS:.0f} s", file=output)
                process.send_signal(signal.SIGABRT)
        time.sleep(LOOK_SECONDS)


def record(folder: Path) -> None:
    """Write how long each file took, from the reports."""
    seconds: Counter[str] = Counter()
    for report in folder.glob("*.xml"):
        for case in ElementTree.parse(report).iter("testcase"):
            seconds[case.get("file", "")] += float(case.get("time", 0))  # type: ignore[assignment]
    known = {file: round(taken, 1) for file, taken in sorted(seconds.items()) if taken >= SHORT_SECONDS}
    DURATIONS.write_text(json.dumps(known, indent=1) + "\n")


def main() -> int:
    """Run what was asked for; the exit code."""
    arguments = sys.argv[1:]
    lanes = LANES_PER_CORE * (os.cpu_count() or 1)
    if "--lanes" in arguments:
        place = arguments.index("--lanes")
        lanes = int(arguments[place + 1])
        del arguments[place : place + 2]
    is_recording = "--record" in arguments
    arguments = [argument for argument in arguments if argument != "--record"]
    paths = [argument for argument in arguments if (REPOSITORY / argument).exists()]
    options = [argument for argument in arguments if argument not in paths]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        parts = test_parts(paths, options, Path(name), lanes * PARTS_PER_LANE)
        if not paths and not options:
            parts += check_parts()
        totals = run(parts, lanes, Path(name))
        passed_alone = second_try(totals, Path(name))
        if is_recording:
            record(Path(name))
    for line in (*totals.trouble, *(f"failed: {part.name}" for part in totals.failed_parts)):
        print(line)
    for test in passed_alone:
        print(f"failed beside other tests, passed alone: {test}")
    counts = ", ".join(f"{count:,} {word}" for word, count in totals.counts.most_common())
    print(
        f"== {len(parts)} parts in {lanes} lanes, {len(totals.failed_parts)} of them failed; tests: {counts or 'none'}"
        f" in {time.monotonic() - begun:.0f} s (CPU {totals.cpu_seconds:.0f} s)"
    )
    return 1 if totals.failed_parts or not totals.counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
