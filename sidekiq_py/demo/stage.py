"""What the steps of the demo share: a private Redis, the programs that use it, the screen, and recurring actions."""

import json
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sidekiq_py.api import ProcessSet
from sidekiq_py.clock import now_seconds
from sidekiq_py.demo import programs
from sidekiq_py.demo.programs import Console, Program
from sidekiq_py.demo.record import NotSeenError, wait_until
from sidekiq_py.demo.screen import Screen
from sidekiq_py.demo.tape import JobCommand, Tape
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.wire import keys


class Sent(NamedTuple):
    """
    A job in Redis.

    Args:
        seen: The last command about the job.
    """

    jid: str
    seen: JobCommand


@dataclass(slots=True)
class Stage:
    """
    The running demo.

    Args:
        folder: The folder with the files by which the demo controls its jobs.
    """

    screen: Screen
    pool: Pool
    tape: Tape
    folder: Path
    workers: list[Program] = field(default_factory=list)

    def start_python(self, jobs: str, queue: str) -> Program:
        """
        Start a Python worker.

        Args:
            jobs: The module that declares the jobs.
            queue: The queue to serve.
        """
        url = self.pool.settings.url
        return self._started(programs.python_worker(jobs, queue, redis_url=url, folder=self.folder))

    def start_ruby(self, queue: str) -> Program:
        """Start a Ruby worker."""
        return self._started(programs.ruby_worker(queue, redis_url=self.pool.settings.url, folder=self.folder))

    def wait_for_heartbeats(self) -> None:
        """Wait until every worker has registered itself in Redis."""
        for worker in self.workers:
            wait_until(partial(_beats, worker), f"a heartbeat of {worker.name} (pid {worker.pid})")

    def enqueue(self, console: Console, line: str, *, queue: str) -> Sent:
        """Run a line that enqueues a job, and show the line and the command that Redis received."""
        return self._send(console, line, "LPUSH", keys.queue(queue))

    def schedule(self, console: Console, line: str) -> Sent:
        """Run a line that schedules a job, and show the line and the command that Redis received."""
        return self._send(console, line, "ZADD", keys.SCHEDULE)

    def pushed(self, text: str, *, queue: str) -> Sent:
        """Wait until any script enqueues a job whose bytes contain *text*, and show it."""
        seen = self.tape.wait_for("LPUSH", keys.queue(queue), text)
        self.screen.redis(seen.line, seen.payload)
        return Sent(str(json.loads(seen.payload)["jid"]), seen)

    def begin_step(self) -> None:
        """Look only at commands and output from now on."""
        self.tape.begin()
        for worker in self.workers:
            worker.begin()

    def enqueued_again(self, job: Sent, *, queue: str) -> JobCommand:
        """Wait until a job moves to a queue, and show how the move changed its bytes."""
        seen = self.tape.wait_for("LPUSH", keys.queue(queue), job.jid, after=job.seen)
        self.screen.redis(seen.line, seen.payload, before=job.seen.payload)
        return seen

    def due(self, job: Sent, *, queue: str) -> None:
        """Like `enqueued_again`, for a scheduled job; also shows how late the poller was."""
        seen = self.enqueued_again(job, queue=queue)
        late_ms = (seen.at_seconds - float(job.seen.number)) * 1000
        self.screen.note(f"{late_ms:.0f} ms after it was due")

    def failed(self, job: Sent, worker: Program) -> Sent:
        """Wait until a failed job is in the retry set, and show what was added to its bytes."""
        worker.said(job.jid, "fail")
        seen = self.tape.wait_for("ZADD", keys.RETRY, job.jid, after=job.seen)
        self.screen.redis(seen.line, seen.payload, before=job.seen.payload)
        return Sent(job.jid, seen)

    def hurry(self, console: Console, line: str, job: Sent, *, cause: str) -> None:
        """Run a line of code that makes a retry due soon, and show the command that Redis received."""
        in_seconds = float(job.seen.number) - now_seconds()
        self.screen.say(
            f"The score is the time of the next attempt, {in_seconds:.0f} s from now. {cause} To save you the wait, "
            "the demo uses the data API to move the retry to one second from now:"
        )
        console.run(line)
        seen = self.tape.wait_for("ZADD|ZINCRBY", keys.RETRY, job.jid, after=job.seen)
        self.screen.code(console.language, line, None)
        self.screen.redis(f"{seen.line} (the bytes stay the same)")
        self.screen.say("The second has passed, and a poller moves the job back to its queue:")

    def performed(self, worker: Program, job: Sent, text: str) -> None:
        """Wait until a worker has run a job, and show the job's output from *text* on."""
        shown = worker.said(job.jid, text)
        worker.said(job.jid, "done")
        self.screen.output(worker.label, shown)

    def introduce_python(self, worker: Program, job_class: str, queue: str) -> None:
        """Show the Python worker's version, pid and queue."""
        version = ".".join(str(part) for part in sys.version_info[:3])
        self.screen.row(
            "python", f'sidekiq_py on Python {version}, pid {worker.pid}, runs {job_class} from the queue "{queue}"'
        )

    def close(self) -> None:
        """Kill every program that is still running."""
        for worker in self.workers:
            if worker.is_running:
                worker.kill()
        self.pool.close()

    def _started(self, worker: Program) -> Program:
        self.workers.append(worker)
        return worker

    def _send(self, console: Console, line: str, command: str, key: str) -> Sent:
        jid = str(console.run(line))
        seen = self.tape.wait_for(command, key, jid)
        self.screen.code(console.language, line, json.dumps(jid))
        self.screen.redis(seen.line, seen.payload)
        return Sent(jid, seen)


def _beats(worker: Program) -> bool:
    if not worker.is_running:
        raise NotSeenError(f"{worker.name} exited at once; its output:\n{worker.tail()}")
    return worker.pid in [process.pid for process in ProcessSet()]
