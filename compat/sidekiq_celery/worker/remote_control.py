"""
A worker's remote control. Each node has one.

It listens on kombu's pidbox (`<control_exchange>.pidbox`), so `celery inspect`, Flower and `app.control` reach it from
Celery as well as from here. In a worker with a single process it is a daemon thread. With prefork it is a process of
its own that runs no tasks (`sidekiq_py.engine.prefork.sidecar`), which the parent replaces when it dies. Commands are
the functions in `worker.commands.Panel`. They are called here, one after the other, as `command(state, **arguments)`,
and the reply is their return value.

`state` has `app`, `hostname`, and `remote_control`, through which a command reaches the rest of its worker:

    remote_control = state.remote_control
    remote_control.tell_children("limits", task="a.b", soft=3)   # every process that runs tasks; returns at once
    remote_control.tell_all("limits", ...)                       # those, their parent, and this process
    remote_control.tell_parent("grow", n=1)
    remote_control.ask_children("running")                       # [Answer(pid, value, error), …], those in time
    remote_control.ask_parent("processes")                       # Answer, or None if it is late

Each kind has a function, registered with `worker.control_channel.on_message(kind)` and called there as
`function(recipient, **about)`. `worker.control` must import its module, because remote control, the parent and its
children are forked with those imports. In a worker with a single process, that process is child and parent and handles
each message once. A child that is forked later knows what the parent knows. So a change that future children need, too,
is sent with `tell_all` and kept in the parent's copy of the app or worker.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from sidekiq_celery._pidbox.node import Node
from sidekiq_celery.utils.collections import AttributeDict
from sidekiq_celery.worker.commands import Panel
from sidekiq_celery.worker.control_channel import Answer, Recipient, WorkerProcesses, handle_message, text_of
from sidekiq_celery.worker.monitoring import Heart
from sidekiq_py.extension import monotonic, now_seconds
from sidekiq_py.worker import ALL, CHILDREN, PARENT

logger = logging.getLogger("celery.worker.control")

_MOST_SAMPLES = 100
# How long the children may take to answer: the client waits for a second unless it says otherwise.
_ASK_SECONDS = 0.7
_LONGEST_ASK_SECONDS = 10.0
# Time for the reply to reach the client.
_REPLY_SECONDS = 0.3


class RemoteControl(Node):
    """
    Remote control of one worker.

    Args:
        worker: The `WorkController`.
        worker_started_at: Seconds since the epoch.

    Attributes:
        processes: The worker's processes; set it before starting.
        state: The first argument of every command.
        counts_of_the_gone: How often each task was tried in children that have exited.
        memory_samples: For `memdump`.
    """

    processes: WorkerProcesses
    stop_seconds = 2.0

    def __init__(self, worker: Any, worker_started_at: float) -> None:
        super().__init__(worker.app, worker.hostname, "sidekiq.remote_control")
        self.worker = worker
        self.worker_started_at = worker_started_at
        self.counts_of_the_gone: Counter[str] = Counter()
        self.memory_samples: deque[str] = deque(maxlen=_MOST_SAMPLES)
        self.state = AttributeDict(
            app=self.app,
            hostname=self.hostname,
            remote_control=self,
            # The former name of `remote_control`, which commands of programs may use.
            steward=self,
            tset=set,
            consumer=worker.consumer,
        )
        self.handlers = Panel.data
        self._deadline: float | None = None
        self._heart: Heart | None = None

    @property
    def recipient(self) -> Recipient:
        """This process, as a recipient of messages."""
        return Recipient(self.worker, counts_of_the_gone=self.counts_of_the_gone)

    # ---- the rest of the worker

    def tell_children(self, kind: str, **about: Any) -> None:
        """Have the kind's function called wherever tasks run. Does not wait."""
        self.processes.tell(CHILDREN, kind, about)

    def tell_parent(self, kind: str, **about: Any) -> None:
        """Have it called in the parent of the children. Does not wait."""
        self.processes.tell(PARENT, kind, about)

    def tell_all(self, kind: str, **about: Any) -> None:
        """Have it called in the children, their parent, and here. Does not wait."""
        self.processes.tell(ALL, kind, about)

    def ask_children(self, kind: str, *, timeout_seconds: float | None = None, **about: Any) -> list[Answer]:
        """
        Have it called wherever tasks run, and wait for the return values.

        Args:
            timeout_seconds: By default the time that the waiting client has left. Later answers are dropped.
        """
        return self.processes.ask(CHILDREN, kind, about, self._seconds(timeout_seconds))

    def ask_parent(self, kind: str, *, timeout_seconds: float | None = None, **about: Any) -> Answer | None:
        """Have it called in the parent. Returns None if the answer does not come in time."""
        answers = self.processes.ask(PARENT, kind, about, self._seconds(timeout_seconds))
        return answers[0] if answers else None

    def tell_here(self, kind: str, **about: Any) -> None:
        """Have the kind's function called here."""
        handle_message(self.recipient, text_of(kind, about))

    def _seconds(self, given: float | None) -> float:
        if given is not None:
            return given
        return _ASK_SECONDS if self._deadline is None else max(0.1, self._deadline - monotonic())

    # ---- its life

    def run(self) -> None:
        """Start the worker's heart, and listen."""
        from sidekiq_celery._pidbox.listener import listen

        self.app.set_current()
        self._guarded(self._start_heart)
        listen(self)

    def _start_heart(self) -> None:
        self.state.heart = self._heart = Heart(self.worker, self.ask_children)
        self._heart.start()

    def has_stopped(self) -> None:
        """Let the heart send the worker's last event to monitors."""
        if self._heart is not None:
            self._guarded(self._heart.stop)

    def tick(self) -> None:
        """Let the heart beat."""
        if self._heart is not None:
            self._guarded(self._heart.beat_if_due)

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:
            logger.exception("%r failed", function)

    def stop_by_command(self, reason: str) -> None:
        """As in Celery, where `WorkerShutdown` raised by a command stops the worker."""
        self.tell_parent("stop", msg=reason)

    def note_deadline(self, expires: Any) -> None:
        """Note how long the next command's client waits: *expires* is seconds since the epoch, 0 if unknown."""
        if not isinstance(expires, int | float) or not expires:
            self._deadline = None
            return
        left = expires - now_seconds() - _REPLY_SECONDS
        # The client's clock may differ from ours.
        self._deadline = monotonic() + min(max(left, 0.3), _LONGEST_ASK_SECONDS)
