"""What a sidecar asks the children and their parent, which relays questions and answers (`sidecar.py`)."""

import threading
from collections.abc import Callable
from itertools import count

from sidekiq_py.engine.prefork.pipes import Message, Parent

# For all of the process, because several parts of a sidecar may ask over the same connection.
_numbers = count(1)


class Question:
    """
    A question, and the answers so far.

    Attributes:
        asked: The PIDs of the processes that were asked and have not ended; None until the parent has reported them.
        answers: The answers, by PID.
    """

    def __init__(self) -> None:
        self.asked: set[str] | None = None
        self.answers: dict[str, str] = {}

    @property
    def is_answered(self) -> bool:
        """True once every process that was asked has answered or ended."""
        return self.asked is not None and self.asked <= self.answers.keys()


class Questions:
    """
    Asks questions, from any thread.

    Args:
        parent: The connection to the parent. Whoever listens to it passes its messages on to `handle`.
    """

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._open: dict[str, tuple[Question, Callable[[str, str], None]]] = {}
        self._change = threading.Condition()

    def ask(
        self,
        who: str,
        text: str,
        within_seconds: float,
        on_answer: Callable[[str, str], None] = lambda pid, answer: None,
    ) -> Question:
        """
        Ask, and wait for the answers. Later ones are dropped.

        Args:
            who: `PARENT`, `CHILDREN` or `ALL`.
            on_answer: Called with PID and text of each answer, in the thread that calls `handle`.
        """
        number, question = str(next(_numbers)), Question()
        with self._change:
            self._open[number] = question, on_answer
        self._parent.say("ASK", number, who, text)
        with self._change:
            self._change.wait_for(lambda: question.is_answered, within_seconds)
            del self._open[number]
        return question

    def handle(self, message: Message) -> None:
        """Handle a message from the parent, if it is about a question."""
        with self._change:
            match message.word, message.details:
                case "ASKED", (number, *pids) if number in self._open:
                    self._open[number][0].asked = set(pids)
                case "ANSWER", (number, pid, *text) if number in self._open:
                    question, on_answer = self._open[number]
                    on_answer(pid, " ".join(text))
                    question.answers[pid] = " ".join(text)
                case "GONE", (pid,):
                    for question, _ in self._open.values():
                        if question.asked is not None:
                            question.asked.discard(pid)
            self._change.notify_all()
