"""What a sidecar asks: which answers it waits for, and whose they are."""

import os
import threading
from collections.abc import Iterator

import pytest

from sidekiq_py.engine.prefork.pipes import LinePipe, Message, Parent
from sidekiq_py.engine.prefork.questions import Question, Questions
from sidekiq_py.engine.prefork.sidecar import ALL

WAIT_SECONDS = 60.0


class TheParent:
    """The other end of the pipes: it says what the parent would."""

    def __init__(self) -> None:
        self._asked, up = map(LinePipe, os.pipe())
        down, self._down = map(LinePipe, os.pipe())
        self.connection = Parent(up, down)
        self._ends = (self._asked, up, down, self._down)

    def next_number(self) -> str:
        """The number of the next question that arrives."""
        [message] = self._asked.read() or ()
        return message.details[0]

    def close(self) -> None:
        """Close all ends."""
        for end in self._ends:
            end.close()


@pytest.fixture
def parent() -> Iterator[TheParent]:
    """A parent, closed afterwards."""
    it = TheParent()
    yield it
    it.close()


def asking(questions: Questions, within_seconds: float = WAIT_SECONDS) -> tuple[threading.Thread, list[Question]]:
    """Ask in a thread. Returns it, and the list where the answered question will be."""
    done: list[Question] = []
    thread = threading.Thread(target=lambda: done.append(questions.ask(ALL, "how", within_seconds)))
    thread.start()
    return thread, done


def test_nobody_waits_for_a_process_that_has_ended(parent: TheParent) -> None:
    """It will not answer any more, and a monitor waits for the rest."""
    questions = Questions(parent.connection)
    thread, done = asking(questions)
    number = parent.next_number()

    for message in (("ASKED", (number, "1", "2")), ("ANSWER", (number, "1", "very", "well")), ("GONE", ("2",))):
        questions.handle(Message(*message))
    thread.join(WAIT_SECONDS)

    [question] = done
    assert (question.asked, question.answers) == ({"1"}, {"1": "very well"})


def test_parts_of_one_process_do_not_take_each_others_answers(parent: TheParent) -> None:
    """A sidecar that answers probes and remote control hears the same messages twice."""
    one, other = Questions(parent.connection), Questions(parent.connection)
    first, of_one = asking(one)
    number = parent.next_number()
    second, of_other = asking(other)
    other_number = parent.next_number()

    for details in ((number, "1", "mine"), (other_number, "1", "yours")):
        for questions in (one, other):
            questions.handle(Message("ASKED", details[:2]))
            questions.handle(Message("ANSWER", details))
    first.join(WAIT_SECONDS)
    second.join(WAIT_SECONDS)

    assert [question.answers for question in (*of_one, *of_other)] == [{"1": "mine"}, {"1": "yours"}]


def test_without_an_answer_in_time_the_question_is_open(parent: TheParent) -> None:
    """A parent that hangs must not hang its sidecar."""
    question = Questions(parent.connection).ask(ALL, "how", 0.01)

    assert (question.asked, question.answers, question.is_answered) == (None, {}, False)
