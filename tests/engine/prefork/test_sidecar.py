"""The sidecar of a prefork pool: what it asks and tells, and what becomes of the family when somebody dies or hangs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidekiq_py.engine.prefork.pipes import LinePipe, Outbox, readable
from tests.support.child_process import tied_to_this_process
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY

_SECONDS = 60


class Family:
    """A parent, two children and a sidecar."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._said = 0
        command = tied_to_this_process([sys.executable, "-m", "tests.engine.prefork.prefork_program", str(folder)])
        with (folder / "log").open("wb") as log:
            self.parent = subprocess.Popen(command, cwd=REPOSITORY, stderr=log)

    def lines(self, name: str) -> list[str]:
        """What a file holds so far, without a line that is still being written: a long one takes several writes."""
        path = self.folder / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def say(self, *lines: str) -> None:
        """Have the sidecar say it."""
        self._said += 1
        path = self.folder / f"new-{self._said:04}"
        path.write_text("\n".join(lines), errors="surrogateescape")
        path.rename(self.folder / f"say-{self._said:04}")

    def received(self, start: str, times: int = 1) -> list[str]:
        """Wait until the sidecar has heard so many lines that begin so."""

        def found() -> list[str] | None:
            lines = [line for line in self.lines("heard") if line.startswith(start)]
            return lines if len(lines) >= times else None

        return eventually(found, within_seconds=_SECONDS)

    @property
    def sidecar(self) -> int:
        """The one that was started last."""
        return int(eventually(lambda: self.lines("sidecars"), within_seconds=_SECONDS)[-1])

    def stop(self) -> int:
        """By TERM; the exit code."""
        self.parent.send_signal(signal.SIGTERM)
        return self.parent.wait(_SECONDS)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    """All of them at work."""
    one = Family(tmp_path)
    one.received("SAID", times=2)
    yield one
    if one.parent.poll() is None:
        one.parent.kill()
        one.parent.wait()


def test_all_are_asked_and_told(family: Family) -> None:
    """Texts come as they were said; each answer bears the process that gave it."""
    family.say('ASK 7 all {"a":  "two  spaces"}', "TELL children hello there", "TELL parent for you")

    asked = family.received("ASKED 7")[0].split(" ")[2:]
    answers = family.received("ANSWER 7", times=3)

    assert asked[-1] == str(family.parent.pid)
    assert sorted(answers) == sorted(
        [f'ANSWER 7 {pid} <{{"a":  "two  spaces"}}>' for pid in asked[:2]]
        + [f'ANSWER 7 {family.parent.pid} [{{"a":  "two  spaces"}}]']
    )
    lines = eventually(lambda: family.lines("told") if len(family.lines("told")) == 2 else None)
    assert sorted(lines) == sorted(f"{pid} hello there" for pid in asked[:2])
    eventually(lambda: "for you" in family.lines("obeyed"))
    assert {line.split(" ")[1] for line in family.received("SAID")} == set(asked[:2])
    assert family.stop() == 0


def test_long_answers_come_whole(family: Family) -> None:
    """They are longer than the pipes, and both children give one at a time."""
    family.say("ASK 1 children much", "ASK 2 children much")

    answers = [*family.received("ANSWER 1", times=2), *family.received("ANSWER 2", times=2)]

    assert {len(line.split(" ")[3]) for line in answers} == {1_000_000}
    assert family.stop() == 0


def test_what_fails_in_the_parent_harms_nobody(family: Family) -> None:
    """The answer is empty, and the next question is answered."""
    family.say("ASK 1 parent fail", "ASK 2 parent again")

    assert family.received("ANSWER 1") == [f"ANSWER 1 {family.parent.pid} "]
    assert family.received("ANSWER 2") == [f"ANSWER 2 {family.parent.pid} [again]"]


def test_a_handler_that_fails_in_the_parent_ends_nobody(family: Family) -> None:
    """What the program does about a signal is its affair; the parent obeys it as it would have."""
    family.parent.send_signal(signal.SIGHUP)

    family.received("SAID", times=4)
    family.received("GONE", times=2)
    assert family.stop() == 0


def test_a_sidecar_that_says_anything_is_borne(family: Family) -> None:
    """What is not understood is passed over."""
    family.say("ASK", "TELL", "\udcff", "SHOUT loudly", "ASK 1 children still")

    assert len(family.received("ANSWER 1", times=2)) == 2
    assert family.stop() == 0


def test_a_sidecar_that_dies_is_replaced(family: Family) -> None:
    """What it was about to be told is gone with it."""
    old = family.sidecar
    family.say("ASK 1 children much")
    os.kill(old, signal.SIGKILL)

    eventually(lambda: family.sidecar != old, within_seconds=_SECONDS)
    family.say("ASK 2 children again")

    assert len(family.received("ANSWER 2", times=2)) == 2
    assert family.stop() == 0


def test_a_sidecar_that_ends_during_a_stop_is_not_replaced(family: Family) -> None:
    """systemd sends TERM to all processes of a worker at once. Its log should not speak of a replacement then."""
    busy = family.folder / "busy"
    busy.touch()
    family.parent.send_signal(signal.SIGTERM)
    eventually(lambda: len(family.lines("stopping")) == 2, within_seconds=_SECONDS)

    pid = family.sidecar
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), within_seconds=_SECONDS)
    busy.unlink()

    assert family.parent.wait(_SECONDS) == 0
    assert (len(family.lines("sidecars")), family.lines("log")) == (1, [])


def test_a_child_that_dies_is_told_of(family: Family) -> None:
    """Nobody waits for its answer."""
    family.say("ASK 1 children who")
    pid = family.received("ASKED 1")[0].split(" ")[2]

    os.kill(int(pid), signal.SIGKILL)

    family.received(f"GONE {pid}")
    family.received("SAID", times=3)
    assert family.stop() == 0


def test_a_frozen_child_holds_nobody_up(family: Family) -> None:
    """Whatever it is sent: beyond a limit it is left out."""
    family.say("ASK 1 children who")
    frozen = int(family.received("ASKED 1")[0].split(" ")[2])
    os.kill(frozen, signal.SIGSTOP)

    family.say(*[f"ASK {number} children {'y' * 500_000}" for number in range(2, 22)])
    family.say("ASK 99 all who")

    assert str(frozen) not in family.received("ASKED 99")[0].split(" ")
    family.received(f"ANSWER 99 {family.parent.pid}")
    os.kill(frozen, signal.SIGCONT)
    assert family.stop() == 0


def test_a_sidecar_that_does_not_heed_term_is_killed(tmp_path: Path) -> None:
    """The parent's end does not wait for it for long."""
    (tmp_path / "deaf").touch()
    family = Family(tmp_path)
    family.received("SAID", times=2)

    assert family.stop() == 0


def test_writing_to_a_child_never_waits() -> None:
    """What does not fit is kept, and goes when there is room."""
    reader, writer = os.pipe()
    outbox, pipe = Outbox(writer), LinePipe(reader)
    text = "z" * 300_000

    assert outbox.write("TELL", text)
    assert outbox.waiting_bytes > 0
    received: list[str] = []
    while not received:
        received += [message.details[0] for message in pipe.read() or ()]
        outbox.flush()

    assert (received, outbox.waiting_bytes) == ([text], 0)
    pipe.close()
    assert not outbox.write("TELL", "nobody")
    outbox.close()


def test_a_parent_may_wait_for_a_limit_of_months() -> None:
    """The system refuses to wait for more than 24 days at a time."""
    reader, writer = os.pipe()
    os.write(writer, b"x")

    assert readable([reader], 1e12) == [reader]
    os.close(reader)
    os.close(writer)
