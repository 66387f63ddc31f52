"""
Probes of a worker with `--processes`, answered by a process beside the children (a sidecar).

It asks the parent and all children over the pipes between them, and gives each three seconds. A process that hangs
does not answer, and one missing answer makes the whole worker not live. The children's counts are added up here and
kept when a child ends, so that counters never decrease. A child reports its counts when it is asked, every few seconds,
and once more when it ends. A child that crashes loses the counts of its last seconds. The parent holds the counts of
ended children, too, for the next sidecar: if this one was killed, counters that fell to what the running children have
would look to Prometheus as if all of that had just been run.
"""

import os
import signal
import threading
from collections.abc import Callable

from sidekiq_py import program
from sidekiq_py.clock import now_seconds
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.prefork.pipes import Message, Parent
from sidekiq_py.engine.prefork.questions import Questions
from sidekiq_py.engine.prefork.sidecar import ALL, PARENT, Role
from sidekiq_py.metrics.job_metrics import Counts, JobMetrics, as_text, families, from_text, start_family, summed
from sidekiq_py.metrics.text import render
from sidekiq_py.probes.server import Answer, ProbeServer
from sidekiq_py.probes.worker import WorkerProbes

COLLECT_SECONDS = 5.0
"""How often the children are asked for their counts."""

_ANSWER_SECONDS = 3.0
_GOOD = "good"

LIVE, READY, METRICS, KEEP = "probe-live", "probe-ready", "probe-metrics", "probe-keep"


class InParent:
    """
    The parent's side of the probes. Each sidecar is forked with a copy.

    Attributes:
        started_at: When the worker started, in seconds since the epoch.
        ended: The counts of ended children as the last sidecar knew them, in the form of `as_text`.
    """

    def __init__(self) -> None:
        self.started_at = now_seconds()
        self.ended = as_text({})

    def answer(self, text: str) -> str:
        """Answer a message of the sidecar. Any answer shows that the parent is live."""
        word, _, rest = text.partition(" ")
        if word == KEEP:
            self.ended = rest
        return _GOOD


def role(port: int) -> Role:
    """The sidecar role that serves the probes at *port*."""
    in_parent = InParent()
    return Role(run=lambda parent: _serve(port, parent, in_parent), handle=in_parent.answer)


def is_probe(text: str) -> bool:
    """True if *text* is a message of the probes, for a sidecar that also has other work."""
    return text.partition(" ")[0] in (LIVE, READY, METRICS, KEEP)


def in_child(parent: Parent) -> Callable[[Launcher, str], str]:
    """Start to count what this child runs, and return the function that answers the probes' questions."""
    counts = JobMetrics()
    counts.attach()
    probes = WorkerProbes(counts)
    program.hooks.on("exit")(lambda: parent.say("SAY", METRICS, as_text(counts.counts())))

    def answer(launcher: Launcher, text: str) -> str:
        probes.launcher = launcher
        if text == METRICS:
            return as_text(counts.counts())
        found = probes.live() if text == LIVE else probes.ready()
        return _GOOD if found.is_good else found.text.strip()

    return answer


class PreforkProbes:
    """
    Probes the parent and its children.

    Args:
        parent: The connection to the parent, which relays questions.
        parent_pid: The parent's PID.
        in_parent: The copy of what the parent held when this process was forked.
    """

    def __init__(self, parent: Parent, parent_pid: int, in_parent: InParent) -> None:
        self._parent = parent
        self._questions = Questions(parent)
        self._parent_pid = str(parent_pid)
        self._started_at = in_parent.started_at
        self._lock = threading.Lock()
        self._ended: Counts = from_text(in_parent.ended)
        self._running: dict[str, Counts] = {}

    def live(self) -> Answer:
        """Good if the parent answers and the loops of all children that have started still turn."""
        problem, _ = self._asked(LIVE)
        return Answer(True, "live\n") if problem is None else Answer(False, problem)

    def ready(self) -> Answer:
        """Good if there is at least one started child, and all started children fetch."""
        problem, count = self._asked(READY)
        if problem is None and not count:
            problem = "no child has started yet\n"
        return Answer(True, "ready\n") if problem is None else Answer(False, problem)

    def metrics(self) -> str:
        """When it started, and the counts of all children, ended ones included, in Prometheus's text format."""
        self.collect()
        with self._lock:
            counts = summed([self._ended, *self._running.values()])
        return render([start_family(self._started_at), *families(counts)])

    def collect(self) -> None:
        """Ask all children for their counts."""
        # Noted in the thread that also handles GONE: a child noted after its end would count twice.
        self._questions.ask(ALL, METRICS, _ANSWER_SECONDS, on_answer=self._note_counts)

    def handle_message(self, message: Message) -> None:
        """Handle a message that the parent relays."""
        self._questions.handle(message)
        match message.word, message.details:
            case "SAID", (pid, what, *text) if what == METRICS:
                self._note_counts(pid, " ".join(text))
            case "GONE", (pid,):
                with self._lock:
                    self._ended = summed([self._ended, self._running.pop(pid, {})])
                self._parent.say("TELL", PARENT, f"{KEEP} {as_text(self._ended)}")

    def _note_counts(self, pid: str, text: str) -> None:
        try:
            counts = from_text(text)
        except (ValueError, TypeError):
            # The parent has none, and a child that ends while it is asked may send an empty answer.
            return
        with self._lock:
            self._running[pid] = counts

    def _asked(self, text: str) -> tuple[str | None, int]:
        """Ask all processes. Returns what is wrong, or None, and how many children were asked."""
        question = self._questions.ask(ALL, text, _ANSWER_SECONDS)
        if question.asked is None:
            return f"the parent {self._parent_pid} gives no answer\n", 0
        silent = question.asked - question.answers.keys()
        bad = [f"{pid}: gives no answer" for pid in sorted(silent)]
        bad += [f"{pid}: {answer}" for pid, answer in question.answers.items() if answer != _GOOD]
        children = len(question.asked - {self._parent_pid})
        return ("\n".join(bad) + "\n" if bad else None), children


def _serve(port: int, parent: Parent, in_parent: InParent) -> int:
    """Answer probes until TERM or until the parent is gone. Returns the exit code."""
    # Leave the terminal's foreground group, as the children do: the parent decides when to stop.
    os.setpgid(0, 0)
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: is_over.set())
    os.environ.pop("NOTIFY_SOCKET", None)
    probes = PreforkProbes(parent, os.getppid(), in_parent)
    server = ProbeServer(port, probes)
    parent.listen(probes.handle_message, on_end=is_over.set)
    server.start()
    while not is_over.wait(COLLECT_SECONDS):
        probes.collect()
    return 0
